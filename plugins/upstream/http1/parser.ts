/**
 * Reads HTTP/1.1 responses from bytes, as strict as a client must be that shares connections: what is ambiguous is an error, never a guess (RFC 9112).
 * One parser for each connection; `begin` before each request.
 */

/** What a parser tells its connection. Body chunks are views of the bytes given to `execute`. */
export interface ResponseHandler {
  /** @param keepAlive the server lets the connection be used again */
  head(status: number, headers: Record<string, string | string[]>, keepAlive: boolean): void
  body(chunk: Buffer): void
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

/** A head, or the trailers, may be this long. */
const MAX_HEAD = 64 * 1024
/** Interim responses before the real one. */
const MAX_INTERIM = 16
/** A chunk-size line with its extensions. */
const MAX_SIZE_LINE = 4096
const EMPTY = Buffer.alloc(0)
const CR = 13
const LF = 10

export class ResponseParser {
  readonly #handler: ResponseHandler
  #state = IDLE
  /** Bytes of a head or line that is not whole yet. */
  #held: Buffer = EMPTY
  #remaining = 0
  #interim = 0
  #keepAlive = false
  #answersHead = false

  constructor(handler: ResponseHandler) {
    this.#handler = handler
  }

  /** A request goes out: its response is next. */
  begin(method: string): void {
    this.#state = HEAD
    this.#interim = 0
    this.#answersHead = method === 'HEAD'
  }

  /** True between responses. */
  get idle(): boolean {
    return this.#state === IDLE
  }

  /** @throws MalformedResponse; the connection is of no more use then */
  execute(chunk: Buffer): void {
    let at = 0
    while (at < chunk.length) {
      switch (this.#state) {
        case HEAD:
          at = this.#head(chunk, at)
          break
        case LENGTH: {
          const take = Math.min(this.#remaining, chunk.length - at)
          this.#remaining -= take
          this.#handler.body(take === chunk.length ? chunk : chunk.subarray(at, at + take))
          at += take
          if (this.#remaining === 0) this.#finish()
          break
        }
        case UNTIL_CLOSE:
          this.#handler.body(at === 0 ? chunk : chunk.subarray(at))
          at = chunk.length
          break
        case CHUNK_SIZE:
          at = this.#chunkSize(chunk, at)
          break
        case CHUNK_DATA: {
          const take = Math.min(this.#remaining, chunk.length - at)
          this.#remaining -= take
          this.#handler.body(chunk.subarray(at, at + take))
          at += take
          if (this.#remaining === 0) this.#state = CHUNK_END
          break
        }
        case CHUNK_END:
          at = this.#chunkEnd(chunk, at)
          break
        case TRAILERS:
          at = this.#trailers(chunk, at)
          break
        default:
          throw new MalformedResponse('bytes after the end of the response')
      }
    }
  }

  /** The peer has closed. @throws MalformedResponse when the response was not whole */
  close(): void {
    if (this.#state === UNTIL_CLOSE) this.#finish()
    else if (this.#state !== IDLE) throw new MalformedResponse('the connection closed before the response was whole')
  }

  #finish(): void {
    this.#state = IDLE
    this.#handler.end()
  }

  /** Takes what belongs to a head or trailer block ending in an empty line; returns it whole, or null while it is not. */
  #block(chunk: Buffer, at: number): { text: string; next: number } | null {
    if (this.#held.length === 0) {
      const end = chunk.indexOf('\r\n\r\n', at, 'latin1')
      if (end !== -1) return { text: chunk.toString('latin1', at, end), next: end + 4 }
    }
    const before = this.#held.length
    const joined = before === 0 ? Buffer.from(chunk.subarray(at)) : Buffer.concat([this.#held, chunk.subarray(at)])
    const end = joined.indexOf('\r\n\r\n', Math.max(0, before - 3), 'latin1')
    if (end === -1) {
      if (joined.length > MAX_HEAD) throw new MalformedResponse('its head is too long')
      this.#held = joined
      return null
    }
    this.#held = EMPTY
    return { text: joined.toString('latin1', 0, end), next: at + (end + 4 - before) }
  }

  #head(chunk: Buffer, at: number): number {
    const block = this.#block(chunk, at)
    if (!block) return chunk.length
    if (block.text.length > MAX_HEAD) throw new MalformedResponse('its head is too long')
    const { status, http10, headers, length, chunked, close, keep } = readHead(block.text)
    if (status < 200) {
      if (status === 101) throw new MalformedResponse('it switches protocols')
      if (++this.#interim > MAX_INTERIM) throw new MalformedResponse('too many interim responses')
      return block.next
    }
    const bodiless = this.#answersHead || status === 204 || status === 304
    const framed = bodiless || chunked || length !== -1
    this.#keepAlive = framed && !close && (!http10 || keep)
    this.#handler.head(status, headers, this.#keepAlive)
    if (bodiless || (!chunked && length === 0)) this.#finish()
    else if (chunked) this.#state = CHUNK_SIZE
    else if (length > 0) {
      this.#remaining = length
      this.#state = LENGTH
    } else this.#state = UNTIL_CLOSE
    return block.next
  }

  #chunkSize(chunk: Buffer, at: number): number {
    const end = chunk.indexOf(LF, at)
    const rest = end === -1 ? chunk.subarray(at) : chunk.subarray(at, end + 1)
    const line = this.#held.length === 0 ? rest : Buffer.concat([this.#held, rest])
    if (line.length > MAX_SIZE_LINE) throw new MalformedResponse('a chunk size line is too long')
    if (end === -1) {
      this.#held = Buffer.from(line)
      return chunk.length
    }
    this.#held = EMPTY
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
    const after = line[digits]
    // Extensions are allowed and ignored; anything else is not a size.
    if (digits === 0 || (after !== CR && after !== 0x3b && after !== 0x20 && after !== 0x09))
      throw new MalformedResponse('a chunk size is no number')
    this.#remaining = size
    this.#state = size === 0 ? TRAILERS : CHUNK_DATA
    return end + 1
  }

  #chunkEnd(chunk: Buffer, at: number): number {
    const expected = this.#held.length === 0 ? CR : LF
    if (chunk[at] !== expected) throw new MalformedResponse('a chunk ends without CRLF')
    if (expected === CR) {
      if (at + 1 < chunk.length) {
        if (chunk[at + 1] !== LF) throw new MalformedResponse('a chunk ends without CRLF')
        this.#state = CHUNK_SIZE
        return at + 2
      }
      this.#held = CR_SEEN
      return at + 1
    }
    this.#held = EMPTY
    this.#state = CHUNK_SIZE
    return at + 1
  }

  /** Trailers are read and dropped: nothing of a model's reply stands there. */
  #trailers(chunk: Buffer, at: number): number {
    // No trailers is the rule: the block is one empty line.
    const have = this.#held.length + chunk.length - at
    if (this.#held.length === 0 && have >= 2 && chunk[at] === CR && chunk[at + 1] === LF) {
      this.#finish()
      return at + 2
    }
    const joined =
      this.#held.length === 0 ? Buffer.from(chunk.subarray(at)) : Buffer.concat([this.#held, chunk.subarray(at)])
    let end = joined.length >= 2 && joined[0] === CR && joined[1] === LF ? 0 : joined.indexOf('\r\n\r\n', 0, 'latin1')
    if (end === -1) {
      if (joined.length > MAX_HEAD) throw new MalformedResponse('its trailers are too long')
      this.#held = joined
      return chunk.length
    }
    end += end === 0 ? 2 : 4
    const next = at + end - this.#held.length
    this.#held = EMPTY
    this.#finish()
    return next
  }
}

const CR_SEEN = Buffer.from([CR])

interface Head {
  status: number
  http10: boolean
  headers: Record<string, string | string[]>
  /** -1 when there is none. */
  length: number
  chunked: boolean
  close: boolean
  keep: boolean
}

function readHead(text: string): Head {
  let end = text.indexOf('\r\n')
  if (end === -1) end = text.length
  const http10 = text.startsWith('HTTP/1.0 ')
  if (!http10 && !text.startsWith('HTTP/1.1 ')) throw new MalformedResponse('it does not begin with HTTP/1.1')
  const status = (text.charCodeAt(9) - 48) * 100 + (text.charCodeAt(10) - 48) * 10 + (text.charCodeAt(11) - 48)
  const after = end > 12 ? text.charCodeAt(12) : 0x20
  if (!(status >= 100 && status <= 999) || after !== 0x20 || !digits(text, 9, 12))
    throw new MalformedResponse('its status is no number')

  const head: Head = {
    status,
    http10,
    headers: Object.create(null),
    length: -1,
    chunked: false,
    close: false,
    keep: false,
  }
  let transfer: string | undefined
  let at = end + 2
  while (at < text.length) {
    end = text.indexOf('\r\n', at)
    if (end === -1) end = text.length
    const colon = text.indexOf(':', at)
    if (colon === -1 || colon >= end) throw new MalformedResponse('a header line has no colon')
    const name = text.slice(at, colon).toLowerCase()
    if (!isToken(name)) throw new MalformedResponse('a header name is not a token')
    const value = trimmed(text, colon + 1, end)
    if (name === 'content-length') head.length = lengthOf(value, head.length)
    else if (name === 'transfer-encoding') transfer = transfer === undefined ? value : `${transfer}, ${value}`
    else if (name === 'connection') {
      const options = value.toLowerCase()
      if (hasOption(options, 'close')) head.close = true
      if (hasOption(options, 'keep-alive')) head.keep = true
    }
    const former = head.headers[name]
    head.headers[name] = former === undefined ? value : Array.isArray(former) ? [...former, value] : [former, value]
    at = end + 2
  }
  if (transfer !== undefined) {
    // Both framings at once is how responses are smuggled (RFC 9112 6.3).
    if (transfer.toLowerCase() !== 'chunked' || head.length !== -1 || http10)
      throw new MalformedResponse('its framing is ambiguous')
    head.chunked = true
  }
  return head
}

function digits(text: string, from: number, to: number): boolean {
  for (let i = from; i < to; i++) {
    const c = text.charCodeAt(i)
    if (!(c >= 0x30 && c <= 0x39)) return false
  }
  return true
}

function lengthOf(value: string, former: number): number {
  if (value.length === 0 || value.length > 15 || !digits(value, 0, value.length))
    throw new MalformedResponse('its Content-Length is no number')
  const length = Number(value)
  if (former !== -1 && former !== length) throw new MalformedResponse('it has two Content-Lengths')
  return length
}

function hasOption(options: string, option: string): boolean {
  return options === option || options.split(',').some(part => part.trim() === option)
}

/** A header value without its surrounding spaces and tabs; control characters are refused. */
function trimmed(text: string, from: number, to: number): string {
  while (from < to && (text.charCodeAt(from) === 0x20 || text.charCodeAt(from) === 0x09)) from++
  while (to > from && (text.charCodeAt(to - 1) === 0x20 || text.charCodeAt(to - 1) === 0x09)) to--
  for (let i = from; i < to; i++) {
    const c = text.charCodeAt(i)
    if ((c < 0x20 && c !== 0x09) || c === 0x7f) throw new MalformedResponse('a header value has control characters')
  }
  return text.slice(from, to)
}

/** RFC 9110 5.6.2, on text already in lower case. */
function isToken(name: string): boolean {
  if (name.length === 0) return false
  for (let i = 0; i < name.length; i++) {
    const c = name.charCodeAt(i)
    const plain = (c >= 0x61 && c <= 0x7a) || (c >= 0x30 && c <= 0x39) || c === 0x2d || c === 0x5f
    if (!plain && !"!#$%&'*+.^`|~".includes(name[i]!)) return false
  }
  return true
}

function hexValue(c: number): number {
  if (c >= 0x30 && c <= 0x39) return c - 0x30
  if (c >= 0x61 && c <= 0x66) return c - 0x57
  if (c >= 0x41 && c <= 0x46) return c - 0x37
  return -1
}
