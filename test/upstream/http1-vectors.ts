/**
 * Bytes that a server, a proxy or an attacker may send in place of a reply, and what the client makes of them: the
 * vectors of the listeners (`test/listener/vectors.ts`) as replies. What two readers could frame in two ways must be
 * refused, and after anything that is not sure the connection must not be used again: the next reply on it is another
 * tenant's.
 */

export interface Whole {
  status: number
  body: string
  /** The connection carries the next request. */
  kept: boolean
}

/** `malformed`: not HTTP as we take it; `cut`: the connection ended before the reply did. */
export type Fault = 'malformed' | 'cut'

export interface Vector {
  name: string
  bytes: string
  want: Whole | Fault
  /** Default: POST. */
  method?: 'HEAD'
  /** The server closes behind the bytes; else it leaves the connection open. */
  closes?: boolean
}

const kept = (body = '', status = 200): Whole => ({ status, body, kept: true })
const once = (body = '', status = 200): Whole => ({ status, body, kept: false })

const reply = (headers: string, body = '', line = 'HTTP/1.1 200 OK'): string => `${line}\r\n${headers}\r\n${body}`
const sized = (headers: string, body = 'hello', line?: string): string =>
  reply(`${headers}Content-Length: ${body.length}\r\n`, body, line)
const chunked = (body: string): string => reply('Transfer-Encoding: chunked\r\n', body)
const last = '0\r\n\r\n'
/** What a smuggled reply would look like. */
const tail = 'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled'
const refused = (name: string, bytes: string): Vector => ({ name, bytes, want: 'malformed' })

export const vectors: readonly Vector[] = [
  // ---- plain ----
  { name: 'a length', bytes: sized(''), want: kept('hello') },
  { name: 'chunks', bytes: chunked(`5\r\nhello\r\n6\r\n world\r\n${last}`), want: kept('hello world') },
  { name: 'a length of 0', bytes: sized('', ''), want: kept() },
  { name: 'no chunk but the last', bytes: chunked(last), want: kept() },
  { name: 'until the connection closes', bytes: reply('', 'hello'), closes: true, want: once('hello') },
  { name: 'nothing until the connection closes', bytes: reply(''), closes: true, want: once() },
  { name: 'no reason phrase', bytes: sized('', 'hello', 'HTTP/1.1 200'), want: kept('hello') },
  { name: 'an empty reason phrase', bytes: sized('', 'hello', 'HTTP/1.1 200 '), want: kept('hello') },
  { name: 'Latin-1 in the reason phrase', bytes: sized('', 'hello', 'HTTP/1.1 200 caf\xe9'), want: kept('hello') },
  { name: 'Latin-1 in a header', bytes: sized('X-Title: caf\xe9s\r\n'), want: kept('hello') },
  { name: 'an empty value', bytes: sized('x:\r\n'), want: kept('hello') },
  { name: 'a colon in a value', bytes: sized('x: a:b\r\n'), want: kept('hello') },
  { name: 'an error', bytes: sized('', 'no', 'HTTP/1.1 503 X'), want: kept('no', 503) },
  { name: 'a status of no class', bytes: sized('', 'no', 'HTTP/1.1 799 X'), want: kept('no', 799) },
  {
    name: 'an upgrade that is only offered',
    bytes: sized('Connection: Upgrade\r\nUpgrade: h2c\r\n'),
    want: kept('hello'),
  },

  // ---- is the connection kept ----
  { name: 'Connection: close', bytes: sized('Connection: Close\r\n'), want: once('hello') },
  { name: 'close in a list', bytes: sized('Connection: te , CLOSE,x\r\n'), want: once('hello') },
  {
    name: 'close in the second of two lines',
    bytes: sized('Connection: keep-alive\r\nConnection: close\r\n'),
    want: once('hello'),
  },
  { name: 'close and keep-alive', bytes: sized('Connection: close, keep-alive\r\n'), want: once('hello') },
  { name: 'closed is not close', bytes: sized('Connection: closed\r\n'), want: kept('hello') },
  { name: 'HTTP/1.0', bytes: sized('', 'hello', 'HTTP/1.0 200 OK'), want: once('hello') },
  {
    name: 'HTTP/1.0 with keep-alive',
    bytes: sized('Connection: Keep-Alive\r\n', 'hello', 'HTTP/1.0 200 OK'),
    want: kept('hello'),
  },
  {
    name: 'HTTP/1.0 until the connection closes',
    bytes: reply('Connection: keep-alive\r\n', 'hello', 'HTTP/1.0 200 OK'),
    closes: true,
    want: once('hello'),
  },

  // ---- replies without a body ----
  { name: '204', bytes: reply('', '', 'HTTP/1.1 204 X'), want: kept('', 204) },
  {
    name: '204 with a length and no body',
    bytes: reply('Content-Length: 5\r\n', '', 'HTTP/1.1 204 X'),
    want: kept('', 204),
  },
  { name: '204 with a body', bytes: sized('', 'hello', 'HTTP/1.1 204 X'), want: once('', 204) },
  {
    name: '204 in chunks',
    bytes: reply('Transfer-Encoding: chunked\r\n', last, 'HTTP/1.1 204 X'),
    want: once('', 204),
  },
  { name: '304 with a length', bytes: reply('Content-Length: 9\r\n', '', 'HTTP/1.1 304 X'), want: kept('', 304) },
  { name: '304 with a body', bytes: sized('', 'hello', 'HTTP/1.1 304 X'), want: once('', 304) },
  { name: '304 without a length', bytes: reply('', '', 'HTTP/1.1 304 X'), want: kept('', 304) },
  { name: 'HEAD', method: 'HEAD', bytes: reply('Content-Length: 100\r\n'), want: kept() },
  { name: 'HEAD in chunks', method: 'HEAD', bytes: reply('Transfer-Encoding: chunked\r\n'), want: kept() },
  { name: 'HEAD with a body', method: 'HEAD', bytes: sized(''), want: once() },

  // ---- interim replies ----
  { name: '100', bytes: `HTTP/1.1 100 Continue\r\n\r\n${sized('')}`, want: kept('hello') },
  { name: '103 with links', bytes: `HTTP/1.1 103 X\r\nLink: </a>\r\n\r\n${sized('')}`, want: kept('hello') },
  {
    name: 'interim replies have no body',
    bytes: `HTTP/1.1 100 X\r\nContent-Length: 5\r\n\r\n${sized('')}`,
    want: kept('hello'),
  },
  {
    name: 'the Connection of an interim reply is not the reply’s',
    bytes: `HTTP/1.1 100 X\r\nConnection: close\r\n\r\n${sized('')}`,
    want: kept('hello'),
  },
  { name: '16 interim replies', bytes: `${'HTTP/1.1 100 X\r\n\r\n'.repeat(16)}${sized('')}`, want: kept('hello') },
  { name: 'nothing after 100', bytes: 'HTTP/1.1 100 X\r\n\r\n', closes: true, want: 'cut' },
  refused('17 interim replies', `${'HTTP/1.1 100 X\r\n\r\n'.repeat(17)}${sized('')}`),
  refused('101, which nobody asked for', `HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n${tail}`),
  refused(
    'an interim reply with both framings',
    `HTTP/1.1 100 X\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n${sized('')}`,
  ),

  // ---- two opinions on where the body ends ----
  refused('TE and CL', reply('Content-Length: 5\r\nTransfer-Encoding: chunked\r\n', `${last}${tail}`)),
  refused('CL after TE', reply('Transfer-Encoding: chunked\r\nContent-Length: 5\r\n', `${last}${tail}`)),
  refused(
    'TE and CL of an error',
    reply('Content-Length: 5\r\nTransfer-Encoding: chunked\r\n', last, 'HTTP/1.1 500 X'),
  ),
  refused('TE in HTTP/1.0', reply('Transfer-Encoding: chunked\r\n', last, 'HTTP/1.0 200 OK')),
  refused('two CL that differ', reply('Content-Length: 0\r\nContent-Length: 5\r\n', 'hello')),
  { name: 'two equal CL', bytes: reply('Content-Length: 5\r\ncontent-length: 5\r\n', 'hello'), want: kept('hello') },
  { name: 'a length with leading zeros', bytes: reply('Content-Length: 005\r\n', 'hello'), want: kept('hello') },
  { name: 'a length between blanks', bytes: reply('Content-Length:\t 5 \t\r\n', 'hello'), want: kept('hello') },
  refused('CL list', reply('Content-Length: 5, 5\r\n', 'hello')),
  refused('empty CL', reply('Content-Length:\r\n', 'hello')),
  refused('CL +5', reply('Content-Length: +5\r\n', 'hello')),
  refused('CL -1', reply('Content-Length: -1\r\n', 'hello')),
  refused('CL 0x5', reply('Content-Length: 0x5\r\n', 'hello')),
  refused('CL 5.0', reply('Content-Length: 5.0\r\n', 'hello')),
  refused('CL 1e1', reply('Content-Length: 1e1\r\n', 'hello')),
  refused('CL 5 5', reply('Content-Length: 5 5\r\n', 'hello')),
  refused('CL "5"', reply('Content-Length: "5"\r\n', 'hello')),
  refused('CL with a no-break space', reply('Content-Length: 5\xa0\r\n', 'hello')),
  refused('CL of 16 digits', reply('Content-Length: 1000000000000000\r\n', 'hello')),
  refused('CL of 20 digits', reply('Content-Length: 18446744073709551621\r\n', 'hello')),
  refused('CL in two lines', reply('Content-Length: 1\r\n 0\r\n', 'hello')),
  refused('empty TE', reply('Transfer-Encoding:\r\n', last)),
  refused('empty TE with CL', reply('Transfer-Encoding:\r\nContent-Length: 5\r\n', 'hello')),
  refused('TE identity', reply('Transfer-Encoding: identity\r\n', `${last}${tail}`)),
  refused('TE xchunked', reply('Transfer-Encoding: xchunked\r\n', last)),
  refused('TE chunkedx', reply('Transfer-Encoding: chunkedx\r\n', last)),
  refused('TE gzip, chunked', reply('Transfer-Encoding: gzip, chunked\r\n', last)),
  refused('TE chunked, gzip', reply('Transfer-Encoding: chunked, gzip\r\n', last)),
  refused('TE chunked, chunked', reply('Transfer-Encoding: chunked, chunked\r\n', last)),
  refused('TE twice', reply('Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n', last)),
  refused('TE chunked twice', reply('Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n', last)),
  refused('TE "chunked"', reply('Transfer-Encoding: "chunked"\r\n', last)),
  refused('TE with a parameter', reply('Transfer-Encoding: chunked;q=1\r\n', last)),
  refused('TE with a comma', reply('Transfer-Encoding: chunked,\r\n', last)),
  refused('TE in two lines', reply('Transfer-Encoding:\r\n chunked\r\n', last)),
  refused('VT before chunked', reply('Transfer-Encoding: \x0bchunked\r\n', last)),
  refused('VT in the name', reply('Transfer-Encoding\x0b: chunked\r\n', last)),
  refused('a space behind the name', reply('Transfer-Encoding : chunked\r\n', last)),
  { name: 'CHUNKED in capitals', bytes: reply('TRANSFER-ENCODING: CHUNKED\r\n', last), want: kept() },
  { name: 'tab before chunked', bytes: reply('Transfer-Encoding:\tchunked\t\r\n', last), want: kept() },
  // Not the header that it looks like, to anyone.
  { name: 'Transfer_Encoding', bytes: sized('Transfer_Encoding: chunked\r\n'), want: kept('hello') },

  // ---- chunks ----
  { name: 'chunk extension', bytes: chunked(`5;a=b\r\nhello\r\n0;x="y"\r\n\r\n`), want: kept('hello') },
  { name: 'chunk extension after blanks', bytes: chunked(`5 \t;a=b\r\nhello\r\n${last}`), want: kept('hello') },
  { name: 'blanks after a chunk size', bytes: chunked(`5  \r\nhello\r\n${last}`), want: kept('hello') },
  {
    name: 'chunk size in either case',
    bytes: chunked(`A\r\n0123456789\r\na\r\n0123456789\r\n${last}`),
    want: kept('01234567890123456789'),
  },
  { name: 'chunk size with leading zeros', bytes: chunked(`0005\r\nhello\r\n000\r\n\r\n`), want: kept('hello') },
  { name: 'trailers', bytes: chunked('5\r\nhello\r\n0\r\nx: 1\r\nY:\r\n\r\n'), want: kept('hello') },
  {
    name: 'trailers that would frame',
    bytes: chunked('5\r\nhello\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\n\r\n'),
    want: kept('hello'),
  },
  refused('chunk size g', chunked(`g\r\nhello\r\n${last}`)),
  refused('chunk size 5g', chunked(`5g\r\nhello\r\n${last}`)),
  refused('chunk size 0x5', chunked(`0x5\r\nhello\r\n${last}`)),
  refused('chunk size -5', chunked(`-5\r\nhello\r\n${last}`)),
  refused('chunk size +5', chunked(`+5\r\nhello\r\n${last}`)),
  refused('a space before a chunk size', chunked(` 5\r\nhello\r\n${last}`)),
  refused('two chunk sizes', chunked(`5 5\r\nhello\r\n${last}`)),
  refused('chunk size of 14 digits', chunked(`10000000000000\r\nhello\r\n${last}`)),
  refused('chunk size overflow', chunked(`10000000000000005\r\nhello\r\n${last}`)),
  refused('empty chunk size', chunked(`\r\nhello\r\n${last}`)),
  refused('an extension without a size', chunked(`;a=b\r\nhello\r\n${last}`)),
  refused('a chunk extension without an end', chunked(`5;${'a'.repeat(4096)}`)),
  refused('CR in a chunk extension', chunked(`5;a\rb\r\nhello\r\n${last}`)),
  refused('NUL in a chunk extension', chunked(`5;a\0b\r\nhello\r\n${last}`)),
  refused('LF after a chunk size', chunked(`5\nhello\r\n${last}`)),
  refused('LF after a chunk extension', chunked(`5;a\nhello\r\n${last}`)),
  refused('CR CR LF after a chunk size', chunked(`5\r\r\nhello\r\n${last}`)),
  refused('no line end after a chunk', chunked(`5\r\nhelloXX${last}`)),
  refused('LF after a chunk', chunked(`5\r\nhello\n${last}`)),
  refused('CR after a chunk', chunked(`5\r\nhello\r${last}`)),
  refused('a chunk longer than its size', chunked(`4\r\nhello\r\n${last}`)),
  refused('a chunk shorter than its size', chunked(`8\r\nhello\r\n${last}`)),
  refused('LF after the last chunk', chunked('0\n\r\n')),
  refused('LF in place of the trailers', chunked('0\r\n\n')),
  refused('a trailer without a colon', chunked('0\r\nGET / HTTP/1.1\r\n\r\n')),
  refused('a folded trailer', chunked('0\r\na: b\r\n c\r\n\r\n')),
  refused('a space before the colon of a trailer', chunked('0\r\na : b\r\n\r\n')),
  refused('NUL in a trailer', chunked('0\r\na: \0\r\n\r\n')),
  refused('LF between trailers', chunked('0\r\na: b\nc: d\r\n\r\n')),
  refused('trailers without an end', chunked(`0\r\n${'a: b\r\n'.repeat(11_000)}`)),
  { name: 'a chunk that never comes whole', bytes: chunked('5\r\nhel'), closes: true, want: 'cut' },
  { name: 'no last chunk', bytes: chunked('5\r\nhello\r\n'), closes: true, want: 'cut' },
  { name: 'no line end after the last chunk', bytes: chunked('5\r\nhello\r\n0\r\n'), closes: true, want: 'cut' },

  // ---- lines and names ----
  refused('a header without a colon', sized('foo\r\n')),
  refused('a space before the colon', sized('foo : b\r\n')),
  refused('a parenthesis in a name', sized('fo(o: b\r\n')),
  refused('Latin-1 in a name', sized('fo\xe9: b\r\n')),
  refused('an empty header name', sized(': x\r\n')),
  refused('a folded header', sized('foo: b\r\n c\r\n')),
  refused('a header folded by a tab', sized('foo: b\r\n\tc\r\n')),
  refused('a space before the first header', reply(' foo: b\r\nContent-Length: 5\r\n', 'hello')),
  refused('bare LF', 'HTTP/1.1 200 OK\nContent-Length: 5\n\nhello'),
  refused('bare LF between headers', reply('foo: b\nContent-Length: 5\r\n', 'hello')),
  refused('bare LF after the status line', 'HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\nhello'),
  refused('bare LF for the empty line', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\nhello'),
  refused('bare CR for the empty line', `HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\rhello\r\n\r\n`),
  refused('CR in a value', sized('foo: b\rc\r\n')),
  refused('CR before a line end', sized('foo: b\r\r\n')),
  refused('CR in a name', sized('fo\ro: b\r\n')),
  refused('NUL in a value', sized('foo: b\0c\r\n')),
  refused('NUL in a name', sized('fo\0o: b\r\n')),
  refused('DEL in a value', sized('foo: b\x7fc\r\n')),

  // ---- the status line ----
  refused('HTTP/1.2', sized('', 'hello', 'HTTP/1.2 200 OK')),
  refused('HTTP/2', sized('', 'hello', 'HTTP/2 200 OK')),
  refused('HTTP/1', sized('', 'hello', 'HTTP/1 200 OK')),
  refused('HTTP/01.1', sized('', 'hello', 'HTTP/01.1 200 OK')),
  refused('HTTP/1.10', sized('', 'hello', 'HTTP/1.10 200 OK')),
  refused('http/1.1', sized('', 'hello', 'http/1.1 200 OK')),
  refused('ICY', sized('', 'hello', 'ICY 200 OK')),
  refused('HTTP/0.9', 'hello, this is the body'),
  refused('an empty line first', `\r\n${sized('')}`),
  refused('a space first', ` ${sized('')}`),
  refused('two spaces', sized('', 'hello', 'HTTP/1.1  200 OK')),
  refused('a tab', sized('', 'hello', 'HTTP/1.1\t200 OK')),
  refused('no status', sized('', 'hello', 'HTTP/1.1 OK')),
  refused('a status of two digits', sized('', 'hello', 'HTTP/1.1 20 OK')),
  refused('a status of four digits', sized('', 'hello', 'HTTP/1.1 2000 OK')),
  refused('a status of letters', sized('', 'hello', 'HTTP/1.1 2x0 OK')),
  refused('a status below 100', sized('', 'hello', 'HTTP/1.1 099 OK')),
  refused('a negative status', sized('', 'hello', 'HTTP/1.1 -20 OK')),
  refused('no space behind the status', sized('', 'hello', 'HTTP/1.1 200OK')),
  refused('CR in the reason phrase', sized('', 'hello', 'HTTP/1.1 200 O\rK')),
  refused('NUL in the reason phrase', sized('', 'hello', 'HTTP/1.1 200 O\0K')),
  refused('a header behind LF in the reason phrase', sized('', 'hello', 'HTTP/1.1 200 OK\nTransfer-Encoding: chunked')),
  refused('a request', 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'),
  refused('an SSH banner', 'SSH-2.0-OpenSSH_9.6\r\n'),
  refused('a TLS alert', '\x15\x03\x01\x00\x02\x02\x46'),
  refused('an HTTP/2 frame', '\0\0\x12\x04\0\0\0\0\0'),
  { name: 'nothing', bytes: '', closes: true, want: 'cut' },

  // ---- sizes ----
  { name: 'a header of 60 KB', bytes: sized(`foo: ${'x'.repeat(60_000)}\r\n`), want: kept('hello') },
  { name: 'many headers', bytes: sized('retry-after: 1\r\n'.repeat(3000)), want: kept('hello') },
  refused('a header of 70 KB', sized(`foo: ${'x'.repeat(70_000)}\r\n`)),
  refused('a header that does not end', `HTTP/1.1 200 OK\r\nfoo: ${'x'.repeat(70_000)}`),
  refused('too many headers', sized('a:\r\n'.repeat(17_000))),
  refused('a reason phrase of 70 KB', sized('', 'hello', `HTTP/1.1 200 ${'x'.repeat(70_000)}`)),

  // ---- bytes behind the reply: the reply is whole, the connection is nobody's ----
  { name: 'a byte behind a length', bytes: `${sized('')}x`, want: once('hello') },
  { name: 'a line end behind a length', bytes: `${sized('')}\r\n`, want: once('hello') },
  { name: 'a reply behind a length', bytes: `${sized('')}${tail}`, want: once('hello') },
  { name: 'a reply behind a length of 0', bytes: `${sized('', '')}${tail}`, want: once() },
  { name: 'a reply behind chunks', bytes: `${chunked(`5\r\nhello\r\n${last}`)}${tail}`, want: once('hello') },
  { name: 'a second last chunk', bytes: chunked(`5\r\nhello\r\n${last}${last}`), want: once('hello') },
  { name: 'a reply behind 204', bytes: `HTTP/1.1 204 X\r\n\r\n${tail}`, want: once('', 204) },
  { name: 'a reply behind HEAD’s', method: 'HEAD', bytes: `${reply('Content-Length: 8\r\n')}${tail}`, want: once() },
  { name: 'a reply behind Connection: close', bytes: `${sized('Connection: close\r\n')}${tail}`, want: once('hello') },
  {
    name: 'a reply in a body without a length',
    bytes: `${reply('', 'hello')}${tail}`,
    closes: true,
    want: once(`hello${tail}`),
  },
]
