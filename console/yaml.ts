/**
 * Reads a YAML file by a description of its fields. Each fault has file, line and column, and says what is wrong and
 * what to write instead; all faults of a file are told at once. The gateway's reader (config/source.ts) knows sections
 * in files of their own, JSON Schema and plugins; the console imports nothing of the gateway, and needs none of that.
 */
import { isMap, isScalar, LineCounter, type Node, parseDocument, visit } from 'yaml'

export interface Fault {
  line: number
  column: number
  message: string
}

type Path = readonly (string | number)[]

/** What a field of the file may be. `read` gets its plain value, never undefined; a fault is told to `fault`. */
export interface Field<T> {
  /** What is taken when the field is not there; without it the field is needed. */
  fallback?: () => T
  read(value: unknown, path: Path, fault: (path: Path, message: string, key?: boolean) => void): T
}

export type Read<F> = F extends Field<infer T> ? T : never

/** Text. @param options `pattern` must match, and `expects` says in words what the text is, for messages */
export function text(options: { pattern?: Pick<RegExp, 'test'>; expects: string; fallback?: string }): Field<string> {
  const { pattern, expects, fallback } = options
  return {
    ...(fallback !== undefined && { fallback: () => fallback }),
    read(value, path, fault) {
      if (typeof value !== 'string' || value === '' || (pattern && !pattern.test(value)))
        fault(path, `is ${shown(value)}; write ${expects}`)
      return String(value)
    },
  }
}

export function choice<const T extends string>(words: readonly T[], fallback?: T): Field<T> {
  return {
    ...(fallback !== undefined && { fallback: () => fallback }),
    read(value, path, fault) {
      // Without quotes YAML reads these words as booleans in some parsers; what is meant is clear.
      const word = value === true ? 'on' : value === false ? 'off' : value
      if (!words.includes(word as T)) fault(path, `is ${shown(value)}; write one of ${words.join(', ')}`)
      return word as T
    },
  }
}

const UNITS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** A duration such as 30d, in milliseconds. */
export function duration(fallback: string): Field<number> {
  const parse = (value: unknown): number | null => {
    const [, count, unit] = /^(\d{1,6})([smhd])$/.exec(String(value)) ?? []
    return unit === undefined ? null : Number(count) * UNITS[unit as keyof typeof UNITS]
  }
  return {
    fallback: () => parse(fallback)!,
    read(value, path, fault) {
      const ms = parse(value)
      if (!ms) fault(path, `is ${shown(value)}; write a duration above 0 such as ${fallback} (s, m, h or d)`)
      return ms ?? 0
    },
  }
}

export function list<T>(item: Field<T>): Field<T[]> {
  return {
    fallback: () => [],
    read(value, path, fault) {
      if (Array.isArray(value)) return value.map((one, i) => item.read(one, [...path, i], fault))
      fault(path, `is ${shown(value)}; write a list: [a, b]`)
      return []
    },
  }
}

/** A field that may be left out; it is then undefined. */
export function optional<T>(field: Field<T>): Field<T | undefined> {
  return { fallback: () => undefined, read: field.read }
}

type Fields = Record<string, Field<any>>
type Group<F extends Fields> = { [K in keyof F]: Read<F[K]> }

/** A mapping with these fields and no others. It may be left out when each of its fields may. */
export function group<F extends Fields>(fields: F): Field<Group<F>> {
  const names = Object.keys(fields)
  const all = names.every(name => fields[name]!.fallback)
  const filled = () => Object.fromEntries(names.map(name => [name, fields[name]!.fallback!()])) as Group<F>
  return {
    ...(all && { fallback: filled }),
    read(value, path, fault) {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        fault(path, `is ${shown(value)}; write a mapping with ${names.join(', ')}`)
        return {} as Group<F>
      }
      const given = value as Record<string, unknown>
      for (const key of Object.keys(given))
        if (!Object.hasOwn(fields, key))
          fault([...path, key], `is not known here; the fields are ${names.join(', ')}`, true)
      const entries = names.map(name => {
        const field = fields[name]!
        if (Object.hasOwn(given, name) && given[name] !== null)
          return [name, field.read(given[name], [...path, name], fault)]
        if (!field.fallback) fault(path, `needs ${name}`)
        return [name, field.fallback?.()]
      })
      return Object.fromEntries(entries) as Group<F>
    },
  }
}

/** A value as messages name it. */
export const shown = (value: unknown): string =>
  typeof value === 'object' && value !== null ? (Array.isArray(value) ? 'a list' : 'a mapping') : JSON.stringify(value)

/** Reads a file's text. `${NAME}` and `${NAME:-default}` in it are variables of `env`. */
export function readYaml<T>(
  source: string,
  field: Field<T>,
  env: Readonly<Record<string, string | undefined>>,
): { value: T; faults: Fault[] } {
  const lines = new LineCounter()
  const document = parseDocument(source, { lineCounter: lines, prettyErrors: false })
  const faults: Fault[] = []
  const note = (offset: number, message: string) => {
    const { line, col } = lines.linePos(offset)
    faults.push({ line, column: col, message })
  }
  for (const { pos, message } of document.errors) note(pos[0], `is no YAML: ${message}`)
  if (faults.length > 0) return { value: undefined as T, faults }
  visit(document, {
    Scalar(_, node) {
      if (typeof node.value !== 'string') return
      node.value = node.value.replace(/\$\{([A-Za-z_]\w*)(:-([^}]*))?\}/g, (_, name: string, _more, fallback) => {
        const value = env[name] || fallback
        if (value === undefined)
          note(node.range![0], `the variable ${name} is not set; set it, or write \${${name}:-default}`)
        return value ?? ''
      })
    },
  })
  if (faults.length > 0) return { value: undefined as T, faults }
  const value = field.read(document.toJS() ?? {}, [], (path, message, key = false) => {
    const name = path.join('.')
    note(offsetOf(document.contents, path, key), name === '' ? `the file ${message}` : `${name} ${message}`)
  })
  return { value, faults }
}

/** Where the value at a path begins, or its key, or what is nearest to it in the text. */
function offsetOf(root: unknown, path: Path, key: boolean): number {
  let node = root
  let offset = (root as Node | null)?.range?.[0] ?? 0
  for (const [i, step] of path.entries()) {
    if (isMap(node)) {
      const pair = node.items.find(({ key }) => isScalar(key) && key.value === step)
      if (!pair) break
      const at = key && i === path.length - 1 ? pair.key : (pair.value ?? pair.key)
      node = pair.value
      offset = (at as Node).range![0]
    } else {
      node = (node as { items?: Node[] } | null)?.items?.[step as number]
      offset = (node as Node | undefined)?.range?.[0] ?? offset
    }
  }
  return offset
}
