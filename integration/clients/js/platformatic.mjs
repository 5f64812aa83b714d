// @platformatic/kafka: Admin and Producer as applications use them. Its message streams work
// by groups only, so reading goes through Consumer.fetch.

import { Admin, Consumer, Producer } from '@platformatic/kafka'
import { runSuite } from './cases.mjs'
import { partition } from './dataset.mjs'

class Client {
  constructor (bootstrap) {
    const options = { clientId: 'suite', bootstrapBrokers: [bootstrap], retries: 3 }
    this.admin = new Admin(options)
    this.producer = new Producer(options)
    this.consumer = new Consumer({ ...options, groupId: 'unused' })
  }

  async connect () {
    await this.admin.metadata({ topics: [] })
  }

  async close () {
    await this.admin.close()
    await this.producer.close()
    await this.consumer.close()
  }

  async create (topic, partitions) {
    await this.admin.createTopics({ topics: [topic], partitions, replicas: 1 })
  }

  async remove (topic) {
    await this.admin.deleteTopics({ topics: [topic] })
  }

  async partitions (topic) {
    if (!(await this.admin.listTopics()).includes(topic)) return 0 // asking for it by name may create it
    const { topics } = await this.admin.metadata({ topics: [topic], forceUpdate: true })
    return topics.get(topic).partitionsCount
  }

  async produce (topic, codec, all) {
    for (let i = 0; i < all.length; i += 100) {
      const { offsets } = await this.producer.send({
        acks: -1,
        compression: codec,
        messages: all.slice(i, i + 100).map(r => ({
          topic, partition, key: r.key, value: r.value, timestamp: BigInt(r.time), headers: new Map(r.headers.map(([k, v]) => [Buffer.from(k), v]))
        }))
      })
      if (Number(offsets[0].offset) !== i) throw new Error(`offset ${offsets[0].offset} was answered, want ${i}`)
    }
  }

  async consume (topic, from, n) {
    const metadata = await this.consumer.metadata({ topics: [topic], forceUpdate: true })
    const { id, partitions } = metadata.topics.get(topic)
    const got = []
    while (got.length < n) {
      const next = from + got.length
      const { responses } = await this.consumer.fetch({
        node: partitions[partition].leader,
        minBytes: 1,
        maxBytes: 10 << 20,
        maxWaitTime: 1000,
        isolationLevel: 0,
        topics: [{
          topicId: id,
          partitions: [{
            partition, currentLeaderEpoch: -1, fetchOffset: BigInt(next), lastFetchedEpoch: -1, partitionMaxBytes: 20_000
          }]
        }]
      })
      const before = got.length
      for (const batch of responses[0]?.partitions[0]?.records ?? []) {
        for (const r of batch.records) {
          const offset = Number(batch.firstOffset) + r.offsetDelta
          if (offset < from + got.length) continue // the batch began earlier
          got.push({
            offset,
            time: batch.firstTimestamp + r.timestampDelta,
            key: r.key ?? null,
            value: r.value ?? null,
            headers: [...r.headers].map(([k, v]) => [k.toString(), v])
          })
        }
      }
      if (got.length === before) throw new Error(`nothing came after ${got.length} records`)
    }
    return got.slice(0, n)
  }

  async lookup (topic, time) {
    const offsets = await this.consumer.listOffsets({ topics: [topic], partitions: { [topic]: [partition] }, timestamp: BigInt(time) })
    const all = offsets.get(topic)
    return all.length === 1 ? all[0] : all[partition]
  }
}

await runSuite('platformatic', async bootstrap => {
  const c = new Client(bootstrap)
  await c.connect()
  return c
})
