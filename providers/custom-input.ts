/**
 * Custom (free-form) tools on dialects that have only function tools. The tool is declared as a function with one
 * string parameter, `input`; the value of that string is extracted from the arguments while they stream (wire.md F.2,
 * decision 47).
 */
import type { CustomTool } from '../core/canon/conversation.ts'
import { wellFormed } from '../core/tools/json.ts'
import { BACKSLASH, plainEnd, QUOTE } from '../core/tools/json-text.ts'

/** The parameters schema of a custom tool that is declared as a function. */
export const CUSTOM_INPUT_SCHEMA = Object.freeze({
  type: 'object',
  properties: Object.freeze({ input: Object.freeze({ type: 'string' }) }),
  required: Object.freeze(['input']),
  additionalProperties: false,
})

/** The tool's description. The grammar is added as advice, because a function cannot enforce it. */
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

/** The function arguments for a replayed custom call. */
export function wrapCustomInput(input: string): string {
  return wellFormed(JSON.stringify({ input }))
}

/** How the arguments begin, without whitespace. */
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
 * Decodes the value of `input` from argument text that arrives in pieces. A piece may end anywhere, also in the
 * middle of an escape or of a surrogate pair. Arguments of another shape (models do not always follow the schema) are
 * collected and interpreted at the end.
 */
export class CustomInputDecoder {
  #state: 'opening' | 'string' | 'closed' | 'other' = 'opening'
  /** In state `opening`: how many characters of OPENING have been read. */
  #read = 0
  /** All text read before the string began; in state `other`, all text. */
  #seen = ''
  /** An incomplete escape, from its backslash on. */
  #escape = ''
  #highHalf = ''

  /** True when the string is closed: the input is complete. */
  get closed(): boolean {
    return this.#state === 'closed'
  }

  /** Reads argument text. @returns the input text that it completes */
  push(text: string): string {
    if (this.#state === 'string') return this.#string(text, 0)
    if (this.#state === 'closed') return ''
    if (this.#state === 'opening') {
      for (let i = 0; i < text.length; i++) {
        const char = text[i]!
        // Whitespace is skipped, except between the quotes of the key: there it is a mismatch.
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

  /** The arguments have ended. @returns the input text that `push` has not returned yet */
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
      // Not JSON: the model wrote the input without wrapping it.
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
      // JSON forbids a raw control character here, such as a line break. A model that writes one means it.
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
 * The text of an escape; undefined while the escape is incomplete. An escape that JSON does not define stands for the
 * character after its backslash.
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
