import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { MalformedResponse, ResponseParser } from '../../plugins/upstream/http1/parser.ts'

interface Seen {
  status: number
  headers: Record<string, string | string[]>
  keepAlive: boolean
  body: string
  ends: number
  fault: string | null
}

/** What a parser makes of a response that comes in these pieces; `closes`: then the peer closes. */
function parse(pieces: Buffer[], { method = 'POST', closes = false } = {}): Seen {
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
    for (const piece of pieces) parser.execute(piece)
    if (closes) parser.close()
  } catch (error) {
    assert.ok(error instanceof MalformedResponse)
    seen.fault = error.message
  }
  return seen
}
const whole = (text: string, options = {}) => parse([Buffer.from(text, 'latin1')], options)

const GOOD: [string, string, { status: number; body: string; keepAlive: boolean }, object?][] = [
  [
    'content-length',
    'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello',
    { status: 200, body: 'hello', keepAlive: true },
  ],
  ['no reason phrase', 'HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n', { status: 200, body: '', keepAlive: true }],
  [
    'chunked',
    'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n',
    { status: 200, body: 'hello world', keepAlive: true },
  ],
  [
    'chunked with trailers',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\nx-t: 1\r\ny: 2\r\n\r\n',
    { status: 200, body: '0123456789', keepAlive: true },
  ],
  [
    'interim responses',
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 201 C\r\ncontent-length: 1\r\n\r\nx',
    { status: 201, body: 'x', keepAlive: true },
  ],
  ['204', 'HTTP/1.1 204 No Content\r\n\r\n', { status: 204, body: '', keepAlive: true }],
  ['304 with a length', 'HTTP/1.1 304 NM\r\ncontent-length: 9\r\n\r\n', { status: 304, body: '', keepAlive: true }],
  [
    'connection: close',
    'HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length: 1\r\n\r\nx',
    { status: 200, body: 'x', keepAlive: false },
  ],
  [
    'until close',
    'HTTP/1.1 200 OK\r\n\r\nall of it',
    { status: 200, body: 'all of it', keepAlive: false },
    { closes: true },
  ],
  ['HTTP/1.0', 'HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx', { status: 200, body: 'x', keepAlive: false }],
  [
    'HTTP/1.0 keep-alive',
    'HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\nx',
    { status: 200, body: 'x', keepAlive: true },
  ],
  [
    'HEAD',
    'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n',
    { status: 200, body: '', keepAlive: true },
    { method: 'HEAD' },
  ],
  [
    'equal lengths twice',
    'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok',
    { status: 200, body: 'ok', keepAlive: true },
  ],
]

for (const [name, text, expected, options] of GOOD) {
  test(`reads ${name}, however it is split`, () => {
    const bytes = Buffer.from(text, 'latin1')
    const check = (pieces: Buffer[]) => {
      const { status, body, keepAlive, ends, fault } = parse(pieces, options)
      assert.deepEqual({ status, body, keepAlive, ends, fault }, { ...expected, ends: 1, fault: null })
    }
    check([bytes])
    check([...bytes].map(b => Buffer.from([b])))
    for (let cut = 1; cut < bytes.length; cut++) check([bytes.subarray(0, cut), bytes.subarray(cut)])
  })
}

const BAD: [string, string][] = [
  ['two framings', 'HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n'],
  ['two different lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello'],
  ['a list of lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\nhello'],
  ['a signed length', 'HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello'],
  ['an empty length', 'HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\nhello'],
  ['a huge length', 'HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999\r\n\r\n'],
  ['another coding', 'HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n'],
  ['a bad chunk size', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n'],
  ['an empty chunk size', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\r\n'],
  ['a 0x chunk size', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0x5\r\nhello\r\n'],
  ['a huge chunk size', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n'],
  ['a chunk without CRLF', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhelloX'],
  ['a size line with a bare LF', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\nhello\r\n'],
  ['bytes after the end', 'HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n\r\n'],
  ['no colon', 'HTTP/1.1 200 OK\r\nnocolon\r\n\r\n'],
  ['an empty name', 'HTTP/1.1 200 OK\r\n: x\r\n\r\n'],
  ['a space before the colon', 'HTTP/1.1 200 OK\r\nname : x\r\n\r\n'],
  ['a folded line', 'HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n'],
  ['a control character', 'HTTP/1.1 200 OK\r\na: b\0c\r\n\r\n'],
  ['a bare LF in a head', 'HTTP/1.1 200 OK\r\na: b\nc: d\r\n\r\n'],
  ['not HTTP', 'SSH-2.0-OpenSSH\r\n\r\n'],
  ['HTTP/2', 'HTTP/2 200\r\n\r\n'],
  ['a bad status', 'HTTP/1.1 2x0 OK\r\n\r\n'],
  ['a switch of protocols', 'HTTP/1.1 101 SP\r\n\r\n'],
  ['a flood of interim responses', 'HTTP/1.1 100 C\r\n\r\n'.repeat(1000)],
  ['an endless head', `HTTP/1.1 200 OK\r\n${'a: b\r\n'.repeat(20_000)}`],
]
for (const [name, text] of BAD) {
  test(`refuses ${name}, however it is split`, () => {
    assert.ok(whole(text).fault, 'whole')
    const bytes = Buffer.from(text.slice(0, 4000), 'latin1')
    if (bytes.length < 4000) assert.ok(parse([...bytes].map(b => Buffer.from([b]))).fault, 'byte by byte')
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
    const refused = 'malformed response: a header name is not a token'
    // A colon ends the name.
    if (byte !== ':') {
      for (const name of [`${byte}ate`, `dat${byte}`, `x${byte}y`])
        assert.equal(fault(`${name}: v`), token.test(byte) ? null : refused, JSON.stringify(name))
    }
    const control = (c < 0x20 && byte !== '\t') || c === 0x7f
    for (const line of [`date: a${byte}b`, `x-other: a${byte}b`])
      assert.equal(
        fault(line),
        control ? 'malformed response: a header value has control characters' : null,
        JSON.stringify(line),
      )
  }
  assert.equal(whole('HTTP/1.1 200 OK\r\nno\0colon\r\n\r\n').fault, 'malformed response: a header line has no colon')
})

test('a connection that closes early is a fault, at every byte', () => {
  for (const text of [
    'HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello',
    'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n',
  ]) {
    for (let cut = 0; cut < text.length; cut++) {
      const seen = parse([Buffer.from(text.slice(0, cut))], { closes: true })
      assert.ok(seen.fault, `closed after ${cut} bytes`)
      assert.equal(seen.ends, 0)
    }
  }
})

test('any body in any chunks and any pieces comes out the same', () => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ minLength: 1, maxLength: 50 }), { maxLength: 8 }),
      fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1 }),
      (chunks, cuts) => {
        const parts: Buffer[] = [Buffer.from('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n')]
        for (const chunk of chunks)
          parts.push(Buffer.from(`${chunk.length.toString(16)}\r\n`), Buffer.from(chunk), Buffer.from('\r\n'))
        parts.push(Buffer.from('0\r\n\r\n'))
        const bytes = Buffer.concat(parts)
        const pieces: Buffer[] = []
        for (let at = 0, i = 0; at < bytes.length; i++) {
          const size = cuts[i % cuts.length]!
          pieces.push(bytes.subarray(at, at + size))
          at += size
        }
        const seen = parse(pieces)
        assert.equal(seen.fault, null)
        assert.equal(seen.ends, 1)
        assert.equal(seen.body, Buffer.concat(chunks.map(c => Buffer.from(c))).toString('latin1'))
      },
    ),
    { numRuns: 300 },
  )
})
