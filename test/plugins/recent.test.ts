/** Recent conversations: which are found, which are given up, and what is written again of their bodies. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { InOrder } from '../../core/tools/in-order.ts'
import { JsonAgain } from '../../plugins/shared/json-again.ts'
import { RecentConversations } from '../../plugins/shared/recent.ts'
import { joined, type Pieces, Verbatim } from '../../plugins/shared/verbatim.ts'
import { Random } from '../random.ts'

const ROOM = { bytes: Number.POSITIVE_INFINITY, organization_bytes: Number.POSITIVE_INFINITY }
const EVERYTHING = { bytes: Number.POSITIVE_INFINITY, respelled: Number.POSITIVE_INFINITY }

/** Requests to one process. */
class Process {
  readonly recent = new RecentConversations()
  bounds = ROOM
  now = 0

  /** @returns whether the body was the next turn of a conversation */
  turn(texts: readonly string[], organization = 'acme', kind = 'chat'): boolean {
    const body = Buffer.from(JSON.stringify({ messages: texts.map(text => ({ text })) }))
    const sought = this.recent.seek(organization, kind, body)!
    const outline = sought.found?.outline?.next(body, EVERYTHING)
    const value = outline?.value ?? JSON.parse(body.toString())
    this.recent.keep(sought, body, value, outline, this.bounds, this.now)
    return outline !== undefined
  }

  /** The two turns from which on a conversation is kept. */
  begin(texts: readonly string[], organization = 'acme'): void {
    this.turn(texts, organization)
    this.turn(texts, organization)
  }
}

const said = (seed: number, bytes = 10_000) => new Random(seed).text(bytes)

test('a conversation is found by its beginning, and goes on from its last turn', () => {
  const process = new Process()
  const [one, two] = [[said(1)], [said(2)]]
  assert.deepEqual([process.turn(one), process.turn(two)], [false, false])
  assert.ok(process.recent.bytes < 10_000, 'of the first turn nothing is kept that has its texts')
  assert.deepEqual([process.turn(one), process.turn(two)], [false, false])
  const held = process.recent.bytes
  for (let i = 0; i < 5; i++) {
    one.push(said(10 + i, 2000))
    two.push(said(20 + i, 2000))
    assert.deepEqual([process.turn(one), process.turn(two)], [true, true])
  }
  // Each holds its last body alone.
  assert.ok(process.recent.bytes > held && process.recent.bytes < 2.5 * held, `${process.recent.bytes}, first ${held}`)
  assert.ok(process.recent.sharedBytes > 100_000)
})

test('two that go on from one beginning are both kept', () => {
  const process = new Process()
  const begin = [said(1, 20_000)]
  const [left, right] = [
    [...begin, said(2, 30_000)],
    [...begin, said(3, 30_000)],
  ]
  process.begin(left)
  process.begin(right)
  const shared = () => {
    const before = process.recent.sharedBytes
    process.turn(left)
    const of = process.recent.sharedBytes - before
    return of > 50_000
  }
  assert.ok(shared())
  process.turn(right)
  assert.ok(shared(), 'the other one has not taken its place')
})

test('what an organization keeps is bounded, and what is idle is given up', () => {
  const process = new Process()
  process.bounds = { bytes: 200_000, organization_bytes: 100_000 }
  for (let i = 0; i < 20; i++) process.begin([said(i)])
  assert.ok(process.recent.bytes <= 100_000, `${process.recent.bytes} bytes`)
  assert.ok(process.turn([said(19)]), 'the last one is still there')
  assert.ok(!process.turn([said(0)]))
  for (let i = 0; i < 20; i++) process.begin([said(i)], `organization ${i}`)
  assert.ok(process.recent.bytes > 100_000 && process.recent.bytes <= 200_000, `${process.recent.bytes} bytes`)
  process.now = 11 * 60_000
  process.turn([said(50)])
  assert.ok(process.recent.bytes < 40_000, `${process.recent.bytes} bytes`)
  process.recent.clear()
  assert.equal(process.recent.bytes, 0)
  assert.ok(!process.turn([said(50)]))
})

test('what was used last is given up last', () => {
  const process = new Process()
  process.bounds = { bytes: 100_000, organization_bytes: 100_000 }
  const kept = [said(1)]
  process.begin(kept)
  for (let i = 2; i < 12; i++) {
    process.begin([said(i)])
    assert.ok(process.turn(kept), `after ${i}`)
  }
})

test('while load is shed no conversation is begun, and those that are known go on', () => {
  const process = new Process()
  process.begin([said(1)])
  process.turn([said(3)])
  process.recent.pressed = () => true
  process.begin([said(2)])
  process.turn([said(3)])
  assert.ok(!process.turn([said(2)]) && !process.turn([said(3)]))
  assert.ok(process.turn([said(1), 'more']))
  assert.ok(process.turn([said(1), 'more', 'and more']))
})

test('a small body and a huge one are not kept', () => {
  const { recent } = new Process()
  assert.equal(recent.seek('acme', 'chat', Buffer.alloc(8191)), undefined)
  assert.ok(recent.seek('acme', 'chat', Buffer.alloc(8192)))
  assert.equal(recent.seek('acme', 'chat', Buffer.alloc((4 << 20) + 1)), undefined)
})

// ---- written again --------------------------------------------------------------------------------------------------

const { rawJSON } = JSON as unknown as { rawJSON(text: string): object }

function element(random: Random): object {
  const shared = random.one([
    undefined,
    rawJSON('1.10'),
    { rawJSON: '1.10' },
    1.1,
    [1],
    { 0: 1 },
    'x',
    '',
    null,
    [],
    {},
  ])
  const text = random.one(['a', 'é', 'lone \ud83d', '😀', '"', 'x'.repeat(300)])
  const made: Record<string, unknown> = random.chance(0.5) ? { text, shared } : { shared, text }
  if (random.chance(0.2)) made['more'] = [{ text: [shared] }]
  return made
}

test('a body is what JSON.stringify writes, whatever was written before it, and what was sent stays as it was', () => {
  for (let seed = 0; seed < 400; seed++) {
    const random = new Random(seed)
    const again = new JsonAgain()
    const sent: { bytes: Buffer; pieces: Pieces[]; wanted: string }[] = []
    let messages = Array.from({ length: random.below(6) }, () => element(random))
    for (let turn = 0; turn < 6; turn++) {
      const kind = random.below(6)
      messages = messages.map(one => (random.chance(0.5) ? structuredCloneOf(one) : one))
      if (kind < 3) messages = [...messages, element(random)]
      else if (kind === 3) messages = messages.slice(0, random.below(messages.length + 1))
      else if (messages.length > 0) messages[random.below(messages.length)] = element(random)
      const body = {
        model: 'm',
        messages,
        stop: ['a'],
        none: [],
        gone: undefined,
        ...(turn > 2 && { tools: [{ a: 1 }] }),
      }
      const marks = new Verbatim()
      const pieces: Pieces[] = []
      const json = again.write(body, inserted => {
        pieces.push(inserted)
        return marks.insert(inserted)
      })
      const wanted = JSON.stringify(body).replaceAll('\\ud83d', '\ufffd')
      assert.equal(joined(marks.pieces(json)).toString(), wanted, `seed ${seed}, turn ${turn}`)
      sent.push({ bytes: Buffer.concat(pieces.map(one => joined(one) as Buffer)), pieces, wanted })
    }
    // What was given to a connection may be sent much later.
    for (const { bytes, pieces } of sent)
      assert.ok(bytes.equals(Buffer.concat(pieces.map(one => joined(one) as Buffer))), `seed ${seed}`)
  }
})

/** A copy that keeps numbers as they are spelled. */
function structuredCloneOf(value: unknown): any {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value
  if (Array.isArray(value)) return value.map(structuredCloneOf)
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, structuredCloneOf(inner)]))
}

test('an element that is there again is not written again', () => {
  const again = new JsonAgain()
  const first = Array.from({ length: 20 }, (_, i) => ({ i }))
  const written: Uint8Array[] = []
  const write = (messages: object[]) =>
    again.write({ messages }, ([bytes]) => String(written.push(bytes as Uint8Array)))
  write(first)
  write([...first, { i: 20 }])
  assert.equal(written[0]!.buffer, written[1]!.buffer, 'the new one stands behind the old ones')
  write([...first.slice(0, 5), { i: 21 }])
  assert.notEqual(written[1]!.buffer, written[2]!.buffer)
})

test('values in order: what is the same is found, whatever came in or went out', () => {
  const values = new InOrder<string, number>()
  const find = (keys: string) => {
    values.begin()
    const found = [...keys].map(key => values.find(key))
    for (const key of keys) values.add(key, key.charCodeAt(0))
    return found.map((value, i) => value === keys.charCodeAt(i))
  }
  assert.deepEqual(find('abcd'), [false, false, false, false])
  assert.deepEqual(find('abcde'), [true, true, true, true, false])
  assert.deepEqual(find('abxcde'), [true, true, false, true, true, true])
  assert.deepEqual(find('abcde'), [true, true, true, true, true])
  assert.deepEqual(find('aycde'), [true, false, true, true, true])
  values.begin()
  assert.equal(values.find('a'), 97)
  values.begin()
  assert.equal(values.find('a'), 97, 'what was added stays until something is added again')
})
