// kafkajs 2.2: producer and admin as applications use them. Its consumer works by groups only,
// so reading goes through the library's own broker object (its Fetch request, its decoders).

import { createRequire } from 'node:module'
import zlib from 'node:zlib'
import * as wasm from '@platformatic/wasm-utils'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import { earliest, latest, runSuite } from './cases.mjs'
import { partition } from './dataset.mjs'

const require = createRequire(import.meta.url)
const Cluster = require('kafkajs/src/cluster')
const createSocket = require('kafkajs/src/network/socketFactory')
const { createLogger, LEVELS } = require('kafkajs/src/loggers')
const LoggerConsole = require('kafkajs/src/loggers/console')

const { CompressionTypes, CompressionCodecs, Kafka, logLevel } = kafkajs

// The packages that kafkajs names for LZ4 and ZSTD are native add-ons; these do the same.
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => wasm.lz4Compress(encoder.buffer),
  decompress: async buffer => wasm.lz4Decompress(buffer)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => zlib.zstdCompressSync(encoder.buffer),
  decompress: async buffer => zlib.zstdDecompressSync(buffer)
})

const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}

class Client {
  constructor (bootstrap) {
    this.kafka = new Kafka({ brokers: [bootstrap], clientId: 'suite', logLevel: logLevel.NOTHING, connectionTimeout: 10_000 })
    this.admin = this.kafka.admin()
    this.producer = this.kafka.producer({ createPartitioner: () => () => partition })
    this.cluster = new Cluster({
      logger: createLogger({ level: LEVELS.NOTHING, logCreator: LoggerConsole }),
      socketFactory: createSocket(),
      brokers: () => [bootstrap],
      clientId: 'suite',
      connectionTimeout: 10_000,
      metadataMaxAge: 300_000,
      retry: {}
    })
  }

  async connect () {
    await this.admin.connect()
    await this.producer.connect()
    await this.cluster.connect()
  }

  async close () {
    await this.admin.disconnect()
    await this.producer.disconnect()
    await this.cluster.disconnect()
  }

  async create (topic, partitions) {
    const created = await this.admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 1 }] })
    if (!created) throw new Error('the topic was there already')
  }

  async remove (topic) {
    await this.admin.deleteTopics({ topics: [topic] })
  }

  async partitions (topic) {
    const { topics } = await this.admin.fetchTopicMetadata() // all: asking for one by name may create it
    return topics.find(t => t.name === topic)?.partitions.length ?? 0
  }

  async produce (topic, codec, all) {
    for (let i = 0; i < all.length; i += 100) {
      const [answer] = await this.producer.send({
        topic,
        acks: -1,
        compression: codecs[codec],
        messages: all.slice(i, i + 100).map(r => ({
          key: r.key, value: r.value, timestamp: String(r.time), headers: Object.fromEntries(r.headers)
        }))
      })
      if (Number(answer.baseOffset) !== i) throw new Error(`offset ${answer.baseOffset} was answered, want ${i}`)
    }
  }

  async consume (topic, from, n) {
    await this.cluster.addTargetTopic(topic)
    const leaders = this.cluster.findLeaderForPartitions(topic, [partition])
    const broker = await this.cluster.findBroker({ nodeId: Object.keys(leaders)[0] })
    const got = []
    while (got.length < n) {
      const { responses } = await broker.fetch({
        maxWaitTime: 1000,
        minBytes: 1,
        isolationLevel: 0,
        topics: [{ topic, partitions: [{ partition, fetchOffset: String(from + got.length), maxBytes: 20_000 }] }]
      })
      const { messages } = responses[0].partitions[0]
      if (messages.length === 0) throw new Error(`nothing came after ${got.length} records`)
      for (const m of messages) {
        if (Number(m.offset) < from + got.length || m.isControlRecord) continue // the batch began earlier
        got.push({ offset: m.offset, time: m.timestamp, key: m.key, value: m.value, headers: Object.entries(m.headers) })
      }
    }
    return got
  }

  // Where there is nothing at or after the time, the admin client gives the end.
  afterEnd = 500

  async lookup (topic, time) {
    if (time === latest || time === earliest) {
      const all = await this.admin.fetchTopicOffsets(topic)
      const { low, high } = all.find(p => p.partition === partition)
      return time === latest ? high : low
    }
    const all = await this.admin.fetchTopicOffsetsByTimestamp(topic, time)
    return all.find(p => p.partition === partition).offset
  }
}

await runSuite('kafkajs', async bootstrap => {
  const c = new Client(bootstrap)
  await c.connect()
  return c
})
