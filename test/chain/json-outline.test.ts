/**
 * The value of a text, made from the value of one that shares most of its bytes: JSON.parse is the oracle, and JsonBytes
 * for what is counted.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { JsonBytes } from '../../core/tools/json-bytes.ts'
import { commonLength, JsonOutline } from '../../core/tools/json-outline.ts'
import { Random } from '../random.ts'

const ALL = { bytes: Number.POSITIVE_INFINITY, respelled: Number.POSITIVE_INFINITY }
const bytesOf = (text: string): Buffer => Buffer.from(`"""${text}`).subarray(3)

function parsed(bytes: Uint8Array): Record<string, unknown> | undefined {
  try {
    const value = JSON.parse(Buffer.from(bytes).toString('utf8'))
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** A body in pieces of text: whoever edits it puts other pieces in their place. */
class Pieces {
  readonly #random: Random
  constructor(random: Random) {
    this.#random = random
  }

  space(): string {
    return this.#random.chance(0.8) ? '' : this.#random.one([' ', '\n', '\t', '\r\n  '])
  }
  text(): string {
    const { one, below } = this.#random
    const parts = Array.from({ length: below(5) }, () =>
      one.call(this.#random, [
        ...[
          'a',
          'é',
          '😀',
          '\\u00e9',
          '\\n',
          '\\\\',
          '\\"',
          '{',
          '[',
          ']',
          '}',
          ',',
          ':',
          '\\ud83d',
          '"'.length ? 'word ' : '',
        ],
        ...['x'.repeat(47), 'x'.repeat(200), '\\/', 'y'.repeat(17_000)].slice(0, below(40) === 0 ? 4 : 3),
      ]),
    )
    return `"${parts.join('')}"`
  }
  value(depth = 0): string {
    const kind = this.#random.below(depth > 3 ? 4 : 6)
    if (kind === 0) return this.text()
    if (kind === 1) return this.#random.one(['0', '-0', '1.10', '1e3', '123456789012345678', '40', '409', '1.5'])
    if (kind === 2) return this.#random.one(['true', 'false', 'null'])
    if (kind === 3) return this.text()
    if (kind === 4) return this.list(Array.from({ length: this.#random.below(3) }, () => this.value(depth + 1)))
    return this.object(depth + 1)
  }
  object(depth = 0): string {
    const names = ['role', 'content', 'a', '__proto__', '1', 'mess\\u0061ges', 'role']
    const members = Array.from(
      { length: this.#random.below(4) },
      () => `"${this.#random.one(names)}"${this.space()}:${this.space()}${this.value(depth)}`,
    )
    return `{${this.space()}${members.join(`${this.space()},${this.space()}`)}${this.space()}}`
  }
  list(elements: string[]): string {
    return `[${this.space()}${elements.join(`${this.space()},${this.space()}`)}${this.space()}]`
  }
}

interface Body {
  members: [name: string, value: string | string[]][]
}

const write = (body: Body, pieces: Pieces) =>
  `{${body.members
    .map(([name, value]) => `"${name}":${typeof value === 'string' ? value : pieces.list(value)}`)
    .join(',')}}`

function madeBody(random: Random, pieces: Pieces): Body {
  const members: Body['members'] = [['model', '"m"']]
  const objects = (most: number) => Array.from({ length: random.below(most) }, () => pieces.object())
  members.push(['messages', objects(12)])
  if (random.chance(0.7)) members.push(['tools', objects(6)])
  if (random.chance(0.7)) members.push(['max_tokens', random.one(['4', '40', '4.0'])])
  if (random.chance(0.3)) members.push([random.one(['stop', 'n', 'messages', '__proto__', 'a\\u0062']), pieces.value()])
  return { members: random.chance(0.5) ? members : random.shuffled(members) }
}

function edited({ members }: Body, random: Random, pieces: Pieces): Body {
  const copy: Body['members'] = members.map(([name, value]) => [name, typeof value === 'string' ? value : [...value]])
  const at = random.below(copy.length)
  const member = copy[at]!
  const list = member[1]
  if (typeof list !== 'string') {
    const i = random.below(list.length + 1)
    const kind = random.below(6)
    if (kind < 3) list.push(pieces.object())
    else if (kind === 3) list.splice(i, 0, random.chance(0.8) ? pieces.object() : pieces.value())
    else if (kind === 4) list.splice(i)
    else list[Math.max(0, i - 1)] = pieces.object()
  } else {
    const kind = random.below(6)
    if (kind < 3) member[1] = pieces.value()
    else if (kind === 3) copy.splice(at, 1)
    else if (kind === 4) copy.splice(at, 0, [random.one(['seed', 'model', 'messages']), pieces.value()])
    else copy.push(copy.splice(at, 1)[0]!)
  }
  return { members: copy }
}

/** A few bytes are other ones, anywhere: the text need be no JSON. */
function damaged(bytes: Buffer, random: Random): Buffer {
  const at = random.below(bytes.length + 1)
  const insert = Buffer.from(random.one(['"', '\\', ',', '}', ']', '[', '{', ' ', '\v', '1', 'x', '\ufeff', '"a":1,']))
  const raw = random.chance(0.1) ? Buffer.from([random.below(256)]) : insert
  return Buffer.concat([bytes.subarray(0, at), raw, bytes.subarray(at + random.below(4))])
}

function check(outline: JsonOutline): void {
  const value = parsed(outline.bytes)
  assert.ok(value, 'what JSON.parse refuses has no outline')
  assert.deepStrictEqual(outline.value, value)
  assert.equal(JSON.stringify(outline.value), JSON.stringify(value), 'members in their order')
  const shape = new JsonBytes(outline.bytes)
  shape.readAll()
  const { nodes, deepest, longBytes } = outline
  const respelled = shape.respelled === 1 ? 0 : shape.respelled
  assert.deepEqual(
    { nodes, deepest, respelled: outline.respelled, longBytes },
    {
      nodes: shape.nodes,
      deepest: shape.deepest,
      respelled,
      longBytes: shape.long.reduce((n, l) => n + l.to - l.from, 0),
    },
  )
}

test('the value of an edited text is what JSON.parse makes of it, wherever the edit is', () => {
  let outlined = 0
  for (let seed = 0; seed < 3000; seed++) {
    const random = new Random(seed)
    const pieces = new Pieces(random)
    let body = madeBody(random, pieces)
    let bytes: Buffer = bytesOf(write(body, pieces))
    const first = parsed(bytes)
    let outline = first && JsonOutline.of(bytes, first)
    if (outline) check(outline)
    for (let turn = 0; turn < 4 && outline; turn++) {
      body = edited(body, random, pieces)
      bytes = bytesOf(write(body, pieces))
      if (random.chance(0.3)) bytes = damaged(bytes, random)
      const next: JsonOutline | undefined = outline.next(bytes, ALL)
      if (next) {
        outlined++
        check(next)
        outline = next
      }
    }
  }
  assert.ok(outlined > 2000, `${outlined} texts were made from the one before`)
})

const message = (text: string) => ({ role: 'user', content: text, at: [{ a: 1 }] })
const tools = [{ name: 'a', parameters: {} }, { name: 'b' }]

test('what is in both texts is one object; what is new is not', () => {
  const messages = [message('1'), message('2'), message('3')]
  const body = { model: 'm', messages, tools, max_tokens: 40 }
  const bytes = Buffer.from(JSON.stringify(body))
  const outline = JsonOutline.of(bytes, JSON.parse(bytes.toString()))!
  const turn = { ...body, messages: [...messages, message('4')] }
  const next = outline.next(Buffer.from(JSON.stringify(turn)), ALL)!
  assert.deepEqual(next.value, turn)
  const [was, is] = [outline.value as typeof body, next.value as typeof body]
  assert.deepEqual(
    is.messages.map((one, i) => one === was.messages[i]),
    [true, true, true, false],
  )
  assert.equal(is.tools, was.tools)
  assert.notEqual(is, was)
  assert.equal(next.lost, 1, 'the bracket')

  const other = next.next(
    Buffer.from(JSON.stringify({ ...turn, tools: [...tools, { name: 'c' }], max_tokens: 41 })),
    ALL,
  )!
  const has = other.value as typeof body
  assert.deepEqual(
    has.messages.map((one, i) => one === is.messages[i]),
    [true, true, true, true],
  )
  assert.deepEqual([has.tools[1] === is.tools[1], has.tools.length, has.max_tokens], [true, 3, 41])
})

test('a number that goes on in the other text is another number', () => {
  const bytes = Buffer.from('{"a":40,"b":[{"c":1}],"d":1}')
  const outline = JsonOutline.of(bytes, JSON.parse(bytes.toString()))!
  const next = outline.next(Buffer.from('{"a":409,"b":[{"c":1},{"c":2}],"d":12}'), ALL)!
  assert.deepEqual(next.value, { a: 409, b: [{ c: 1 }, { c: 2 }], d: 12 })
})

for (const text of ['{"a\\u0062":1}', '{"a":1,"a":2}', '{"__proto__":{"a":1}}', '\ufeff{"a":1}', '[1]'])
  test(`a text that is written in a rare way has no outline: ${JSON.stringify(text)}`, () => {
    const value = JSON.parse(text.replace('\ufeff', ''))
    assert.equal(JsonOutline.of(Buffer.from(text), value), undefined)
  })

test('what would be read anew is bounded, and numbers that must keep their spelling are left to others', () => {
  const bytes = Buffer.from(JSON.stringify({ messages: [message('1')], a: 1 }))
  const outline = JsonOutline.of(bytes, JSON.parse(bytes.toString()))!
  const long = Buffer.from(JSON.stringify({ messages: [message('1'), message('x'.repeat(100))], a: 1 }))
  assert.ok(outline.next(long, { ...ALL, bytes: 200 }))
  assert.equal(outline.next(long, { ...ALL, bytes: 100 }), undefined)
  const spelled = Buffer.from('{"messages":[{"role":"user","content":"1","at":[{"a":1}]},{"b":{"c":1.10}}],"a":1}')
  assert.equal(outline.next(spelled, ALL)!.respelled, 4)
  assert.ok(outline.next(spelled, { ...ALL, respelled: 4 }))
  assert.equal(outline.next(spelled, { ...ALL, respelled: 3 }), undefined)
})

test('the length of what two texts have in common', () => {
  const random = new Random(7)
  for (let i = 0; i < 500; i++) {
    const length = random.below(random.one([10, 100, 70_000]))
    const a = Buffer.alloc(length + random.below(5), 'a')
    const b = Buffer.alloc(length + random.below(5), 'a')
    const at = random.below(length + 1)
    if (at < b.length) b[at] = 0x62
    const common = at < b.length ? Math.min(at, a.length) : Math.min(a.length, b.length)
    assert.equal(commonLength(a, 0, b, 0), common)
    const from = random.below(common + 1)
    assert.equal(commonLength(a, from, b, from), common - from)
  }
})
