/** What a provider says of its own failure: for the log, the dashboard and whoever debugs. A client never sees it. */
import { wordOf } from '../tools/word.ts'

/** Most that the log takes of a provider's words, in bytes of UTF-8. */
const MOST_WORDS = 1024
/** A value this short is no secret, and would be found in the middle of words. */
const LEAST_SECRET = 8
/** Headers that hold no secret: replacing their values would only make the words harder to read. */
const PUBLIC: ReadonlySet<string> = new Set(['content-type', 'accept', 'anthropic-version', 'anthropic-beta'])

export class UpstreamFault {
  /** Of the provider's error object; undefined where it has none, or where it is a sentence instead of a word. */
  readonly type: string | undefined
  readonly code: string | undefined
  readonly param: string | undefined
  /** The provider refused the request as it was written: its words tell what was wrong with it. */
  ofRequest = false
  /** The provider's error object, or what it sent in its place. */
  readonly error: unknown
  /** The provider's sentence as it came. It may quote the prompt and the request's headers. */
  readonly #message: string
  #secrets: readonly string[] = []

  constructor(error: unknown, type: unknown, code: unknown, param: unknown, message: unknown) {
    this.error = error
    this.type = wordOf(type)
    this.code = wordOf(code)
    this.param = wordOf(param)
    this.#message = typeof message === 'string' ? message : message === undefined ? '' : JSON.stringify(message)
  }

  /** Of a reply's body: the error object of OpenAI, Anthropic or Google, alone or in an array; else the text itself. */
  static ofBody(body: string): UpstreamFault {
    try {
      const parsed: unknown = JSON.parse(body)
      const value: unknown = Array.isArray(parsed) ? parsed[0] : parsed
      return UpstreamFault.of(isRecord(value) ? (value['error'] ?? value) : value)
    } catch {
      return UpstreamFault.of(body.trim())
    }
  }

  /** Of an error object, or of what stands in its place. */
  static of(error: unknown): UpstreamFault {
    if (!isRecord(error)) return new UpstreamFault(error, undefined, undefined, undefined, error)
    // Google calls its type `status` and names members in `details`; servers built on FastAPI call the message
    // `detail`.
    const { type, status, code, param, message, detail, details } = error
    return new UpstreamFault(error, type ?? status, code, param ?? violatedField(details), message ?? detail)
  }

  /** Keeps what the gateway sent as these headers out of what is told. */
  conceal(headers: Readonly<Record<string, string>>): void {
    this.#secrets = Object.entries(headers)
      .filter(([name]) => !PUBLIC.has(name.toLowerCase()))
      .map(([, value]) => value.replace(/^\w+ /, ''))
      .filter(value => value.length >= LEAST_SECRET)
  }

  /**
   * The provider's words, at most 1 KiB; '' when it said nothing. They may hold user data: the log's settings say
   * whether it writes them.
   */
  get words(): string {
    const bytes = Buffer.from(this.#conceal(this.#message))
    return bytes.length <= MOST_WORDS
      ? bytes.toString()
      : `${bytes.toString('utf8', 0, MOST_WORDS - 3).replace(/\ufffd$/, '')}…`
  }

  /** What every log line may hold: no words of the provider. That it said nothing is told, else nobody could find out. */
  toJSON(): { type?: string; code?: string; param?: string; message?: string } {
    const shown = (word: string | undefined) => (word === undefined ? undefined : this.#conceal(word))
    const members = { type: shown(this.type), code: shown(this.code), param: shown(this.param) }
    return this.error === '' ? { ...members, message: 'empty body' } : members
  }

  #conceal(text: string): string {
    return this.#secrets.reduce((rest, secret) => rest.replaceAll(secret, '[secret]'), text)
  }
}

/** A reply that can't be read. The message is the gateway's own and holds nothing of the reply. */
export class UnreadableReply extends Error {
  override readonly name = 'UnreadableReply'
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** `details: [{ fieldViolations: [{ field }] }]`: the first field that Google names. */
function violatedField(details: unknown): unknown {
  if (!Array.isArray(details)) return undefined
  for (const detail of details) {
    const violations: unknown = isRecord(detail) ? detail['fieldViolations'] : undefined
    if (Array.isArray(violations) && isRecord(violations[0])) return violations[0]['field']
  }
  return undefined
}
