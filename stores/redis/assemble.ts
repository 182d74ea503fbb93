/**
 * Makes the text of a Redis script of a file in lua/. This is all that it does to a file; the rest is Lua.
 *
 *     --@include NAME     the lines of lua/NAME.lua
 *     --@each LIST        the lines up to `--@end`, once for each entry of the list
 *     --@each LIST ,      the same, with a comma between the copies
 *     GROUP_BYTES         a word in capitals is a constant; in an `each`, first a value of the entry
 *     used_PLACE          so is the last part of a name, in capitals behind `_`
 *
 * Constants and lists are those of scripts.ts. Words in strings and comments stay as they are, and so do Redis's KEYS
 * and ARGV. Comments and empty lines are not sent.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { appendAll } from '../../core/tools/append.ts'

export const LUA = join(import.meta.dirname, 'lua')

/** What replaces a word in capitals: Lua code. */
export type Values = Readonly<Record<string, string | number>>
export interface Inserts {
  readonly constants: Values
  readonly lists: Readonly<Record<string, readonly Values[]>>
}
interface Line {
  readonly text: string
  /** File and line, such as `admit.lua:12`. */
  readonly at: string
}

const COMMAND = /^\s*--@(\w+)(?: (\w+))?(?: (,))?$/
const NOTHING = /^\s*(--.*)?$/
/** A string, a comment, or a word. */
const TOKEN = /'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|--.*|[A-Za-z_]\w*/g
const IN_CAPITALS = /^([a-z][a-z_]*_)?([A-Z][A-Z_]*)$/
const OF_REDIS = new Set(['KEYS', 'ARGV'])

/**
 * @param name of the file, without `.lua`
 * @returns the text; and for each of its lines, in which file and line it is, such as `admit.lua:12`
 * @throws Error for a directive, a list or a word in capitals that is unknown
 */
export function assemble(name: string, inserts: Inserts, folder = LUA): { lua: string; lines: string[] } {
  const lines = expanded(linesOf(folder, name), inserts.constants, { ...inserts, folder })
  return { lua: lines.map(({ text }) => text).join('\n'), lines: lines.map(({ at }) => at) }
}

const files = new Map<string, Line[]>()
/** Each file is read once in the life of the process. */
function linesOf(folder: string, name: string): Line[] {
  const file = join(folder, `${name}.lua`)
  let lines = files.get(file)
  if (!lines) {
    const text = readFileSync(file, 'utf8')
    lines = text.split('\n').map((text, i) => ({ text, at: `${name}.lua:${i + 1}` }))
    files.set(file, lines)
  }
  return lines
}

function expanded(lines: readonly Line[], values: Values, from: Inserts & { folder: string }): Line[] {
  const made: Line[] = []
  for (let i = 0; i < lines.length; i++) {
    const { text, at } = lines[i]!
    const [, command, name = '', joint = ''] = COMMAND.exec(text) ?? []
    if (command === 'include') appendAll(made, expanded(linesOf(from.folder, name), values, from))
    else if (command === 'each') {
      const list = from.lists[name]
      if (!list) throw new Error(`${at}: there is no list '${name}'`)
      const end = lines.findIndex((line, k) => k > i && COMMAND.exec(line.text)?.[1] === 'end')
      if (end < 0) throw new Error(`${at}: no '--@end' follows`)
      for (const [k, entry] of list.entries()) {
        const copy = expanded(lines.slice(i + 1, end), { ...values, ...entry }, from)
        if (k < list.length - 1) copy.push({ text: joint, at: lines[end]!.at })
        appendAll(made, copy)
      }
      i = end
    } else if (command !== undefined || text.includes('--@'))
      throw new Error(`${at}: unknown directive: ${text.trim()}`)
    else if (!NOTHING.test(text)) made.push({ text: inserted(text, values, at), at })
  }
  return made.filter(({ text }) => text !== '')
}

const inserted = (text: string, values: Values, at: string) =>
  text.replace(TOKEN, word => {
    const [, before = '', name = ''] = IN_CAPITALS.exec(word) ?? []
    if (name === '' || OF_REDIS.has(word)) return word
    const value = values[name]
    if (value === undefined) throw new Error(`${at}: there is no constant '${name}'`)
    return before + value
  })
