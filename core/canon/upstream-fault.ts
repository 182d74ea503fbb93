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

  /**
   * @param error the provider's error object, or what it sent in its place
   * @param said its members; what is no word of a list is left out
   */
  constructor(error: unknown, said: { type?: unknown; code?: unknown; param?: unknown; message?: unknown }) {
    const { type, code, param, message } = said
    this.error = error
    this.type = wordOf(type)
    this.code = wordOf(code)
    this.param = wordOf(param)
    this.#message = typeof message === 'string' ? message : message === undefined ? '' : JSON.stringify(message)
  }

  /** Redacts the values of these request headers in `words` and `toJSON`. */
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

  /**
   * What every log line may hold: no words of the provider. That it said nothing is logged, else nobody could find out.
   */
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
