/**
 * Custom (free-form) tools on dialects that have function tools only: the tool is declared as a function with one
 * string, `input`, and the string's value is unwrapped from the arguments while they stream (wire.md F.2, decisions
 * 47).
 */
import type { CustomTool } from '../core/conversation.ts'
import { BACKSLASH, plainEnd, QUOTE } from '../core/json-text.ts'

/** JSON Schema of a wrapped custom tool. */
export const CUSTOM_INPUT_SCHEMA = Object.freeze({
  type: 'object',
  properties: Object.freeze({ input: Object.freeze({ type: 'string' }) }),
  required: Object.freeze(['input']),
  additionalProperties: false,
})

/** The tool's description with the grammar as advice. */
export function customDescription(tool: CustomTool): string {
  const parts: string[] = []
  if (tool.description) parts.push(tool.description)
  parts.push('Put the whole input of this tool, as plain text, into the string `input`.')
  if (tool.grammar) {
    const kind = tool.grammar.syntax === 'lark' ? 'Lark grammar' : 'regular expression'
    parts.push(`The input must match this ${kind}:\n${tool.grammar.definition}`)
  }
  return parts.join('\n\n')
}

/** Arguments of a replayed custom call. */
export function wrapCustomInput(input: string): string {
  return JSON.stringify({ input })
}

/** `{ "input" : "`, whitespace apart. */
const OPENING = '{"input":"'
const ESCAPES: Readonly<Record<string, string>> = {
  n: '\n',
  t: '\t',
  r: '\r',
  b: '\b',
  f: '\f',
  '"': '"',
  '\\': '\\',
  '/': '/',
}

/**
 * Decodes the value of `input` out of argument text that arrives in pieces cut anywhere, in the middle of an escape or
 * of a surrogate pair too. Arguments of another shape (models do not always keep to the schema) are kept and judged
 * whole at the end.
 */
export class CustomInputDecoder {
  #state: 'opening' | 'string' | 'closed' | 'other' = 'opening'
  /** `opening`: how much of OPENING was read. */
  #read = 0
  /** All that was read before the string began; in `other`, everything. */
  #seen = ''
  /** An escape that is not whole yet, from its backslash on. */
  #escape = ''
  #highHalf = ''

  /** The string is closed: the input is complete. */
  get closed(): boolean {
    return this.#state === 'closed'
  }

  /** Takes argument text; returns the input text that it completes. */
  push(text: string): string {
    if (this.#state === 'string') return this.#string(text, 0)
    if (this.#state === 'closed') return ''
    if (this.#state === 'opening') {
      for (let i = 0; i < text.length; i++) {
        const char = text[i]!
        // Whitespace counts only inside the quotes of the key, where it is a mismatch.
        if (isSpace(char) && !(this.#read > 1 && this.#read < 8)) continue
        if (char !== OPENING[this.#read]) {
          this.#state = 'other'
          break
        }
        if (++this.#read === OPENING.length) {
          this.#state = 'string'
          this.#seen = ''
          return this.#string(text, i + 1)
        }
      }
    }
    this.#seen += text
    return ''
  }

  /** The arguments are over: what they hold beyond what `push` returned. */
  end(): string {
    if (this.#state === 'string') {
      const rest = this.#highHalf === '' ? '' : '\ufffd'
      this.#highHalf = ''
      return rest
    }
    if (this.#state === 'closed' || this.#seen.trim() === '') return ''
    const seen = this.#seen
    this.#seen = ''
    this.#state = 'closed'
    try {
      const value: unknown = JSON.parse(seen)
      if (typeof value === 'string') return value
      if (typeof value === 'object' && value !== null) {
        const { input } = value as Record<string, unknown>
        if (typeof input === 'string') return input
        if (Object.keys(value).length === 0) return ''
      }
    } catch {
      // Not JSON: the model wrote the input itself.
    }
    return seen
  }

  #string(text: string, from: number): string {
    let out = this.#highHalf
    this.#highHalf = ''
    let at = from
    while (at < text.length) {
      if (this.#escape !== '') {
        this.#escape += text[at++]!
        const decoded = decodeEscape(this.#escape)
        if (decoded !== undefined) {
          this.#escape = ''
          out += decoded
        }
        continue
      }
      const end = plainEnd(text, at)
      out += text.slice(at, end)
      if (end === text.length) break
      at = end + 1
      const unit = text.charCodeAt(end)
      if (unit === QUOTE) {
        this.#state = 'closed'
        return out
      }
      if (unit === BACKSLASH) this.#escape = '\\'
      // JSON forbids a line break here. A model that writes one means it.
      else out += text[end]
    }
    if (out !== '' && (out.charCodeAt(out.length - 1) & 0xfc00) === 0xd800) {
      this.#highHalf = out.slice(-1)
      out = out.slice(0, -1)
    }
    return out
  }
}

/**
 * The text of a whole escape; undefined while it is not whole. An escape that JSON does not know stands for its own
 * character.
 */
function decodeEscape(sequence: string): string | undefined {
  const kind = sequence[1]!
  if (kind !== 'u') return ESCAPES[kind] ?? kind
  if (sequence.length < 6) return undefined
  const unit = Number.parseInt(sequence.slice(2), 16)
  return Number.isNaN(unit) ? sequence.slice(1) : String.fromCharCode(unit)
}

function isSpace(char: string): boolean {
  return char === ' ' || char === '\n' || char === '\t' || char === '\r'
}
