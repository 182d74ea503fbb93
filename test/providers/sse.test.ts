import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { FrameLimit } from '../../core/ports/dialect.ts'
import { SseReader } from '../../providers/sse.ts'

type Event = [event: string, data: string]

function read(chunks: Iterable<Uint8Array>, limit?: number): Event[] {
  const events: Event[] = []
  const reader = new SseReader(limit)
  for (const chunk of chunks) reader.push(chunk, (event, data) => events.push([event, data]))
  reader.end((event, data) => events.push([event, data]))
  return events
}
const bytes = (text: string) => Buffer.from(text, 'utf8')
const whole = (text: string) => read([bytes(text)])
function* oneByOne(data: Uint8Array): Generator<Uint8Array> {
  for (let i = 0; i < data.length; i++) yield data.subarray(i, i + 1)
}

const cases: [name: string, stream: string, events: Event[]][] = [
  ['one event', 'data: {"a":1}\n\n', [['', '{"a":1}']]],
  ['a named event', 'event: ping\ndata: x\n\n', [['ping', 'x']]],
  [
    'the name is for one event only',
    'event: a\ndata: 1\n\ndata: 2\n\n',
    [
      ['a', '1'],
      ['', '2'],
    ],
  ],
  ['the last name counts', 'event: a\nevent: b\ndata: 1\n\n', [['b', '1']]],
  [
    'CRLF',
    'event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n',
    [
      ['a', '1'],
      ['', '2'],
    ],
  ],
  [
    'CR',
    'event: a\rdata: 1\r\rdata: 2\r\r',
    [
      ['a', '1'],
      ['', '2'],
    ],
  ],
  [
    'mixed line ends',
    'data: 1\r\n\ndata: 2\r\r\ndata: 3\n\r\n',
    [
      ['', '1'],
      ['', '2'],
      ['', '3'],
    ],
  ],
  ['BOM', '\ufeffdata: 1\n\n', [['', '1']]],
  [
    'a BOM later is text',
    'data: 1\n\n\ufeffdata: 2\n\ndata: \ufeff\n\n',
    [
      ['', '1'],
      ['', '\ufeff'],
    ],
  ],
  ['comments', ': hello\n\n:\ndata: 1\n: in between\n\n: bye\n\n', [['', '1']]],
  ['several data lines', 'data: a\ndata:\ndata: b\n\n', [['', 'a\n\nb']]],
  [
    'no space after the colon, and two',
    'data:1\n\ndata:  2\n\n',
    [
      ['', '1'],
      ['', ' 2'],
    ],
  ],
  ['only a space is dropped', 'data:\t1\n\n', [['', '\t1']]],
  ['a field without a colon', 'data\ndata: x\n\ndata\n\n', [['', '\nx']]],
  ['unknown fields', 'id: 7\nretry: 10\nfoo: bar\ndatax: no\neventx: no\ndat: no\ndata: 1\n\n', [['', '1']]],
  ['empty data', 'data:\n\ndata: \n\nevent: e\n\ndata: 1\n\n', [['', '1']]],
  ['an event without data does not name the next', 'event: a\n\ndata: 1\n\n', [['', '1']]],
  ['a colon in the value', 'data: a: b\n\n', [['', 'a: b']]],
  [
    'missing last blank line',
    'data: 1\n\ndata: 2\n',
    [
      ['', '1'],
      ['', '2'],
    ],
  ],
  [
    'missing last line end',
    'data: 1\n\nevent: x\ndata: [DONE]',
    [
      ['', '1'],
      ['x', '[DONE]'],
    ],
  ],
  [
    'cut in a character',
    'data: 1\n\ndata: \u00e4',
    [
      ['', '1'],
      ['', '\u00e4'],
    ],
  ],
  ['many blank lines', '\n\n\n\ndata: 1\n\n\n\n', [['', '1']]],
  ['NUL is kept', 'data: a\0b\n\n', [['', 'a\0b']]],
  ['wide characters', 'data: "\u00e4\u20ac\u{1f600}"\n\n', [['', '"\u00e4\u20ac\u{1f600}"']]],
  ['U+2028 is no line end', 'data: a\u2028b\u0085c\n\n', [['', 'a\u2028b\u0085c']]],
  ['nothing', '', []],
]

for (const [name, stream, events] of cases) {
  test(`sse: ${name}, whole, byte by byte, and cut in two anywhere`, () => {
    const data = bytes(stream)
    assert.deepEqual(read([data]), events)
    assert.deepEqual(read(oneByOne(data)), events)
    for (let i = 0; i <= data.length; i++) assert.deepEqual(read([data.subarray(0, i), data.subarray(i)]), events)
  })
}

test('sse: bytes that are no UTF-8 become U+FFFD, however they are split', () => {
  const data = Buffer.concat([
    bytes('data: a'),
    Buffer.from([0xf0, 0x9f, 0x98, 0xff, 0xc3]),
    bytes('b\n\ndata: '),
    Buffer.from([0xe2, 0x82]),
  ])
  const expected = read([data])
  assert.equal(expected[0]![1].replaceAll('\ufffd', ''), 'ab')
  assert.match(expected[0]![1], /^a\ufffd+b$/)
  assert.deepEqual(read(oneByOne(data)), expected)
})

test('sse: however a stream is split, the events are the same (property)', () => {
  const piece = fc.constantFrom(
    'data: ',
    'data',
    'event: ',
    ':',
    ' ',
    '\n',
    '\r',
    '\r\n',
    '\n\n',
    '\ufeff',
    'x',
    '{"a":1}',
    '\u00e9',
    '\u{1f600}',
    'id: 1',
    '\0',
  )
  const stream = fc
    .array(fc.oneof(piece, fc.string({ unit: 'binary', maxLength: 5 })), { maxLength: 40 })
    .map(parts => bytes(parts.join('')))
  const raw = fc.uint8Array({ maxLength: 60 }).map(array => Buffer.from(array))
  fc.assert(
    fc.property(fc.oneof(stream, raw), fc.array(fc.nat({ max: 200 }), { maxLength: 12 }), (data, cuts) => {
      const at = [0, ...cuts.map(cut => Math.min(cut, data.length)).sort((a, b) => a - b), data.length]
      const chunks = at.slice(1).map((end, i) => data.subarray(at[i], end))
      const expected = read([data])
      assert.deepEqual(read(chunks), expected)
      assert.deepEqual(read(oneByOne(data)), expected)
    }),
    { numRuns: 500, seed: 7 },
  )
})

test('sse: the reader keeps no bytes of a chunk', () => {
  const events: Event[] = []
  const reader = new SseReader()
  const chunk = bytes('data: first\n\ndata: sec')
  reader.push(chunk, (event, data) => events.push([event, data]))
  chunk.fill(0x58)
  reader.push(bytes('ond\n\n'), (event, data) => events.push([event, data]))
  assert.deepEqual(events, [
    ['', 'first'],
    ['', 'second'],
  ])
})

test('sse: a line over the cap is refused, at the cap it passes, however it comes', () => {
  const line = (length: number) => bytes(`data: ${'x'.repeat(length - 6)}\n\n`)
  for (const chunks of [(data: Buffer) => [data], (data: Buffer) => [...oneByOne(data)]]) {
    assert.equal(read(chunks(line(100)), 100).length, 1)
    assert.throws(
      () => read(chunks(line(101)), 100),
      (error: unknown) => error instanceof FrameLimit && error.limit === 100,
    )
  }
  assert.throws(() => read([bytes('x'.repeat(101))], 100), FrameLimit)
  assert.throws(() => read([bytes(`:${'x'.repeat(200)}\n`)], 100), FrameLimit)
  // Many lines in one chunk may be over the cap together.
  assert.equal(read([bytes('data: 1\n\n'.repeat(100))], 100).length, 100)
})

test('sse: the data of one event is capped, although each of its lines is short', () => {
  const endless = new SseReader(1000)
  const lines = bytes('data: xxxxxxxxxxxxxxxx\n'.repeat(10))
  assert.throws(() => {
    for (let i = 0; i < 100; i++) endless.push(lines, () => assert.fail('no event ends'))
  }, FrameLimit)
})

test('sse: the default cap takes a line of 5 MB in small pieces and refuses one of 50 MB', () => {
  const long = bytes(`data: ${'x'.repeat(5_000_000)}\n\n`)
  const events: Event[] = []
  const reader = new SseReader()
  for (let i = 0; i < long.length; i += 1000)
    reader.push(long.subarray(i, i + 1000), (event, data) => events.push([event, data]))
  assert.equal(events[0]![1].length, 5_000_000)
  const flood = Buffer.alloc(64 * 1024, 0x78)
  const refused = new SseReader()
  let pushed = 0
  assert.throws(() => {
    for (; pushed < 50_000_000; pushed += flood.length) refused.push(flood, () => assert.fail('no event ends'))
  }, FrameLimit)
  assert.ok(pushed <= 8 * 1024 * 1024 + flood.length)
})

// A reader whose work grows with the square would take many minutes: the runner's end of this file is the assertion.
test('sse: millions of empty events are read in linear time', () => {
  const empties = bytes('\n'.repeat(2_000_000))
  const named = bytes('event: x\n\n'.repeat(200_000))
  assert.deepEqual(read([empties, named, bytes('data: 1\n\n')]), [['', '1']])
  assert.deepEqual(read([...oneByOne(empties)].concat(bytes('data: 1\n\n'))), [['', '1']])
})

test('sse: events of a chunk come in order, and an error in the handler is passed on', () => {
  assert.deepEqual(
    whole('data: 1\n\ndata: 2\n\ndata: 3\n\n').map(([, data]) => data),
    ['1', '2', '3'],
  )
  const reader = new SseReader()
  assert.throws(
    () =>
      reader.push(bytes('data: 1\n\n'), () => {
        throw new RangeError('handler')
      }),
    RangeError,
  )
})
