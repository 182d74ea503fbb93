import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { PADDING } from '../../meter/splitter.ts'
import { TextWriter } from '../../meter/text-writer.ts'

/** Reads back what a writer wrote: the texts, the number of loads, and of texts that were cut. */
function read(texts: string[], size: number): { texts: string[]; loads: number; cut: number } {
  const memory = new Uint8Array(new SharedArrayBuffer(size))
  const writer = new TextWriter(texts)
  const seen: string[] = []
  let loads = 0
  let cut = 0
  let part = ''
  while (!writer.done) {
    const load = writer.write(memory)
    if (!load) continue
    loads++
    assert.equal(load.continued, part !== '')
    let at = 0
    load.lengths.forEach((length, i) => {
      part += Buffer.from(memory.slice(at, at + length)).toString('utf8')
      at += length + PADDING
      assert.ok(at <= size, 'there is room behind each text')
      if (load.open && i === load.lengths.length - 1) return
      if (load.continued && i === 0) cut++
      seen.push(part)
      part = ''
    })
  }
  assert.equal(part, '')
  return { texts: seen, loads, cut }
}

test('texts arrive whole and in order, whatever fits into the memory (1000 cases)', () => {
  const letters = fc.array(fc.constantFrom('a', 'é', '漢', '😀', '\ud83d', 'word '), { maxLength: 60 })
  fc.assert(
    fc.property(
      fc.array(
        letters.map(all => all.join('')),
        { maxLength: 20 },
      ),
      fc.integer({ min: PADDING + 4, max: 300 }),
      (texts, size) => {
        assert.deepEqual(
          read(texts, size).texts,
          texts.map(text => text.toWellFormed()),
        )
      },
    ),
    { numRuns: 1000 },
  )
})

test('a text that fits is never cut: it begins again in the next load', () => {
  const room = 64
  assert.deepEqual(read(['a'.repeat(40), 'b'.repeat(room), 'c'], room + PADDING), {
    texts: ['a'.repeat(40), 'b'.repeat(room), 'c'],
    loads: 3,
    cut: 0,
  })
  assert.equal(read(['a'.repeat(room + 1)], room + PADDING).cut, 1)
})

test('a long text takes several turns, and a surrogate pair stays in one', () => {
  const memory = new Uint8Array(new SharedArrayBuffer(1 << 23))
  const text = `x${'😀'.repeat(1 << 20)}`
  const writer = new TextWriter([text])
  let turns = 1
  let load = writer.write(memory)
  for (; !load; turns++) load = writer.write(memory)
  assert.ok(turns > 1, `${turns} turns`)
  assert.deepEqual(load, { lengths: [1 + (4 << 20)], continued: false, open: false })
  assert.equal(Buffer.from(memory.slice(0, load.lengths[0])).toString('utf8'), text)
})
