/**
 * The rules of both listeners for heads of requests and responses (R4, R5 and R6 of docs/spec/listener.md). They are
 * in one place, so that both listeners refuse the same heads.
 */

import type { HeaderList } from '../core/ports/listener.ts'
import { HeaderFields, highestOf, TOKEN } from '../core/tools/header-fields.ts'
import { STATUS_CODES } from '../core/tools/http.ts'

/**
 * Why a head is refused. The listener answers with `ListenerOptions.refuse(reason, words)` and closes the connection.
 */
export interface HeadFault {
  readonly reason: HeadReason
  /** The header that is at fault, where it is one: `shownName` of it. */
  readonly header?: string
}

export type HeadReason =
  | 'method'
  | 'target'
  | 'http_version'
  | 'too_many_headers'
  | 'header_name'
  | 'header_value'
  | 'repeated_header'
  | 'empty_header'
  | 'missing_host'
  | 'content_length'
  | 'transfer_encoding'
  | 'length_conflict'
  | 'expectation'
  /** Only on `node`, whose parser refuses these. uWebSockets.js answers them itself. */
  | 'malformed'
  | 'headers_too_large'
  | 'head_timeout'

/**
 * In exact case, since methods are case-sensitive (RFC 9110 section 9.1). A gateway needs neither TRACE nor CONNECT.
 */
export const allowedMethods: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

/** Largest head of a request in bytes, on both listeners (R15). */
export const MAX_HEAD_BYTES = 16_384
/** Most headers of a request. uWebSockets.js has this limit; `node` is held to the same. */
export const MAX_HEADERS = 98

/** The rule by which a header is checked, by its name. An ordinary header has no special rule. */
const ORDINARY = 0
/** May be repeated, but the listener acts on its value: only visible ASCII is accepted (R4). */
const VISIBLE = 1
/** R4: a second header of this name makes the request ambiguous. */
const SINGLE = 2
/** As `SINGLE`, and its value must not be empty. */
const SINGLE_FULL = 3

const RULES: readonly (readonly [name: string, rule: number])[] = [
  ['host', SINGLE_FULL],
  ['content-length', SINGLE_FULL],
  ['transfer-encoding', SINGLE_FULL],
  ['authorization', SINGLE],
  ['x-api-key', SINGLE],
  ['idempotency-key', SINGLE],
  ['content-type', SINGLE],
  ['expect', SINGLE],
  ['upgrade', SINGLE],
  ['connection', VISIBLE],
  ['x-forwarded-for', VISIBLE],
]

/** A field name that was checked to be a token. */
interface FieldName {
  /** Lower case. All heads share one string object, so that comparing names is fast. */
  readonly name: string
  readonly rule: number
  /** What precedes the value in the head of a response. */
  readonly prefix: string
}

function fieldName(name: string, rule: number): FieldName {
  return { name, rule, prefix: `\r\n${name}: ` }
}

const known = new Map(RULES.map(([name, rule]) => [name, fieldName(name, rule)]))

// R5: a key with any other byte is not valid. uWebSockets.js removes such bytes at the ends before we see them; no
// valid key has one there.
const printable = /^[\x20-\x7e]*$/
// A request target has no fragment (RFC 9112 section 3.2).
const targetBytes = /^\/[\x21\x22\x24-\x7e]*$/
const digits = /^\d{1,12}$/

/** How many names `known` may still store. Clients choose names, so the memory for them is bounded. */
let learnable = 512

/**
 * The field name in lower case; undefined when it is not a token. Clients use few different names, so valid names are
 * remembered.
 */
function nameOf(text: string): FieldName | undefined {
  const found = known.get(text)
  if (found !== undefined) return found
  if (!TOKEN.test(text)) return undefined
  const name = text.toLowerCase()
  if (name !== text) return nameOf(name)
  const field = fieldName(name, ORDINARY)
  if (learnable > 0 && name.length <= 64) {
    learnable -= 1
    known.set(name, field)
  }
  return field
}

/**
 * Checks a parsed head and fills `headers` (names lower case, repeated headers joined by ', ').
 * @param pairs name, value, name, value, like `rawHeaders` of node:http
 * @returns null when the head is unambiguous; else the first fault
 */
export function checkHead(
  method: string,
  path: string,
  query: string,
  pairs: readonly string[],
  headers: HeaderFields,
): HeadFault | null {
  // All pairs are read even after a fault: the listener needs Content-Length and Transfer-Encoding to deliver its
  // response.
  let fault: HeadFault | null = null
  if (pairs.length > 2 * MAX_HEADERS) fault = { reason: 'too_many_headers' }
  for (let i = 0; i < pairs.length; i += 2) {
    const value = pairs[i + 1]!
    const field = nameOf(pairs[i]!)
    if (field === undefined) {
      fault ??= { reason: 'header_name', header: shownName(pairs[i]!) }
      continue
    }
    const { name, rule } = field
    if (rule !== ORDINARY) {
      if (!printable.test(value)) fault ??= { reason: 'header_value', header: name }
      if (rule !== VISIBLE) {
        if (headers.has(name)) fault ??= { reason: 'repeated_header', header: name }
        if (rule === SINGLE_FULL && value === '') fault ??= { reason: 'empty_header', header: name }
      }
    }
    headers.add(name, value)
  }
  if (fault !== null) return fault
  if (!allowedMethods.has(method)) return { reason: 'method' }
  if (!targetBytes.test(path) || (query !== '' && !printable.test(query))) return { reason: 'target' }
  if (!headers.has('host')) return { reason: 'missing_host' }
  const length = headers.get('content-length')
  const coding = headers.get('transfer-encoding')
  if (coding !== undefined) {
    if (coding.toLowerCase() !== 'chunked') return { reason: 'transfer_encoding' }
    // RFC 9112 section 6.3: recipients disagree about the length of a request that has both.
    if (length !== undefined) return { reason: 'length_conflict' }
  }
  if (length !== undefined && !digits.test(length)) return { reason: 'content_length' }
  const expect = headers.get('expect')
  if (expect !== undefined && expect.toLowerCase() !== '100-continue') return { reason: 'expectation' }
  return null
}

/** A name that a client chose, for a message: lower case, at most 64 characters, and no other than printable ASCII. */
export function shownName(name: string): string {
  const shown = name
    .slice(0, 64)
    .toLowerCase()
    .replace(/[^\x21-\x7e]/g, '?')
  return name.length > 64 ? `${shown}…` : shown
}

/** What is wrong with the header that a fault names, and the cure; '' where it names none. */
export function headerWords({ reason, header }: HeadFault): string {
  if (header === undefined) return ''
  switch (reason) {
    case 'header_name':
      return `The header name '${header}' has a character that names cannot have. Correct the name.`
    case 'repeated_header':
      return `The header ${header} is there more than once. Send it once.`
    case 'empty_header':
      return `The header ${header} has no value. Send one, or leave the header out.`
    default:
      return `The value of the header ${header} has a byte that is not printable ASCII, such as the end of a line that was read with a key from a file. Send it without that byte.`
  }
}

/** Whether a checked head declares a body. */
export function declaresBody(headers: ReadonlyMap<string, string>): boolean {
  if (headers.has('transfer-encoding')) return true
  const length = headers.get('content-length')
  return length !== undefined && length !== '0' && Number(length) > 0
}

/** Whether `Connection` contains `close`, alone or in a list. */
export function asksClose(connection: string | undefined): boolean {
  if (connection === undefined || connection === 'keep-alive') return false
  return connection.length === 5 ? connection.toLowerCase() === 'close' : lists(connection, 'close')
}

/**
 * Whether the connection must close after a response, whatever client and gateway want. It must after a 408, since
 * the rest of the request may still arrive. It also must after a response to a chunked body that was not read to its
 * end: only the client then says where the chunks end, and parsers of chunks differ (uWebSockets.js reads `9;` as
 * 155), so that bytes which one parser takes for the body are a request for another.
 */
export function endsConnection(
  status: number,
  { headers, bodyTaken }: { headers: ReadonlyMap<string, string>; bodyTaken: boolean },
): boolean {
  return status === 408 || (headers.has('transfer-encoding') && !bodyTaken)
}

function lists(connection: string, option: string): boolean {
  return connection
    .toLowerCase()
    .split(',')
    .some(listed => listed.trim() === option)
}

/**
 * The protocol to which a request asks to upgrade; undefined for none. `h2c` alone does not count: some clients
 * (Java's) send it with every first request on a plain connection, and a server may ignore it and answer in HTTP/1.1
 * (RFC 9110 section 7.8).
 */
export function upgradeOf(headers: ReadonlyMap<string, string>): string | undefined {
  const upgrade = headers.get('upgrade')
  return upgrade === undefined || upgrade === '' || upgrade.toLowerCase() === 'h2c' ? undefined : upgrade
}

/** Whether a request is a valid WebSocket handshake (RFC 6455 section 4.2.1). */
export function isHandshake(method: string, headers: ReadonlyMap<string, string>): boolean {
  return (
    method === 'GET' &&
    headers.get('upgrade')?.toLowerCase() === 'websocket' &&
    lists(headers.get('connection') ?? '', 'upgrade') &&
    headers.get('sec-websocket-version') === '13' &&
    /^[A-Za-z0-9+/]{21}[AQgw]==$/.test(headers.get('sec-websocket-key') ?? '') &&
    !declaresBody(headers)
  )
}

/** The checked head of a response. */
export interface SafeHead {
  status: number
  /** Name, value, name, value; without the headers that the listener itself writes. */
  pairs: readonly string[]
  /** The same headers as lines, each after a line end. */
  lines: string
  /** True when a value has characters from U+0080 on. Each is one byte of the head (Latin-1, not UTF-8). */
  latin1: boolean
  /** True when the caller asks to close the connection after the response. */
  close: boolean
  /** The caller's Content-Length, used only for HEAD; '' when there is none. */
  length: string
}

/**
 * R6: checks the headers of a response. uWebSockets.js writes any text it is given, so one line break from a client's
 * text would split the response.
 * @throws TypeError for a name that is not a token, or a value with CR, LF, NUL or another control character
 */
export function safeHead(status: number, headers: HeaderList): SafeHead {
  if (!Number.isInteger(status) || status < 200 || status > 599)
    throw new TypeError(`not a final HTTP status: ${status}`)
  const flat = headers instanceof HeaderFields ? headers.flat : [...headers].flat()
  const head: SafeHead = { status, pairs: flat, lines: '', latin1: false, close: false, length: '' }
  let left = false
  for (let i = 0; i < flat.length; i += 2) {
    const field = nameOf(flat[i]!)
    const value = flat[i + 1]!
    if (field === undefined) throw new TypeError(`not a header name: ${JSON.stringify(flat[i])}`)
    const highest = highestOf(value)
    if (highest < 0) throw new TypeError(`header ${field.name} has a value that would break the answer's head`)
    if (highest > 0x7f) head.latin1 = true
    if (!isWrittenByListener(field.name)) {
      head.lines += field.prefix + value
      continue
    }
    if (field.name === 'connection') head.close ||= asksClose(value)
    else if (field.name === 'content-length') head.length = value
    left = true
  }
  if (left) head.pairs = flat.filter((_, at) => !isWrittenByListener(flat[at - (at % 2)]!.toLowerCase()))
  return head
}

/** Headers that a caller may set but only the listener writes. */
function isWrittenByListener(name: string): boolean {
  switch (name) {
    case 'connection':
    case 'content-length':
    case 'transfer-encoding':
    case 'keep-alive':
    case 'date':
      return true
    default:
      return false
  }
}

const statusLines = new Map<number, string>()
/** The code and its standard phrase, e.g. `200 OK`; never text of a client. */
export function statusLine(status: number): string {
  let line = statusLines.get(status)
  if (line === undefined) {
    line = `${status} ${STATUS_CODES[status] ?? 'Unknown'}`
    statusLines.set(status, line)
  }
  return line
}

/** Responses with these statuses have neither a body nor a Content-Length (RFC 9110). */
export function isBodiless(status: number): boolean {
  return status === 204 || status === 304
}
