/**
 * Reads HTTP/1.1 responses from bytes. A connection carries the replies of different tenants one after another, so
 * bytes that two readers could frame in two ways are an error, and never guessed (RFC 9112). Each connection has one
 * parser; `begin` is called before each request.
 */
import type { WireHeaders } from '../../../core/plugin.ts'
import type { HeaderValue } from '../../../core/ports/dialect.ts'

type KeptHeader = keyof WireHeaders
type Known = KeptHeader | 'content-length' | 'transfer-encoding' | 'connection'

/** What a parser reports to its connection. */
export interface ResponseHandler {
  /** @param keepAlive the server lets the connection be used again */
  head(status: number, headers: WireHeaders, keepAlive: boolean): void
  /** @param bytes all that came of the body at once, in however many chunks: a view of what was given to `execute` */
  body(bytes: Buffer): void
  end(): void
}

export class MalformedResponse extends Error {
  readonly code = 'SLUICE_HTTP_PARSE'
  constructor(what: string) {
    super(`malformed response: ${what}`)
    this.name = 'MalformedResponse'
  }
}

const HEAD = 0
const LENGTH = 1
const CHUNK_SIZE = 2
const CHUNK_DATA = 3
const CHUNK_END = 4
const TRAILERS = 5
const UNTIL_CLOSE = 6
const IDLE = 7

/** The most bytes of a head, or of the trailers. */
const MAX_HEAD = 64 * 1024
/** The most interim responses before the final one. */
const MAX_INTERIM = 16
/** The most bytes of a chunk-size line with its extensions. */
const MAX_SIZE_LINE = 4096
const EMPTY = Buffer.alloc(0)
const TAB = 9
const LF = 10
const CR = 13
const SPACE = 32
const COLON = 58
const SEMICOLON = 59
const DEL = 127
const CR_SEEN = Buffer.from([CR])

export class ResponseParser {
  readonly #handler: ResponseHandler
  #state = IDLE
  /** Bytes of a head or line that is not complete yet. */
  #kept: Buffer = EMPTY
  #remaining = 0
  /** What is executed. */
  #bytes: Buffer = EMPTY
  /** Where the body's bytes are in it: their chunks have been moved together. */
  #from = 0
  #to = 0
  #interim = 0
  #keepAlive = false
  #answersHead = false

  constructor(handler: ResponseHandler) {
    this.#handler = handler
  }

  /** A request is sent: its response comes next. */
  begin(method: string): void {
    this.#state = HEAD
    this.#interim = 0
    this.#answersHead = method === 'HEAD'
  }

  /**
   * @param chunk the parser moves bytes in it
   * @throws MalformedResponse; the connection cannot be used after that
   */
  execute(chunk: Buffer): void {
    this.#bytes = chunk
    try {
      this.#read(chunk)
    } finally {
      this.#deliver()
      this.#bytes = EMPTY
    }
  }

  /**
   * Bytes of the body, which are delivered together: a reader has fixed costs for each call.
   * @returns the index behind them
   */
  #body(at: number, length: number): number {
    if (this.#from === this.#to) this.#from = this.#to = at
    else this.#bytes.copyWithin(this.#to, at, at + length)
    this.#to += length
    return at + length
  }

  #deliver(): void {
    const from = this.#from
    const to = this.#to
    if (from === to) return
    this.#from = this.#to = 0
    const bytes = this.#bytes
    this.#handler.body(to - from === bytes.length ? bytes : bytes.subarray(from, to))
  }

  #read(chunk: Buffer): void {
    let at = 0
    while (at < chunk.length) {
      switch (this.#state) {
        case HEAD:
        case TRAILERS:
          at = this.#block(chunk, at)
          break
        case LENGTH: {
          const take = Math.min(this.#remaining, chunk.length - at)
          this.#remaining -= take
          at = this.#body(at, take)
          if (this.#remaining === 0) this.#finish()
          break
        }
        case UNTIL_CLOSE:
          at = this.#body(at, chunk.length - at)
          break
        case CHUNK_SIZE:
          at = this.#chunkSize(chunk, at)
          break
        case CHUNK_DATA: {
          const take = Math.min(this.#remaining, chunk.length - at)
          this.#remaining -= take
          at = this.#body(at, take)
          if (this.#remaining === 0) this.#state = CHUNK_END
          break
        }
        case CHUNK_END:
          if (chunk[at++] !== (this.#remaining++ === 0 ? CR : LF))
            throw new MalformedResponse('a chunk ends without CRLF')
          if (this.#remaining === 2) this.#state = CHUNK_SIZE
          break
        default:
          throw new MalformedResponse('bytes after the end of the response')
      }
    }
  }

  /**
   * The peer has closed the connection.
   * @throws MalformedResponse when the response was not whole
   */
  close(): void {
    if (this.#state === UNTIL_CLOSE) this.#finish()
    else if (this.#state !== IDLE) throw new MalformedResponse('the connection closed before the response was whole')
  }

  #finish(): void {
    this.#deliver()
    this.#state = IDLE
    this.#handler.end()
  }

  /**
   * Collects a head, or the trailers, up to the empty line.
   * @returns the index after it
   */
  #block(chunk: Buffer, at: number): number {
    const before = this.#kept.length
    const bytes = before === 0 ? chunk : Buffer.concat([this.#kept, chunk.subarray(at)])
    const from = before === 0 ? at : 0
    const end = emptyLine(bytes, before === 0 ? at : Math.max(0, before - 3))
    if ((end === -1 ? bytes.length : end) - from > MAX_HEAD)
      throw new MalformedResponse('its head, or what its trailers say, is too long')
    if (end === -1) {
      // Checked at once: bytes that are no head may never come to an end.
      if (this.#state === HEAD && !beginsLike(bytes, from, 'HTTP/1.'))
        throw new MalformedResponse('it does not begin with HTTP/1.1')
      if (hasBareLineFeed(bytes, before === 0 ? at : before)) throw new MalformedResponse('a line ends without CRLF')
      this.#kept = before === 0 ? Buffer.from(chunk.subarray(at)) : bytes
      return chunk.length
    }
    this.#kept = EMPTY
    if (this.#state === HEAD) this.#head(bytes, from, end)
    else this.#trailers(bytes, from, end)
    return before === 0 ? end + 4 : at + (end + 4 - before)
  }

  #head(bytes: Buffer, from: number, end: number): void {
    const head = new Head(bytes, from, end)
    const { status, chunked, length } = head
    if (status < 200) {
      if (status === 101) throw new MalformedResponse('it switches protocols')
      if (++this.#interim > MAX_INTERIM) throw new MalformedResponse('too many interim responses')
      return
    }
    const bodiless = this.#answersHead || status === 204 || status === 304
    const framed = bodiless || chunked || length !== -1
    this.#keepAlive = framed && !head.close && (!head.http10 || head.keep)
    this.#handler.head(status, head.headers, this.#keepAlive)
    if (bodiless || (!chunked && length === 0)) this.#finish()
    else if (chunked) this.#state = CHUNK_SIZE
    else if (length > 0) {
      this.#remaining = length
      this.#state = LENGTH
    } else this.#state = UNTIL_CLOSE
  }

  /** Trailers are checked and dropped: a model's reply has nothing in them. */
  #trailers(bytes: Buffer, from: number, end: number): void {
    for (let at = from + 2; at < end; ) at = textEnd(bytes, nameEnd(bytes, at) + 1) + 2
    this.#finish()
  }

  #chunkSize(chunk: Buffer, at: number): number {
    const end = chunk.indexOf(LF, at)
    const rest = end === -1 ? chunk.subarray(at) : chunk.subarray(at, end + 1)
    const line = this.#kept.length === 0 ? rest : Buffer.concat([this.#kept, rest])
    if (line.length > MAX_SIZE_LINE) throw new MalformedResponse('a chunk size line is too long')
    if (end === -1) {
      this.#kept = Buffer.from(line)
      return chunk.length
    }
    this.#kept = EMPTY
    if (line.length < 3 || line[line.length - 2] !== CR)
      throw new MalformedResponse('a chunk size line ends without CRLF')
    let size = 0
    let digits = 0
    for (; digits < line.length - 2; digits++) {
      const value = hexValue(line[digits]!)
      if (value === -1) break
      size = size * 16 + value
      if (digits >= 13) throw new MalformedResponse('a chunk is too large')
    }
    if (digits === 0) throw new MalformedResponse('a chunk size is no number')
    // Extensions are allowed and ignored; anything else is not a size.
    let after = digits
    while (isBlank(line[after]!)) after++
    if (line[after] !== CR && line[after] !== SEMICOLON) throw new MalformedResponse('a chunk size is no number')
    textEnd(line, after)
    this.#remaining = size
    this.#state = size === 0 ? TRAILERS : CHUNK_DATA
    if (size > 0) return end + 1
    // The CRLF of this line begins the trailers: if another CRLF follows directly, there are none.
    if (end > at) return end - 1
    this.#kept = CR_SEEN
    return end
  }
}

/** A response's head, read from its bytes. There is an empty line at `to`, so every line has an end. */
class Head {
  readonly status: number
  readonly http10: boolean
  readonly headers: Record<KeptHeader, HeaderValue | undefined> = {
    'content-type': undefined,
    'content-encoding': undefined,
    'keep-alive': undefined,
    'retry-after': undefined,
    'retry-after-ms': undefined,
    date: undefined,
  }
  /** -1 when there is no Content-Length. */
  length = -1
  chunked = false
  close = false
  keep = false
  #transfer: string | undefined

  constructor(bytes: Buffer, from: number, to: number) {
    this.http10 = beginsLike(bytes, from, 'HTTP/1.0 ')
    if (!this.http10 && !beginsLike(bytes, from, 'HTTP/1.1 '))
      throw new MalformedResponse('it does not begin with HTTP/1.1')
    const reason = from + 12
    this.status = wholeNumber(bytes, from + 9, reason)
    if (this.status < 100 || (bytes[reason] !== SPACE && bytes[reason] !== CR))
      throw new MalformedResponse('its status is no number')
    const end = textEnd(bytes, reason)
    for (let at = end + 2; at < to; ) at = this.#line(bytes, at) + 2
    if (this.#transfer === undefined) return
    // Two framings in one response allow response smuggling (RFC 9112 6.3).
    if (this.#transfer.toLowerCase() !== 'chunked' || this.length !== -1 || this.http10)
      throw new MalformedResponse('its framing is ambiguous')
    this.chunked = true
  }

  /** @returns the index at which the line that begins at `at` ends */
  #line(bytes: Buffer, at: number): number {
    const colon = nameEnd(bytes, at)
    const end = textEnd(bytes, colon + 1)
    const name = knownName(bytes, at, colon)
    if (name === undefined) return end
    let from = colon + 1
    let to = end
    while (from < to && isBlank(bytes[from]!)) from++
    while (to > from && isBlank(bytes[to - 1]!)) to--
    if (name === 'content-length') this.#contentLength(bytes, from, to)
    else this.#known(name, bytes.toString('latin1', from, to))
    return end
  }

  #contentLength(bytes: Buffer, from: number, to: number): void {
    const length = to - from > 15 ? -1 : wholeNumber(bytes, from, to)
    if (length === -1) throw new MalformedResponse('its Content-Length is no number')
    if (this.length !== -1 && this.length !== length) throw new MalformedResponse('it has two Content-Lengths')
    this.length = length
  }

  #known(name: Exclude<Known, 'content-length'>, value: string): void {
    if (name === 'transfer-encoding') {
      this.#transfer = this.#transfer === undefined ? value : `${this.#transfer}, ${value}`
    } else if (name === 'connection') {
      const options = value.toLowerCase()
      if (hasOption(options, 'close')) this.close = true
      if (hasOption(options, 'keep-alive')) this.keep = true
    } else {
      const former = this.headers[name]
      if (Array.isArray(former)) former.push(value)
      else this.headers[name] = former === undefined ? value : [former, value]
    }
  }
}

/** Index of the last line's CRLF, which the empty line that ends a head follows; -1 when it is not in these bytes. */
function emptyLine(bytes: Buffer, from: number): number {
  // Steps of four bytes are safe: one of the last four bytes of a head is always met.
  for (let i = from + 3; i < bytes.length; ) {
    const c = bytes[i]
    if (c === CR) i++
    else if (c !== LF) i += 4
    else if (bytes[i - 1] === CR && bytes[i - 2] === LF && bytes[i - 3] === CR) return i - 3
    else i += 2
  }
  return -1
}

/**
 * Whether a line feed at or after `from` has no CR before it: some readers would see the end of a line there, others
 * not.
 */
function hasBareLineFeed(bytes: Buffer, from: number): boolean {
  for (let at = bytes.indexOf(LF, from); at !== -1; at = bytes.indexOf(LF, at + 1))
    if (bytes[at - 1] !== CR) return true
  return false
}

/**
 * Index of the colon after the header name that begins at `at`.
 * @throws MalformedResponse
 */
function nameEnd(bytes: Buffer, at: number): number {
  let colon = at
  while (LOWER_TOKEN[bytes[colon]!] !== 0) colon++
  if (colon === at || bytes[colon] !== COLON)
    throw new MalformedResponse('a header line is not a name, a colon and a value')
  return colon
}

/**
 * Index of the CRLF that ends the line, searched from `at`.
 * @throws MalformedResponse when a control character, or half of a CRLF, comes first
 */
function textEnd(bytes: Buffer, at: number): number {
  for (let end = at; ; end++) {
    const c = bytes[end]!
    if ((c >= SPACE && c !== DEL) || c === TAB) continue
    if (c === CR && bytes[end + 1] === LF) return end
    throw new MalformedResponse('a line has control characters')
  }
}

/** Whether the bytes from `at` equal this text, as far as there are any. */
function beginsLike(bytes: Buffer, at: number, text: string): boolean {
  const length = Math.min(text.length, bytes.length - at)
  for (let i = 0; i < length; i++) if (bytes[at + i] !== text.charCodeAt(i)) return false
  return true
}

/** A number that consists of digits alone; -1 when it does not. */
function wholeNumber(bytes: Buffer, from: number, to: number): number {
  let value = 0
  for (let i = from; i < to; i++) {
    const digit = bytes[i]! - 0x30
    if (!(digit >= 0 && digit <= 9)) return -1
    value = value * 10 + digit
  }
  return from === to ? -1 : value
}

function isBlank(c: number): boolean {
  return c === SPACE || c === TAB
}

function hasOption(options: string, option: string): boolean {
  return options === option || options.split(',').some(part => part.trim() === option)
}

/** The lower case of each byte that a token may hold; 0 for the others (RFC 9110 5.6.2). */
const LOWER_TOKEN = new Uint8Array(256)
for (const c of "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz") {
  LOWER_TOKEN[c.charCodeAt(0)] = c.charCodeAt(0)
  LOWER_TOKEN[c.toUpperCase().charCodeAt(0)] = c.charCodeAt(0)
}

const KNOWN: Record<Known, true> = {
  'content-type': true,
  'content-encoding': true,
  'content-length': true,
  'transfer-encoding': true,
  connection: true,
  'keep-alive': true,
  'retry-after': true,
  'retry-after-ms': true,
  date: true,
}
/** The known names by length: a head has a dozen names that nobody reads, and the length alone rules out most. */
const BY_LENGTH: Known[][] = []
for (const name of Object.keys(KNOWN) as Known[]) (BY_LENGTH[name.length] ??= []).push(name)

/** The name of a header line, if the gateway reads it. */
function knownName(bytes: Buffer, from: number, to: number): Known | undefined {
  const names = BY_LENGTH[to - from]
  if (names === undefined) return undefined
  for (let n = 0; n < names.length; n++) {
    const name = names[n]!
    let i = 0
    while (i < name.length && LOWER_TOKEN[bytes[from + i]!] === name.charCodeAt(i)) i++
    if (i === name.length) return name
  }
  return undefined
}

function hexValue(c: number): number {
  if (c >= 0x30 && c <= 0x39) return c - 0x30
  if (c >= 0x61 && c <= 0x66) return c - 0x57
  if (c >= 0x41 && c <= 0x46) return c - 0x37
  return -1
}
