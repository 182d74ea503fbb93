/**
 * Bytes that a client, a proxy or an attacker may send, and what each adapter makes of them. Classes as in RFC 9112's
 * section on request smuggling and in Http11Probe's list; the vectors are our own.
 */

export type Outcome =
  /** Answered with these statuses, and the connection still serves the next request. */
  | { kind: 'served'; statuses: number[] }
  /** Refused by us with the JSON of `refuse`, then closed. */
  | { kind: 'refused'; status: number; reason: string }
  /** Answered with this status, then closed. */
  | { kind: 'answered'; status: number }
  /** Answered by uWebSockets.js itself, in HTML, then closed. */
  | { kind: 'own'; status: number }
  /** Closed without an answer. */
  | { kind: 'dropped' }
  /** No answer; uWebSockets.js closes when its 10 s are up. */
  | { kind: 'late' }

export interface Vector {
  name: string
  bytes: string
  uws: Outcome
  node: Outcome
  /** Handler runs, as `METHOD /path`; default none. `both`, or one an adapter. Never `/smuggled`. */
  runs?: string[] | { uws: string[]; node: string[] }
}

const served = (...statuses: number[]): Outcome => ({ kind: 'served', statuses })
const refused = (reason: string, status = 400): Outcome => ({ kind: 'refused', status, reason })
const answered = (status: number): Outcome => ({ kind: 'answered', status })
const own = (status: number): Outcome => ({ kind: 'own', status })
const dropped: Outcome = { kind: 'dropped' }
const late: Outcome = { kind: 'late' }
const malformed = refused('malformed')

const get = (headers: string, path = '/read'): string => `GET ${path} HTTP/1.1\r\nHost: a\r\n${headers}\r\n`
const post = (headers: string, body: string): string => `POST /read HTTP/1.1\r\nHost: a\r\n${headers}\r\n${body}`
const chunked = (body: string): string => post('Transfer-Encoding: chunked\r\n', body)
/** What a smuggled request would look like. */
const tail = 'GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n'
const GET = ['GET /read']
const POST = ['POST /read']

export const vectors: readonly Vector[] = [
  // ---- plain ----
  { name: 'GET', bytes: get(''), uws: served(200), node: served(200), runs: GET },
  {
    name: 'POST with a length',
    bytes: post('Content-Length: 5\r\n', 'hello'),
    uws: served(200),
    node: served(200),
    runs: POST,
  },
  {
    name: 'POST in chunks',
    bytes: chunked('5\r\nhello\r\n0\r\n\r\n'),
    uws: answered(200),
    node: served(200),
    runs: POST,
  },
  {
    name: 'GET with a body',
    bytes: `${get('Content-Length: 5\r\n')}hello`,
    uws: served(200),
    node: served(200),
    runs: GET,
  },
  {
    name: 'a body nobody reads',
    bytes: `${get(`Content-Length: ${tail.length}\r\n`, '/sync')}${tail}`,
    uws: served(200),
    node: served(200),
    runs: ['GET /sync'],
  },
  {
    name: 'length with a leading zero',
    bytes: post('Content-Length: 05\r\n', 'hello'),
    uws: served(200),
    node: served(200),
    runs: POST,
  },
  {
    name: 'CHUNKED in capitals',
    bytes: post('Transfer-Encoding: CHUNKED\r\n', '5\r\nhello\r\n0\r\n\r\n'),
    uws: answered(200),
    node: served(200),
    runs: POST,
  },
  {
    name: 'tab before chunked',
    bytes: post('Transfer-Encoding:\tchunked\r\n', '5\r\nhello\r\n0\r\n\r\n'),
    uws: answered(200),
    node: served(200),
    runs: POST,
  },
  {
    name: 'Latin-1 in a header we do not use',
    bytes: get('X-Title: caf\xe9s\r\n'),
    uws: served(200),
    node: served(200),
    runs: GET,
  },
  {
    name: 'h2c upgrade is ignored',
    bytes: get('Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n'),
    uws: served(200),
    node: served(200),
    runs: GET,
  },
  {
    name: 'Connection: close',
    bytes: get('Connection: close\r\n'),
    uws: answered(200),
    node: answered(200),
    runs: GET,
  },
  {
    name: 'close in a list',
    bytes: get('Connection: close, te\r\n'),
    uws: answered(200),
    node: answered(200),
    runs: GET,
  },

  // ---- two opinions on where the body ends ----
  {
    name: 'TE and CL',
    bytes: post('Content-Length: 4\r\nTransfer-Encoding: chunked\r\n', `0\r\n\r\n${tail}`),
    uws: own(400),
    node: malformed,
  },
  {
    name: 'CL after TE',
    bytes: post('Transfer-Encoding: chunked\r\nContent-Length: 4\r\n', `0\r\n\r\n${tail}`),
    uws: own(400),
    node: malformed,
  },
  {
    name: 'two CL that differ',
    bytes: post(`Content-Length: 0\r\nContent-Length: ${tail.length}\r\n`, tail),
    uws: dropped,
    node: malformed,
  },
  {
    name: 'two equal CL',
    bytes: post('Content-Length: 2\r\nContent-Length: 2\r\n', 'hi'),
    uws: refused('repeated_header'),
    node: malformed,
  },
  { name: 'CL list', bytes: post('Content-Length: 5, 5\r\n', 'hello'), uws: own(400), node: malformed },
  { name: 'empty CL', bytes: post('Content-Length:\r\n', tail), uws: dropped, node: malformed },
  { name: 'CL +5', bytes: post('Content-Length: +5\r\n', 'hello'), uws: own(400), node: malformed },
  { name: 'CL -1', bytes: post('Content-Length: -1\r\n', 'hello'), uws: own(400), node: malformed },
  { name: 'CL 0x5', bytes: post('Content-Length: 0x5\r\n', 'hello'), uws: own(400), node: malformed },
  {
    name: 'CL of 20 digits',
    bytes: post('Content-Length: 10000000000000000000\r\n', 'hello'),
    uws: own(400),
    node: refused('content_length'),
  },
  { name: 'CL in two lines', bytes: post('Content-Length: 1\r\n 0\r\n', 'hello'), uws: own(400), node: malformed },
  {
    name: 'empty TE with CL',
    bytes: post('Transfer-Encoding:\r\nContent-Length: 5\r\n', 'hello'),
    uws: refused('empty_header'),
    node: malformed,
  },
  { name: 'empty TE', bytes: post('Transfer-Encoding:\r\n', tail), uws: dropped, node: malformed },
  {
    name: 'TE identity',
    bytes: post('Transfer-Encoding: identity\r\n', `0\r\n\r\n${tail}`),
    uws: dropped,
    node: refused('transfer_encoding'),
  },
  {
    name: 'TE xchunked',
    bytes: post('Transfer-Encoding: xchunked\r\n', `0\r\n\r\n${tail}`),
    uws: dropped,
    node: refused('transfer_encoding'),
  },
  {
    name: 'TE gzip, chunked',
    bytes: post('Transfer-Encoding: gzip, chunked\r\n', '0\r\n\r\n'),
    uws: refused('transfer_encoding'),
    node: refused('transfer_encoding'),
  },
  {
    name: 'TE twice',
    bytes: post('Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n', `0\r\n\r\n${tail}`),
    uws: dropped,
    node: malformed,
  },
  {
    name: 'VT before chunked',
    bytes: post('Transfer-Encoding: \x0bchunked\r\n', '0\r\n\r\n'),
    uws: own(400),
    node: malformed,
  },
  {
    name: 'VT in the name',
    bytes: post('Transfer-Encoding\x0b: chunked\r\n', '0\r\n\r\n'),
    uws: own(400),
    node: malformed,
  },
  // An empty name hides the headers behind it from uWebSockets.js and from us. The tail dies all the same (R3).
  {
    name: 'empty header name',
    bytes: post(`: x\r\nContent-Length: ${tail.length}\r\n`, tail),
    uws: dropped,
    node: malformed,
    runs: { uws: POST, node: [] },
  },

  // ---- chunks ----
  {
    name: 'chunk extension',
    bytes: chunked('5;a=b\r\nhello\r\n0\r\n\r\n'),
    uws: answered(408),
    node: served(200),
    runs: POST,
  },
  {
    name: 'chunk extension after a space',
    bytes: chunked('5 ;a=b\r\nhello\r\n0\r\n\r\n'),
    uws: answered(200),
    node: malformed,
    runs: POST,
  },
  { name: 'trailer', bytes: chunked('5\r\nhello\r\n0\r\nx: y\r\n\r\n'), uws: own(505), node: served(200), runs: POST },
  { name: 'chunk size g', bytes: chunked('g\r\nhello\r\n0\r\n\r\n'), uws: answered(408), node: malformed, runs: POST },
  { name: 'chunk size 0x5', bytes: chunked('0x5\r\nhello\r\n0\r\n\r\n'), uws: own(400), node: malformed, runs: POST },
  { name: 'chunk size -5', bytes: chunked('-5\r\nhello\r\n0\r\n\r\n'), uws: own(400), node: malformed, runs: POST },
  {
    name: 'chunk size overflow',
    bytes: chunked('10000000000000000\r\nhello\r\n0\r\n\r\n'),
    uws: own(400),
    node: malformed,
    runs: POST,
  },
  { name: 'empty chunk size', bytes: chunked(`\r\n\r\n${tail}`), uws: dropped, node: malformed, runs: POST },
  // One request to us on both adapters: what follows the last chunk starts a new one.
  {
    name: 'LF after a chunk size',
    bytes: chunked('5\nhello\r\n0\r\n\r\n'),
    uws: answered(200),
    node: malformed,
    runs: POST,
  },
  {
    name: 'no line end after a chunk',
    bytes: chunked('5\r\nhelloXX0\r\n\r\n'),
    uws: answered(200),
    node: malformed,
    runs: POST,
  },
  {
    name: 'a chunk that never comes whole',
    bytes: chunked('5\r\nhel'),
    uws: answered(408),
    node: answered(408),
    runs: POST,
  },

  // ---- lines and names ----
  { name: 'header without a colon', bytes: get('foo\r\n'), uws: own(400), node: malformed },
  { name: 'space before the colon', bytes: get('foo : b\r\n'), uws: own(400), node: malformed },
  { name: 'parenthesis in a name', bytes: get('fo(o: b\r\n'), uws: own(400), node: malformed },
  { name: 'folded header', bytes: get('foo: b\r\n c\r\n'), uws: own(400), node: malformed },
  {
    name: 'space before the first header',
    bytes: 'GET /read HTTP/1.1\r\n Host: a\r\n\r\n',
    uws: own(400),
    node: malformed,
  },
  { name: 'bare LF', bytes: 'GET /read HTTP/1.1\nHost: a\n\n', uws: own(505), node: malformed },
  {
    name: 'LF between headers',
    bytes: 'GET /read HTTP/1.1\r\nHost: a\nfoo: b\r\n\r\n',
    uws: own(400),
    node: malformed,
  },
  { name: 'CR in a value', bytes: get('foo: b\rc\r\n'), uws: late, node: malformed },
  { name: 'NUL in a value', bytes: get('foo: b\0c\r\n'), uws: own(400), node: malformed },
  { name: 'control character in a value', bytes: get('foo: b\x01c\r\n'), uws: own(400), node: malformed },
  { name: 'empty line first', bytes: `\r\n${get('')}`, uws: late, node: served(200), runs: { uws: [], node: GET } },
  { name: 'no header at all', bytes: 'GET /read HTTP/1.1\r\n\r\n', uws: own(400), node: refused('missing_host') },

  // ---- the request line ----
  { name: 'HTTP/1.0', bytes: 'GET /read HTTP/1.0\r\nHost: a\r\n\r\n', uws: own(505), node: refused('http_version') },
  { name: 'HTTP/1.2', bytes: 'GET /read HTTP/1.2\r\nHost: a\r\n\r\n', uws: own(505), node: malformed },
  { name: 'HTTP/2.0', bytes: 'GET /read HTTP/2.0\r\nHost: a\r\n\r\n', uws: own(505), node: refused('http_version') },
  { name: 'HTTP/2 preface', bytes: 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', uws: own(505), node: malformed },
  {
    name: 'TLS hello',
    bytes: `\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03${'\0'.repeat(80)}`,
    uws: own(505),
    node: malformed,
  },
  {
    name: 'absolute target',
    bytes: 'GET http://a/read HTTP/1.1\r\nHost: a\r\n\r\n',
    uws: own(505),
    node: refused('target'),
  },
  { name: 'OPTIONS *', bytes: 'OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n', uws: own(505), node: refused('target') },
  { name: 'NUL in the target', bytes: 'GET /re\0ad HTTP/1.1\r\nHost: a\r\n\r\n', uws: own(505), node: malformed },
  {
    name: 'Latin-1 in the target',
    bytes: 'GET /re\xe9ad HTTP/1.1\r\nHost: a\r\n\r\n',
    uws: refused('target'),
    node: malformed,
  },
  { name: 'fragment in the target', bytes: get('', '/read#x'), uws: refused('target'), node: refused('target') },
  {
    name: 'two spaces',
    bytes: 'GET  /read HTTP/1.1\r\nHost: a\r\n\r\n',
    uws: own(505),
    node: served(200),
    runs: { uws: [], node: GET },
  },
  { name: 'CONNECT', bytes: 'CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n', uws: own(505), node: refused('method') },
  { name: 'TRACE', bytes: 'TRACE /read HTTP/1.1\r\nHost: a\r\n\r\n', uws: refused('method'), node: refused('method') },
  {
    name: 'method in lower case',
    bytes: 'get /read HTTP/1.1\r\nHost: a\r\n\r\n',
    uws: refused('method'),
    node: malformed,
  },
  { name: 'odd method', bytes: 'G{T /read HTTP/1.1\r\nHost: a\r\n\r\n', uws: refused('method'), node: malformed },
  { name: 'unknown method', bytes: 'FOO /read HTTP/1.1\r\nHost: a\r\n\r\n', uws: refused('method'), node: malformed },

  // ---- headers we act on ----
  { name: 'no Host', bytes: 'GET /read HTTP/1.1\r\nfoo: a\r\n\r\n', uws: own(400), node: refused('missing_host') },
  { name: 'two Hosts', bytes: get('Host: b\r\n'), uws: own(400), node: refused('repeated_header') },
  {
    name: 'empty Host',
    bytes: 'GET /read HTTP/1.1\r\nHost:\r\n\r\n',
    uws: refused('empty_header'),
    node: refused('empty_header'),
  },
  {
    name: 'two Authorizations',
    bytes: get('Authorization: Bearer a\r\nauthorization: Bearer b\r\n'),
    uws: refused('repeated_header'),
    node: refused('repeated_header'),
  },
  {
    name: 'two x-api-keys',
    bytes: get('x-api-key: a\r\nX-Api-Key: a\r\n'),
    uws: refused('repeated_header'),
    node: refused('repeated_header'),
  },
  {
    name: 'two Idempotency-Keys',
    bytes: get('Idempotency-Key: a\r\nIdempotency-Key: b\r\n'),
    uws: refused('repeated_header'),
    node: refused('repeated_header'),
  },
  {
    name: 'two Content-Types',
    bytes: get('Content-Type: a/b\r\nContent-Type: a/c\r\n'),
    uws: refused('repeated_header'),
    node: refused('repeated_header'),
  },
  {
    name: 'Latin-1 inside a key',
    bytes: get('Authorization: Bearer a\xe9b\r\n'),
    uws: refused('header_value'),
    node: refused('header_value'),
  },
  // uWebSockets.js takes such bytes off the ends before we can see them. No legal key ends in one (R5).
  {
    name: 'Latin-1 at the end of a key',
    bytes: get('Authorization: Bearer a\xff\xfe\r\n'),
    uws: served(200),
    node: refused('header_value'),
    runs: { uws: GET, node: [] },
  },
  {
    name: 'unknown expectation',
    bytes: post('Expect: foo\r\nContent-Length: 5\r\n', 'hello'),
    uws: refused('expectation'),
    node: refused('expectation'),
  },

  // ---- sizes ----
  {
    name: 'header of 15 KB',
    bytes: get(`foo: ${'x'.repeat(15_000)}\r\n`),
    uws: served(200),
    node: served(200),
    runs: GET,
  },
  {
    name: 'header of 20 KB',
    bytes: get(`foo: ${'x'.repeat(20_000)}\r\n`),
    uws: own(431),
    node: refused('headers_too_large', 431),
  },
  {
    name: 'target of 20 KB',
    bytes: get('', `/${'a'.repeat(20_000)}`),
    uws: own(431),
    node: refused('headers_too_large', 431),
  },
  { name: '97 headers', bytes: get('x: y\r\n'.repeat(96)), uws: served(200), node: served(200), runs: GET },
  { name: '200 headers', bytes: get('x: y\r\n'.repeat(200)), uws: own(431), node: refused('too_many_headers') },

  // ---- more than one request in a packet ----
  {
    name: 'pipelined behind a sync answer',
    bytes: get('', '/sync') + get(''),
    uws: dropped,
    node: served(200, 200),
    runs: { uws: ['GET /sync'], node: ['GET /sync', 'GET /read'] },
  },
  {
    name: 'pipelined behind a later answer',
    bytes: get('', '/async') + get(''),
    uws: dropped,
    node: served(200, 200),
    runs: { uws: ['GET /async'], node: ['GET /async', 'GET /read'] },
  },
  {
    name: 'pipelined behind chunks',
    bytes: chunked('5\r\nhello\r\n0\r\n\r\n') + get(''),
    uws: dropped,
    node: served(200, 200),
    runs: { uws: POST, node: ['POST /read', 'GET /read'] },
  },
  {
    name: 'bytes behind Connection: close',
    bytes: get('Connection: close\r\n') + tail,
    uws: dropped,
    node: answered(200),
    runs: GET,
  },

  // ---- upgrades: answered by the handler, then closed (decisions 7) ----
  {
    name: 'WebSocket upgrade',
    bytes: get(
      'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n',
    ),
    uws: answered(426),
    node: answered(426),
    runs: GET,
  },
  {
    name: 'upgrade with a body',
    bytes: post('Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n', 'hello'),
    uws: answered(426),
    node: answered(426),
    runs: POST,
  },
  {
    name: 'bytes behind an upgrade',
    bytes: get('Connection: Upgrade\r\nUpgrade: websocket\r\n') + tail,
    uws: dropped,
    node: answered(426),
    runs: GET,
  },
  {
    name: 'two Upgrades',
    bytes: get('Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n'),
    uws: refused('repeated_header'),
    node: refused('repeated_header'),
  },
]
