/**
 * The directives that a prompt or the `x-sim` header may give the simulator:
 * `[[sim: delay 500ms; tokens 200; cut 5]]`. README.md lists all of them. A directive that cannot be read throws a
 * `DirectiveError`: a typo in a test must not look like a passing test.
 */

export interface Directives {
  /** Milliseconds to wait before the head is sent. */
  delay: number
  /** Milliseconds to wait between two events. */
  pace: number
  /** The length of the generated text in tokens (words). */
  tokens?: number
  /** Characters in each text delta; undefined: one word in each. */
  chunk?: number
  text?: string
  refuse?: string
  /** Reasoning: the number of summary sentences, and the reported tokens. */
  reason?: { sentences: number; tokens?: number }
  /**
   * The calls of each round. The first round is made at once, each later one when the results of the round before it
   * have arrived.
   */
  rounds: ToolRequest[][]
  search?: string
  /** Stop sending after this many events, and keep the connection open. */
  stall?: number
  /** Reset the connection after this many events or bytes. */
  cut?: { after: number; unit: 'events' | 'bytes' }
  /** Send FIN in the middle of the HTTP body, after this many events. */
  close?: number
  /** End the HTTP body properly after this many events, without the dialect's terminal event. */
  end?: number
  status?: { status: number; retryAfter?: string; body: 'json' | 'html' | 'empty'; kind?: ErrorKind }
  error?: { kind: ErrorKind; after: number }
  malformed?: { what: 'json' | 'event' | 'utf8'; after: number }
  usage?: 'none' | 'late' | 'negative'
  finish?: string
  /** The number of bytes in one write. */
  split?: number
  quirks: Set<Quirk>
}

/** A requested call. `arguments` is JSON text, or, when `plain`, the plain input of a custom tool. */
export interface ToolRequest {
  name: string
  arguments: string
  plain: boolean
}

/** The kinds of errors that a directive can request. Each dialect has its own form of them. */
export const ERROR_KINDS = [
  'server',
  'overloaded',
  'rate',
  'quota',
  'context',
  'policy',
  'auth',
  'timeout',
  'invalid',
] as const
export type ErrorKind = (typeof ERROR_KINDS)[number]

/** Deviations of real servers from the official APIs. */
export const QUIRKS = [
  'crlf',
  'cr',
  'comments',
  'bom',
  'no-done',
  'no-finish',
  'index-0',
  'no-index',
  'empty-names',
  'stop-with-calls',
  'gzip',
] as const
export type Quirk = (typeof QUIRKS)[number]

/** Thrown for a directive that cannot be read. */
export class DirectiveError extends Error {}

export function noDirectives(): Directives {
  return { delay: 0, pace: 0, rounds: [], quirks: new Set() }
}

/** Reads every `[[sim: …]]` block of a text. */
export function directivesIn(text: string, into: Directives = noDirectives()): Directives {
  for (let at = text.indexOf('[[sim:'); at !== -1; at = text.indexOf('[[sim:', at)) {
    const reader = new Reader(text, at + 6)
    readAll(reader, into)
    if (!reader.take(']]')) throw new DirectiveError(`a [[sim: block has no ]] at ${reader.near()}`)
    at = reader.at
  }
  return into
}

/** Reads directives without brackets, as in the `x-sim` header. */
export function readDirectives(text: string, into: Directives = noDirectives()): Directives {
  const reader = new Reader(text, 0)
  readAll(reader, into)
  if (!reader.done()) throw new DirectiveError(`unexpected ${reader.near()}`)
  return into
}

/** The text without its `[[sim: …]]` blocks, to repeat it in the reply. */
export function withoutDirectives(text: string): string {
  let out = ''
  let from = 0
  for (let at = text.indexOf('[[sim:'); at !== -1; at = text.indexOf('[[sim:', from)) {
    out += text.slice(from, at)
    const reader = new Reader(text, at + 6)
    readAll(reader, noDirectives())
    reader.take(']]')
    from = reader.at
  }
  return (out + text.slice(from)).trim()
}

function readAll(reader: Reader, into: Directives): void {
  do {
    if (reader.done() || reader.peek(']]')) return
    readOne(reader, into)
  } while (reader.take(';'))
}

function readOne(reader: Reader, into: Directives): void {
  const name = reader.word()
  switch (name) {
    case 'delay':
    case 'pace':
      into[name] = reader.duration()
      return
    case 'tokens':
    case 'chunk':
    case 'split':
      into[name] = reader.number()
      return
    case 'text':
    case 'search':
      into[name] = reader.string()
      return
    case 'refuse':
      into.refuse = reader.atString() ? reader.string() : 'I can’t help with that.'
      return
    case 'reason':
      into.reason = { sentences: reader.number() }
      if (reader.take('tokens')) into.reason.tokens = reader.number()
      return
    case 'hidden':
      into.reason = { sentences: 0, tokens: reader.number() }
      return
    case 'next':
      into.rounds.push([])
      if (!reader.done() && !reader.peek(';') && !reader.peek(']]')) readOne(reader, into)
      return
    case 'call': {
      if (into.rounds.length === 0) into.rounds.push([])
      const tool = reader.word()
      const plain = reader.atString()
      into.rounds.at(-1)!.push({ name: tool, plain, arguments: plain ? reader.string() : reader.json() })
      return
    }
    case 'stall':
    case 'close':
    case 'end':
      into[name] = reader.atNumber() ? reader.number() : 0
      return
    case 'cut': {
      const unit = reader.take('byte') ? 'bytes' : 'events'
      into.cut = { unit, after: reader.atNumber() ? reader.number() : 0 }
      return
    }
    case 'status': {
      const status: Directives['status'] = { status: reader.number(), body: 'json' }
      for (;;) {
        if (reader.take('retry-after')) status.retryAfter = reader.word()
        else if (reader.take('html')) status.body = 'html'
        else if (reader.take('empty')) status.body = 'empty'
        else if (reader.take('code')) status.kind = reader.oneOf(ERROR_KINDS)
        else break
      }
      into.status = status
      return
    }
    case 'error':
      into.error = { kind: reader.oneOf(ERROR_KINDS), after: after(reader) }
      return
    case 'malformed':
      into.malformed = { what: reader.oneOf(['json', 'event', 'utf8'] as const), after: after(reader) }
      return
    case 'usage':
      into.usage = reader.oneOf(['none', 'late', 'negative'] as const)
      return
    case 'finish':
      into.finish = reader.word()
      return
    case 'quirk':
      into.quirks.add(reader.oneOf(QUIRKS))
      return
  }
  throw new DirectiveError(`unknown directive '${name}'`)
}

function after(reader: Reader): number {
  return reader.take('after') ? reader.number() : 1
}

class Reader {
  readonly text: string
  at: number

  constructor(text: string, at: number) {
    this.text = text
    this.at = at
  }

  done(): boolean {
    this.#space()
    return this.at >= this.text.length
  }

  peek(token: string): boolean {
    this.#space()
    return this.text.startsWith(token, this.at)
  }

  /** Consumes a token when it comes next; a token that is a word must end there. @returns true when it was consumed */
  take(token: string): boolean {
    if (!this.peek(token)) return false
    const next = this.text[this.at + token.length]
    if (/\w$/.test(token) && next !== undefined && /[\w-]/.test(next)) return false
    this.at += token.length
    return true
  }

  word(): string {
    return this.#match(/[^\s;\]"{}]+/y, 'a word')
  }

  number(): number {
    return Number(this.#match(/\d+/y, 'a number'))
  }

  duration(): number {
    const [, amount, unit] = /^(\d+)(ms|s)?$/.exec(this.word()) ?? []
    if (amount === undefined) throw new DirectiveError(`a duration such as 500ms was expected before ${this.near()}`)
    return Number(amount) * (unit === 's' ? 1000 : 1)
  }

  atNumber(): boolean {
    this.#space()
    return /\d/.test(this.text[this.at] ?? '')
  }

  atString(): boolean {
    return this.peek('"')
  }

  /** Reads a JSON string. */
  string(): string {
    return JSON.parse(this.#match(/"(?:[^"\\]|\\.)*"/sy, 'a string in double quotes')) as string
  }

  /** Reads a JSON object; returns its text unchanged, `{}` when there is none. */
  json(): string {
    if (!this.peek('{')) return '{}'
    const start = this.at
    let depth = 0
    do {
      const char = this.text[this.at]
      if (char === undefined)
        throw new DirectiveError(`the arguments at ${this.text.slice(start, start + 40)} have no end`)
      if (char === '"') {
        this.#match(/"(?:[^"\\]|\\.)*"/sy, 'a JSON string')
        continue
      }
      if (char === '{' || char === '[') depth++
      if (char === '}' || char === ']') depth--
      this.at++
    } while (depth > 0)
    return this.text.slice(start, this.at)
  }

  oneOf<T extends string>(words: readonly T[]): T {
    const word = this.word()
    const found = words.find(known => known === word)
    if (found === undefined) throw new DirectiveError(`'${word}' is not one of ${words.join(', ')}`)
    return found
  }

  near(): string {
    return JSON.stringify(this.text.slice(this.at, this.at + 40))
  }

  #match(pattern: RegExp, what: string): string {
    this.#space()
    pattern.lastIndex = this.at
    const found = pattern.exec(this.text)
    if (!found) throw new DirectiveError(`${what} was expected at ${this.near()}`)
    this.at = pattern.lastIndex
    return found[0]
  }

  #space(): void {
    while (/\s/.test(this.text[this.at] ?? '')) this.at++
  }
}
