// What every client writes and expects; the same as ../go/dataset.go makes.

export const records = 500
export const firstTime = 1_600_000_000_000
export const partition = 1

export function dataset () {
  return Array.from({ length: records }, (_, i) => {
    let key = Buffer.from(`key-${String(i).padStart(6, '0')}`)
    if (i % 7 === 3) key = null
    if (i % 7 === 5) key = Buffer.alloc(0)
    const letter = String.fromCharCode('a'.charCodeAt(0) + i % 26)
    const value = i % 50 === 49 ? null : Buffer.from(`${i}:${letter.repeat(i * 37 % 2000)}`)
    const headers = i % 3 === 0
      ? [['name', Buffer.from(`header ${i}`)], ['bytes', Buffer.from([0, 255, i & 255])]]
      : []
    return { offset: i, time: firstTime + i * 1000, key, value, headers }
  })
}

// compare throws with how what was read differs from what was written.
export function compare (want, got) {
  if (want.length !== got.length) throw new Error(`${got.length} records, want ${want.length}`)
  want.forEach((w, i) => {
    const g = got[i]
    const differs = (what, a, b) => { throw new Error(`record ${i}: ${what} ${a}, want ${b}`) }
    if (Number(g.offset) !== w.offset) differs('offset', g.offset, w.offset)
    if (Number(g.time) !== w.time) differs('timestamp', g.time, w.time)
    if (!same(w.key, g.key)) differs('key', show(g.key), show(w.key))
    if (!same(w.value, g.value)) differs('value', show(g.value), show(w.value))
    if (g.headers.length !== w.headers.length) differs('headers', g.headers.length, w.headers.length)
    w.headers.forEach(([key, value], j) => {
      if (g.headers[j][0] !== key || !same(value, g.headers[j][1])) differs('header', g.headers[j], w.headers[j])
    })
  })
}

function same (a, b) {
  return a === null || b === null ? a === b : Buffer.compare(a, b) === 0
}

function show (b) {
  return b === null ? 'null' : JSON.stringify(b?.toString('latin1').slice(0, 40))
}
