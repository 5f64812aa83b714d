// The cases that every client goes through; ../go/cases.go has the same.
//
// A client has: create(topic, partitions), remove(topic), partitions(topic) (0: no such topic),
// produce(topic, codec, records), consume(topic, from, n), lookup(topic, time) (-1: none), close().

import { compare, dataset, firstTime, records } from './dataset.mjs'

export const latest = -1
export const earliest = -2

const patience = 30_000

export async function runSuite (name, open) {
  const { TIERBROKER_BOOTSTRAP: bootstrap, TIERBROKER_MODE: mode, TIERBROKER_RUN: run } = process.env
  if (!bootstrap || !run || !['old', 'new'].includes(mode)) {
    console.error('TIERBROKER_BOOTSTRAP, TIERBROKER_RUN or TIERBROKER_MODE is missing or unknown')
    process.exit(2)
  }
  let failed = false
  const check = async (what, f) => {
    let timer
    const late = new Promise((_resolve, reject) => {
      timer = setTimeout(() => reject(new Error('took too long')), 2 * patience)
    })
    try {
      await Promise.race([f(), late])
      console.log(`ok ${name} ${mode}: ${what}`)
    } catch (err) {
      failed = true
      console.log(`FAIL ${name} ${mode}: ${what}: ${explain(err)}`)
    } finally {
      clearTimeout(timer)
    }
  }
  let c
  await check('connect', async () => { c = await open(bootstrap) })
  if (failed) process.exit(1)
  await runAll(c, check, what => `${run}-${name}-${mode}-${what}`, mode)
  await c.close()
  process.exit(failed ? 1 : 0)
}

async function runAll (c, check, topicFor, mode) {
  const codecs = ['none', 'gzip', 'snappy', 'lz4']
  if (mode === 'new') codecs.push('zstd') // needs Produce 7 and Fetch 10
  for (const codec of codecs) {
    const topic = topicFor(codec)
    await check(`create topic for ${codec}`, async () => {
      await c.create(topic, 3)
      await eventually(async () => { // it has a leader
        const n = Number(await c.lookup(topic, latest))
        if (n !== 0) throw new Error(`it ends at ${n}`)
      })
    })
    await check(`produce ${codec}`, () => c.produce(topic, codec, dataset()))
    await check(`consume ${codec}`, () => read(c, topic, 0))
    await check(`consume ${codec} from the middle`, () => read(c, topic, records / 2 + 3))
    await check(`look up by time ${codec}`, () => lookups(c, topic))
  }
  for (const topic of (process.env.TIERBROKER_READ ?? '').split(' ').filter(Boolean)) {
    if (mode === 'old' && topic.endsWith('-zstd')) continue
    await check(`read ${topic.slice(process.env.TIERBROKER_RUN.length + 1)}`, () => read(c, topic, 0))
  }
  await check('create and delete a topic', () => createDelete(c, topicFor('deleted')))
}

async function read (c, topic, from) {
  compare(dataset().slice(from), await c.consume(topic, from, records - from))
}

async function lookups (c, topic) {
  const last = records - 1
  for (const [time, want] of [
    [earliest, 0], [latest, records], [0, 0], [firstTime, 0], [firstTime + 1, 1],
    [firstTime + 123_000, 123], [firstTime + 122_999, 123], [firstTime + 123_001, 124],
    [firstTime + last * 1000, last], [firstTime + records * 1000, c.afterEnd ?? -1]
  ]) {
    const got = Number(await c.lookup(topic, time))
    if (got !== want) throw new Error(`time ${time}: offset ${got}, want ${want}`)
  }
}

async function createDelete (c, topic) {
  await c.create(topic, 5)
  const expect = n => eventually(async () => {
    const got = await c.partitions(topic)
    if (got !== n) throw new Error(`${got} partitions, want ${n}`)
  })
  await expect(5)
  let refused = false
  try { await c.create(topic, 5) } catch { refused = true }
  if (!refused) throw new Error('a second creation under the same name was not refused')
  await c.remove(topic)
  await expect(0)
}

// eventually tries until it works or patience ends.
async function eventually (f) {
  const deadline = Date.now() + patience
  for (;;) {
    try {
      return await f()
    } catch (err) {
      if (Date.now() > deadline) throw err
    }
    await new Promise(resolve => setTimeout(resolve, 100))
  }
}

// explain gives an error in one line, with what caused it.
function explain (err) {
  const parts = [err.message]
  for (const e of err.errors ?? []) parts.push(explain(e))
  if (err.cause) parts.push(explain(err.cause))
  return parts.join(': ').replaceAll('\n', '; ')
}
