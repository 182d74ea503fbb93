import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MalformedResponse, ResponseParser } from '../../plugins/upstream/http1/parser.ts'
import { type Fault, type Vector, vectors, type Whole } from './http1-vectors.ts'

interface Seen {
  status: number
  headers: Record<string, string | string[]>
  keepAlive: boolean
  body: string
  ends: number
  fault: string | null
}

/** What a parser makes of a response that comes in these pieces; `closes`: then the peer closes. */
function parse(
  pieces: Buffer[],
  { method = 'POST', closes = false }: Pick<Vector, 'closes'> & { method?: string } = {},
): Seen {
  const seen: Seen = { status: 0, headers: {}, keepAlive: false, body: '', ends: 0, fault: null }
  const parser = new ResponseParser({
    head(status, headers, keepAlive) {
      Object.assign(seen, { status, headers: { ...headers }, keepAlive })
    },
    body: chunk => void (seen.body += chunk.toString('latin1')),
    end: () => void seen.ends++,
  })
  parser.begin(method)
  try {
    for (const piece of pieces) parser.execute(Buffer.from(piece))
    if (closes) parser.close()
  } catch (error) {
    assert.ok(error instanceof MalformedResponse)
    seen.fault = error.message
  }
  return seen
}
const whole = (text: string, options = {}) => parse([Buffer.from(text, 'latin1')], options)

/** The same in the words of the vectors; `open` when the reply goes on. */
function outcome(pieces: Buffer[], vector: Pick<Vector, 'method' | 'closes'>): Whole | Fault | 'open' {
  const { status, body, keepAlive, ends, fault } = parse(pieces, vector)
  if (ends === 1) return { status, body, kept: keepAlive && fault === null }
  assert.equal(ends, 0)
  if (fault === null) return 'open'
  return fault === 'malformed response: the connection closed before the response was whole' ? 'cut' : 'malformed'
}

for (const vector of vectors) {
  test(`${vector.name}, however it is split`, () => {
    const bytes = Buffer.from(vector.bytes, 'latin1')
    assert.deepEqual(outcome([bytes], vector), vector.want)
    const cuts = bytes.length < 2000 ? bytes.length : 0
    if (cuts > 0) {
      const each = [...bytes].map(byte => Buffer.from([byte]))
      assert.deepEqual(outcome(each, vector), vector.want, 'byte by byte')
    }
    for (let cut = 1; cut < cuts; cut++)
      assert.deepEqual(outcome([bytes.subarray(0, cut), bytes.subarray(cut)], vector), vector.want, `cut at ${cut}`)
  })
}

test('of the headers, those that are read are kept, in any case and any pieces; the others are only checked', () => {
  const text = [
    'HTTP/1.1 200 OK',
    'CONTENT-Type:\t text/event-stream; charset=utf-8 ',
    'x-request-id: 1',
    'Content-Encoding:gzip',
    'dat\u0045: Sun, 22 Nov 2026 05:00:00 GMT',
    'etag: "1"',
    'Retry-After: 1',
    'retry-after: ',
    'RETRY-AFTER: 3',
    'retry-after-mS: caf\u00e9',
    'Keep-Alive: timeout=5',
    'content-length: 0',
    '',
    '',
  ].join('\r\n')
  const expected = {
    'content-type': 'text/event-stream; charset=utf-8',
    'content-encoding': 'gzip',
    'keep-alive': 'timeout=5',
    'retry-after': ['1', '', '3'],
    'retry-after-ms': 'caf\u00e9',
    date: 'Sun, 22 Nov 2026 05:00:00 GMT',
  }
  const bytes = Buffer.from(text, 'latin1')
  for (let cut = 0; cut < bytes.length; cut++) {
    const { headers, fault } = parse([bytes.subarray(0, cut), bytes.subarray(cut)])
    assert.deepEqual({ ...headers }, expected)
    assert.equal(fault, null)
  }
})

test('a header line is a token, a colon, and no control character: of any byte in any place', () => {
  const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]$/
  for (let c = 0; c < 256; c++) {
    const byte = String.fromCharCode(c)
    const fault = (line: string) => whole(`HTTP/1.1 200 OK\r\n${line}\r\ncontent-length: 0\r\n\r\n`).fault
    const refused = 'malformed response: a header line is not a name, a colon and a value'
    // A colon ends the name.
    if (byte !== ':') {
      for (const name of [`${byte}ate`, `dat${byte}`, `x${byte}y`])
        assert.equal(fault(`${name}: v`), token.test(byte) ? null : refused, JSON.stringify(name))
    }
    const control = (c < 0x20 && byte !== '\t') || c === 0x7f
    for (const line of [`date: a${byte}b`, `x-other: a${byte}b`])
      assert.equal(
        fault(line),
        control ? 'malformed response: a line has control characters' : null,
        JSON.stringify(line),
      )
  }
})

test('a connection that closes early is a fault, at every byte of every whole reply with an end of its own', () => {
  for (const { name, bytes, want, method, closes } of vectors) {
    if (typeof want === 'string' || closes || !want.kept || bytes.length > 2000) continue
    for (let cut = 0; cut < bytes.length; cut++)
      assert.equal(
        outcome([Buffer.from(bytes.slice(0, cut), 'latin1')], { method, closes: true }),
        'cut',
        `${name}: ${cut}`,
      )
  }
})
