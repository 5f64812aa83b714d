// One member of a consumer group by kafkajs; see ../groups_member.go for what it is told and prints.

import fs from 'node:fs'
import kafkajs from 'kafkajs'

const { Kafka, logLevel } = kafkajs
const topic = process.env.MEMBER_TOPIC

function emit (event) {
  const t = Math.round((performance.timeOrigin + performance.now()) * 1000)
  fs.writeSync(1, JSON.stringify({ ...event, t }) + '\n')
}

let owned = []

function release () {
  if (owned.length > 0) emit({ e: 'revoked', p: owned })
  owned = []
}

const kafka = new Kafka({
  brokers: [process.env.TIERBROKER_BOOTSTRAP],
  clientId: process.env.MEMBER_ID,
  logLevel: logLevel.NOTHING,
  connectionTimeout: 10_000,
  retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 50 }
})
const consumer = kafka.consumer({
  groupId: process.env.MEMBER_GROUP,
  sessionTimeout: Number(process.env.MEMBER_SESSION_MS),
  rebalanceTimeout: 20_000,
  heartbeatInterval: 300,
  maxWaitTimeInMs: 300
})
consumer.on(consumer.events.REBALANCING, release)
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  release()
  owned = payload.memberAssignment[topic] ?? []
  emit({ e: 'assigned', p: owned })
})
consumer.on(consumer.events.CRASH, ({ payload }) => emit({ e: 'note', m: `crash: ${payload.error.message}` }))

let stopping = false
process.stdin.resume()
process.stdin.on('end', async () => {
  stopping = true
  await consumer.stop().catch(error => emit({ e: 'note', m: `stop: ${error.message}` }))
  release()
  await consumer.disconnect()
  process.exit(0)
})

await consumer.connect()
await consumer.subscribe({ topics: [topic], fromBeginning: true })
await consumer.run({
  autoCommit: false,
  eachBatchAutoResolve: false,
  partitionsConsumedConcurrently: 1,
  eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
    if (stopping || !isRunning() || isStale() || batch.messages.length === 0) return
    const offsets = batch.messages.map(m => Number(m.offset))
    const last = offsets[offsets.length - 1]
    emit({ e: 'records', r: { [batch.partition]: [offsets[0], last, offsets.length] } })
    await consumer.commitOffsets([{ topic, partition: batch.partition, offset: String(last + 1) }])
    resolveOffset(String(last))
    await heartbeat()
  }
})
