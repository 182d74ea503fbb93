/** Masks a conversation: each text that users and tools write, in slices. */
import type { Conversation } from 'sluice'
import type { Finder, Pace, Slices, Span } from './find.ts'
import { isJson, rewriteJson } from './json.ts'

type Part = Conversation['turns'][number]['parts'][number]

/** What making a token takes, in units of the pace: a digest. */
const TOKEN_UNITS = 1000
/** What a part of a prompt takes beside its texts, in units of the pace. */
const PART_UNITS = 32

/** Masks the texts of one prompt. */
export class Masking {
  /** The data that were masked, by token. */
  readonly data = new Map<string, string>()
  readonly #tokens = new Map<string, string>()
  readonly #finder: Finder
  readonly #tokenOf: (kind: string, data: string) => string
  readonly #pace: Pace

  constructor(finder: Finder, tokenOf: (kind: string, data: string) => string, pace: Pace) {
    this.#finder = finder
    this.#tokenOf = tokenOf
    this.#pace = pace
  }

  /** Images and PDF files are not read. @throws OverBound */
  *conversation(asked: Conversation): Slices<Conversation> {
    const system = yield* each(asked.system, part => this.#part(part))
    const turns = yield* each(asked.turns, turn => this.#turn(turn))
    const stop = yield* each(asked.sampling.stop, text => this.text(text))
    return { ...asked, system, turns, sampling: { ...asked.sampling, stop } }
  }

  /** @param quote is written around each token */
  *text(text: string, quote = ''): Slices<string> {
    const spans = yield* this.#finder.find(text, this.#pace)
    if (spans.length === 0) return text
    const written: string[] = []
    let at = 0
    for (const span of spans) {
      written.push(text.slice(at, span.start), quote, this.#token(text, span), quote)
      at = span.end
      if (this.#pace.spent(TOKEN_UNITS)) yield
    }
    written.push(text.slice(at))
    return written.join('')
  }

  /** Within the strings of a JSON text, whose other bytes stay; a card number outside of them becomes a string. */
  *json(text: string): Slices<string> {
    if (!(yield* isJson(text, this.#pace))) return yield* this.text(text)
    return yield* rewriteJson(
      text,
      string => this.text(string),
      piece => this.text(piece, '"'),
      this.#pace,
    )
  }

  #token(text: string, { kind, start, end }: Span): string {
    const data = text.slice(start, end)
    const known = `${kind}\n${data}`
    let token = this.#tokens.get(known)
    if (token === undefined) {
      token = this.#tokenOf(kind, data)
      this.#tokens.set(known, token)
      this.data.set(token, data)
    }
    return token
  }

  *#turn<T extends Conversation['turns'][number]>(turn: T): Slices<T> {
    return withMembers(turn, { parts: yield* each(turn.parts, part => this.#part(part)) } as Partial<T>)
  }

  /** The part with its texts masked. */
  *#part<P extends Part>(part: P): Slices<P> {
    if (this.#pace.spent(PART_UNITS)) yield
    return withMembers(part, (yield* this.#texts(part)) as Partial<P>)
  }

  /** The members of a part that hold its texts, masked. */
  *#texts(part: Part): Slices<Partial<Part>> {
    switch (part.type) {
      case 'text':
      case 'refusal':
        return { text: yield* this.text(part.text) }
      case 'document': {
        const { source, title, context } = part
        return {
          ...(source.kind === 'text' && {
            source: withMembers(source, { text: yield* this.text(source.text) }),
          }),
          ...(title !== undefined && { title: yield* this.text(title) }),
          ...(context !== undefined && { context: yield* this.text(context) }),
        }
      }
      case 'call':
        return { input: yield* part.kind === 'function' ? this.json(part.input) : this.text(part.input) }
      case 'result':
        return { content: yield* each(part.content, content => this.#part(content)) }
      case 'reasoning':
        return { summary: yield* each(part.summary, text => this.text(text)) }
      case 'search':
        return {
          query: yield* this.text(part.query),
          results: yield* each(part.results, result => this.#result(result)),
        }
      case 'image':
        return {}
    }
  }

  *#result<R extends { title: string; text?: string }>(result: R): Slices<R> {
    const title = yield* this.text(result.title)
    const text = result.text === undefined ? undefined : yield* this.text(result.text)
    return withMembers(result, { title, ...(text !== undefined && { text }) } as Partial<R>)
  }
}

/** Each item as `work` makes it; the list itself when no item changes. */
function* each<T>(list: T[], work: (item: T) => Slices<T>): Slices<T[]> {
  let changed: T[] | null = null
  for (let i = 0; i < list.length; i++) {
    const item = yield* work(list[i]!)
    if (changed === null && item !== list[i]) changed = list.slice()
    if (changed !== null) changed[i] = item
  }
  return changed ?? list
}

/** The object with these members; the object itself when none of them differs. */
function withMembers<T extends object>(of: T, members: Partial<T>): T {
  const names = Object.keys(members) as (keyof T)[]
  return names.some(name => members[name] !== of[name]) ? { ...of, ...members } : of
}
