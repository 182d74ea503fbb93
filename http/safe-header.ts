/**
 * What both adapters believe of a request's head, and what they let into an answer's (R4, R5 and R6 of docs/spec/listener.md). One place, so that a head which
 * one adapter refuses is refused by the other.
 */
import { HeaderFields } from '../core/header-fields.ts'
import { STATUS_CODES } from '../core/http.ts'
import type { HeaderList } from '../core/listener.ts'

/** Why a head is refused. The adapter answers with `ListenerOptions.refuse(fault)` and closes the connection. */
export type HeadFault =
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
  /** Only `node`: what its parser refuses. uWebSockets.js answers these by itself. */
  | 'malformed'
  | 'headers_too_large'
  | 'head_timeout'

/** Exact case: RFC 9110 9.1 makes methods case-sensitive. TRACE and CONNECT have no business at a gateway. */
export const allowedMethods: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

/** Bytes of a request's head, on both adapters (R15). */
export const MAX_HEAD_BYTES = 16_384
/** Headers of a request. uWebSockets.js stops at this figure; `node` is held to it. */
export const MAX_HEADERS = 98

/** How a header is judged, by its name. */
const ORDINARY = 0
/** May be repeated, but the adapter acts on it: only visible ASCII is believed (R4). */
const VISIBLE = 1
/** R4: a second one makes the request ambiguous. */
const SINGLE = 2
/** The same, and it must say something. */
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

/** A field name that is known to be a token. */
interface FieldName {
  /** Lower case; one string for all heads, so that names are told apart by their address. */
  readonly name: string
  readonly rule: number
  /** What stands before its value in an answer's head. */
  readonly prefix: string
}

function fieldName(name: string, rule: number): FieldName {
  return { name, rule, prefix: `\r\n${name}: ` }
}

const known = new Map(RULES.map(([name, rule]) => [name, fieldName(name, rule)]))

const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/
// R5: a key with any other byte is no key. uWebSockets.js takes such bytes off the ends before we see them; no legal key has one there.
const printable = /^[\x20-\x7e]*$/
// No fragment: RFC 9112 3.2 has none in a request target.
const targetBytes = /^\/[\x21\x22\x24-\x7e]*$/
const digits = /^\d{1,12}$/

/** Names that `known` may still learn: clients choose names, so the memory of good ones is bounded. */
let learnable = 512

/** A field name, in lower case; undefined when it is no token. Names come from a small set: the good ones are remembered. */
function nameOf(text: string): FieldName | undefined {
  const found = known.get(text)
  if (found !== undefined) return found
  if (!token.test(text)) return undefined
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
 * Judges a parsed head and fills `headers` (names lower case, repeated ones joined by ', ').
 * `pairs` is flat: name, value, name, value, as `rawHeaders` of node:http. Null when the head is unambiguous.
 */
export function judgeHead(
  method: string,
  path: string,
  query: string,
  pairs: readonly string[],
  headers: HeaderFields,
): HeadFault | null {
  // The pairs are read whole whatever the fault: the adapter needs Content-Length and Transfer-Encoding to see the answer arrive.
  let fault: HeadFault | null = null
  if (pairs.length > 2 * MAX_HEADERS) fault = 'too_many_headers'
  for (let i = 0; i < pairs.length; i += 2) {
    const value = pairs[i + 1]!
    const field = nameOf(pairs[i]!)
    if (field === undefined) {
      fault ??= 'header_name'
      continue
    }
    const { name, rule } = field
    if (rule !== ORDINARY) {
      if (!printable.test(value)) fault ??= 'header_value'
      if (rule !== VISIBLE) {
        if (headers.has(name)) fault ??= 'repeated_header'
        if (rule === SINGLE_FULL && value === '') fault ??= 'empty_header'
      }
    }
    headers.add(name, value)
  }
  if (fault !== null) return fault
  if (!allowedMethods.has(method)) return 'method'
  if (!targetBytes.test(path) || (query !== '' && !printable.test(query))) return 'target'
  if (!headers.has('host')) return 'missing_host'
  const length = headers.get('content-length')
  const coding = headers.get('transfer-encoding')
  if (coding !== undefined) {
    if (coding.toLowerCase() !== 'chunked') return 'transfer_encoding'
    // RFC 9112 6.3: the one message length of a request with both is a matter of opinion.
    if (length !== undefined) return 'length_conflict'
  }
  if (length !== undefined && !digits.test(length)) return 'content_length'
  const expect = headers.get('expect')
  if (expect !== undefined && expect.toLowerCase() !== '100-continue') return 'expectation'
  return null
}

/** Does a judged head announce a body? */
export function declaresBody(headers: ReadonlyMap<string, string>): boolean {
  if (headers.has('transfer-encoding')) return true
  const length = headers.get('content-length')
  return length !== undefined && length !== '0' && Number(length) > 0
}

/** `Connection` holds `close`, alone or in a list. */
export function asksClose(connection: string | undefined): boolean {
  if (connection === undefined || connection === 'keep-alive') return false
  return connection.length === 5 ? connection.toLowerCase() === 'close' : lists(connection, 'close')
}

/**
 * Whether an answer is the last of its connection, whatever client and gateway wish. A 408 is: the rest of its request may come yet. So is an answer to
 * chunks that have not been read to their end: where they end is then the client's word alone, and readers of chunks differ (uWebSockets.js takes `9;` for
 * 155), so that what one takes for the body's bytes another serves as a request.
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
 * What a request asks to upgrade to. `h2c` alone is no such request: some clients (Java's) send it with every first request on a plain
 * connection, and RFC 9110 7.8 lets a server ignore it and answer in HTTP/1.1.
 */
export function upgradeOf(headers: ReadonlyMap<string, string>): string | undefined {
  const upgrade = headers.get('upgrade')
  return upgrade === undefined || upgrade === '' || upgrade.toLowerCase() === 'h2c' ? undefined : upgrade
}

/** Whether a request is a whole WebSocket handshake (RFC 6455 4.2.1). */
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

/** An answer's head, checked. */
export interface SafeHead {
  status: number
  /** Flat: name, value. Without what is the adapter's own. */
  pairs: readonly string[]
  /** The same as lines, each behind a line end. */
  lines: string
  /** The caller asks to close after the answer. */
  close: boolean
  /** The caller's Content-Length, of use only for HEAD; '' when none. */
  length: string
}

/**
 * R6: checks an answer's headers. A name that is no token, or a value with CR, LF, NUL or another control character, throws: uWebSockets.js
 * writes whatever it is given, so that one line break from a client's text would split the answer.
 */
export function safeHead(status: number, headers: HeaderList): SafeHead {
  if (!Number.isInteger(status) || status < 200 || status > 599)
    throw new TypeError(`not a final HTTP status: ${status}`)
  const flat = headers instanceof HeaderFields ? headers.flat : [...headers].flat()
  const head: SafeHead = { status, pairs: flat, lines: '', close: false, length: '' }
  let left = false
  for (let i = 0; i < flat.length; i += 2) {
    const field = nameOf(flat[i]!)
    const value = flat[i + 1]!
    if (field === undefined) throw new TypeError(`not a header name: ${JSON.stringify(flat[i])}`)
    if (!isFieldValue(value)) throw new TypeError(`header ${field.name} has a value that would break the answer's head`)
    if (!isOfTheAdapter(field.name)) {
      head.lines += field.prefix + value
      continue
    }
    if (field.name === 'connection') head.close ||= asksClose(value)
    else if (field.name === 'content-length') head.length = value
    left = true
  }
  if (left) head.pairs = flat.filter((_, at) => !isOfTheAdapter(flat[at - (at % 2)]!.toLowerCase()))
  return head
}

/** What a caller may name and only the adapter writes. */
function isOfTheAdapter(name: string): boolean {
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

/** Tab, printable ASCII and Latin-1: RFC 9110 5.5's field-content and obs-text. */
function isFieldValue(value: string): boolean {
  for (let i = 0; i < value.length; i++) {
    const c = value.charCodeAt(i)
    if ((c < 0x20 && c !== 0x09) || c === 0x7f || c > 0xff) return false
  }
  return true
}

const statusLines = new Map<number, string>()
/** `200 OK`: the code and its standard phrase, never text of a client's. */
export function statusLine(status: number): string {
  let line = statusLines.get(status)
  if (line === undefined) {
    line = `${status} ${STATUS_CODES[status] ?? 'Unknown'}`
    statusLines.set(status, line)
  }
  return line
}

/** RFC 9110: these have no body and no Content-Length. */
export function isBodiless(status: number): boolean {
  return status === 204 || status === 304
}
