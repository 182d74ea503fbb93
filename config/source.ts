/**
 * gateway.yaml as text: parsed with positions, `{ file: … }` sections read in, `${NAME}` expanded. The result is plain
 * data, and a way from any value in it back to file, line and column.
 */
import { dirname, isAbsolute, join, resolve } from 'node:path'
import {
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type ParsedNode,
  parseDocument,
} from 'yaml'
import type { Position } from '../core/engine/chain.ts'

/** A fault of the configuration: its position, what is wrong, and the cure. */
export interface ConfigError extends Position {
  message: string
}

/** `gateway.yaml:14:5  what is wrong, and the cure` */
export function formatError(error: ConfigError): string {
  return `${error.file}:${error.line}:${error.column}  ${error.message}`
}

/** Steps from the root of the configuration to a value in it. */
export type Path = readonly (string | number)[]

export interface SourceOptions {
  env: Readonly<Record<string, string | undefined>>
  /** A variable that is not set gives `unset-NAME` instead of an error. */
  placeholders?: boolean | undefined
  readFile(path: string): Promise<string>
}

interface SourceFile {
  /** As shown in messages: relative when the path of the main file was given relative. */
  name: string
  absolute: string
  document: Document.Parsed
  lines: LineCounter
}

export interface ConfigSource {
  /** Plain data; `__proto__` is never a key. Numbers, strings, booleans, null, arrays, objects. */
  readonly data: Record<string, unknown>
  /** Absolute paths: the main file, then the included ones; complete even when there are errors. */
  readonly files: string[]
  /** The same files as messages name them. */
  readonly names: string[]
  /** Faults of the text itself: syntax, duplicate keys, unset variables, unreadable files. */
  readonly errors: ConfigError[]
  /** Where a placeholder stands for a variable that is not set. */
  readonly unset: ConfigError[]
  /** False when the text could not be read at all: nothing else is worth checking. */
  readonly usable: boolean
  /** Sections whose own file could not be read: faults inside them are already reported. */
  readonly brokenSections: ReadonlySet<string>
  /**
   * Position of the value at `path`, or of its nearest ancestor that is in the text; with `key` the position of its
   * key.
   */
  position(path: Path, part?: 'key' | 'value'): Position
  /** True when the value at `path` came from an unquoted `${NAME}`, so that its text may be read as a number. */
  fromEnvironment(path: Path): boolean
  /** The text of a scalar as written, e.g. a digest that YAML read as a number. */
  written(path: Path): string | undefined
  /** Makes the file name at `path` absolute, relative to the folder of the file that holds `path`. */
  resolvePath(path: Path, relative: string): string
}

// Bounds on the number of nodes and on their depth. The operator's file is trusted, but aliases of aliases grow without
// bound: a reload would then hang instead of fail.
const MAX_NODES = 5_000_000
const MAX_DEPTH = 100

/** Reads the main file and what it includes. Throws only when the main file itself can't be read. */
export async function readSource(path: string, options: SourceOptions): Promise<ConfigSource> {
  const errors: ConfigError[] = []
  const unset: ConfigError[] = []
  const main = parseFile(path, await options.readFile(resolve(path)), errors)
  const files = [main.absolute]
  const names = [main.name]
  const included = new Map<string, SourceFile>()
  const brokenSections = new Set<string>()
  const expanded = new Set<string>()
  const root = main.document.contents as ParsedNode | null

  const source = {
    files,
    names,
    errors,
    unset,
    brokenSections,
    position: (at: Path, part: 'key' | 'value' = 'value') => locate(main, included, at, part),
    fromEnvironment: (at: Path) => expanded.has(at.join('\0')),
    written(at: Path) {
      const node = nodeAt(main, included, at)
      return isScalar(node) ? node.source : undefined
    },
    resolvePath(at: Path, relative: string) {
      const file = included.get(String(at[0])) ?? main
      return isAbsolute(relative) ? relative : resolve(dirname(file.absolute), relative)
    },
  }

  if (main.document.errors.length > 0) return { ...source, data: {}, usable: false }
  if (!isMap(root)) {
    errors.push({
      file: main.name,
      line: 1,
      column: 1,
      message: 'the file is empty or not a mapping; start with `version: 2`',
    })
    return { ...source, data: {}, usable: false }
  }

  const reader = new Reader(options.env, errors, options.placeholders ? unset : null, expanded)
  const data: Record<string, unknown> = {}
  for (const pair of root.items) {
    const section = reader.key(pair.key as Node | null, main, data)
    if (section === null) continue
    const value = pair.value as Node | null
    const include = includedFile(value)
    if (include === undefined) {
      data[section] = reader.read(value, main, [section])
      continue
    }
    const name = isAbsolute(include) ? include : join(dirname(main.name), include)
    const absolute = resolve(name)
    if (!files.includes(absolute)) {
      files.push(absolute)
      names.push(name)
    }
    const at = positionOf(main, value)
    let text: string
    try {
      text = await options.readFile(absolute)
    } catch (cause) {
      errors.push({
        ...at,
        message: `cannot read ${name} (${(cause as NodeJS.ErrnoException).code ?? cause}); check the path, it is relative to ${main.name}`,
      })
      brokenSections.add(section)
      continue
    }
    const file = parseFile(name, text, errors)
    included.set(section, file)
    if (file.document.errors.length > 0) {
      brokenSections.add(section)
      continue
    }
    const contents = file.document.contents as Node | null
    if (includedFile(contents) !== undefined) {
      errors.push({
        ...positionOf(file, contents),
        message: `an included file holds the section itself; name the last file in ${main.name}`,
      })
      brokenSections.add(section)
      continue
    }
    data[section] = reader.read(contents, file, [section])
  }
  return { ...source, data, usable: true }
}

/** `{ file: ./x.yaml }`: a map of that key alone, with text as its value. */
function includedFile(node: Node | null): string | undefined {
  if (!isMap(node) || node.items.length !== 1) return undefined
  const { key, value } = node.items[0]!
  if (!isScalar(key) || key.value !== 'file' || !isScalar(value) || typeof value.value !== 'string') return undefined
  return value.value
}

function parseFile(name: string, text: string, errors: ConfigError[]): SourceFile {
  const lines = new LineCounter()
  // The library compares every key of a mapping with every other, which takes seconds for 10,000; `Reader.key` checks.
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: false })
  // Later syntax errors are mostly consequences of the first.
  const fault = document.errors[0]
  if (fault) {
    const { line, col } = lines.linePos(fault.pos[0])
    const written = text.split('\n', line)[line - 1] ?? ''
    errors.push({ file: name, line, column: col, message: syntaxMessage(fault.message, written) })
  }
  return { name, absolute: resolve(name), document, lines }
}

function syntaxMessage(message: string, line: string): string {
  if (/\$\{/.test(line) && !/["'][^"']*\$\{/.test(line))
    return `put "\${…}" in quotes here: inside { } and [ ] YAML reads its braces (${message})`
  if (/\t/.test(line)) return `${message}; indent with spaces, YAML takes no tabs`
  return `not valid YAML: ${message}`
}

// ---- reading --------------------------------------------------------------------------------------------------------

class Reader {
  #env: SourceOptions['env']
  #errors: ConfigError[]
  /** Where variables that get a placeholder are reported; null: a variable that is not set is an error. */
  #unset: ConfigError[] | null
  #expanded: Set<string>
  #nodes = 0

  constructor(env: SourceOptions['env'], errors: ConfigError[], unset: ConfigError[] | null, expanded: Set<string>) {
    this.#env = env
    this.#errors = errors
    this.#unset = unset
    this.#expanded = expanded
  }

  /**
   * The key at `node` as text; null, and an error, when it is none, or when `mapping` has it already.
   */
  key(node: Node | null, file: SourceFile, mapping: object): string | null {
    let message = 'a key must be plain text here'
    if (isScalar(node) && node.value !== null) {
      // A key that YAML reads as a number or a date keeps its text as written.
      const key = typeof node.value === 'string' ? node.value : (node.source ?? String(node.value))
      if (key !== '__proto__' && !Object.hasOwn(mapping, key)) return key
      if (key !== '__proto__')
        message =
          'this key is already set above in the same mapping; YAML would keep one of the two, so remove or rename one'
    }
    this.#errors.push({ ...positionOf(file, node), message })
    return null
  }

  read(node: Node | null, file: SourceFile, path: Path): unknown {
    if (++this.#nodes > MAX_NODES || path.length > MAX_DEPTH) {
      if (this.#nodes <= MAX_NODES + 1) {
        this.#errors.push({
          ...positionOf(file, node),
          message: 'too deep or too large; look for an alias (*name) inside its own anchor (&name)',
        })
      }
      this.#nodes = MAX_NODES + 1
      return null
    }
    if (isAlias(node)) return this.read((node.resolve(file.document) ?? null) as Node | null, file, path)
    if (isMap(node)) {
      const value: Record<string, unknown> = {}
      for (const pair of node.items) {
        const key = this.key(pair.key as Node | null, file, value)
        if (key !== null) value[key] = this.read(pair.value as Node | null, file, [...path, key])
      }
      return value
    }
    if (isSeq(node)) return node.items.map((item, i) => this.read(item as Node | null, file, [...path, i]))
    if (!isScalar(node)) return null
    if (typeof node.value !== 'string' || !node.value.includes('${')) return node.value
    if (node.type === 'PLAIN') this.#expanded.add(path.join('\0'))
    return this.#expand(node.value, positionOf(file, node))
  }

  /** `${NAME}`, `${NAME:-default}`; `$${` is a literal `${`. */
  #expand(text: string, at: Position): string {
    return text.replace(/\$\$\{|\$\{(?:([^{}]*)\})?/g, (whole, inside: string | undefined) => {
      if (whole.startsWith('$$')) return whole.slice(1)
      if (inside === undefined) {
        this.#errors.push({
          ...at,
          message: `this \${ has no } of its own; a default holds no braces and no other variable. Write \${NAME} or \${NAME:-default}, or $\${ for a literal \${`,
        })
        return ''
      }
      const match = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s.exec(inside)
      if (!match) {
        this.#errors.push({
          ...at,
          message: `what stands between \${ and } is no variable's name; write \${NAME} or \${NAME:-default}, or $\${ for a literal \${`,
        })
        return ''
      }
      const value = this.#env[match[1]!]
      // As in a shell: `:-` also covers a variable that is set and empty.
      if (value !== undefined && (value !== '' || match[2] === undefined)) return value
      if (match[2] !== undefined) return match[2]
      const problems = this.#unset ?? this.#errors
      problems.push({
        ...at,
        message: `environment variable ${match[1]} is not set; set it, or give a default: \${${match[1]}:-…}`,
      })
      return this.#unset ? `unset-${match[1]}` : ''
    })
  }
}

// ---- positions ------------------------------------------------------------------------------------------------------

function positionOf(file: SourceFile, node: Node | null | undefined): Position {
  const { line, col } = node?.range ? file.lines.linePos(node.range[0]) : { line: 1, col: 1 }
  return { file: file.name, line, column: col }
}

/**
 * Follows `path` through the YAML nodes. A position is looked up only when a message needs it, so nothing is stored for
 * values without a fault.
 */
function walk(main: SourceFile, included: Map<string, SourceFile>, path: Path) {
  let file = main
  let node = main.document.contents as Node | null
  let key: Node | null = null
  for (const [depth, step] of path.entries()) {
    let container: Node | null = node
    if (isAlias(container)) container = (container.resolve(file.document) ?? null) as Node | null
    let next: Node | null | undefined
    let nextKey: Node | null = null
    if (isMap(container)) {
      const pair = container.items.find(p => {
        const k = p.key
        return isScalar(k) && (typeof k.value === 'string' ? k.value : (k.source ?? String(k.value))) === String(step)
      })
      next = pair && ((pair.value as Node | null) ?? null)
      nextKey = (pair?.key as Node | undefined) ?? null
    } else if (isSeq(container)) {
      next = container.items[Number(step)] as Node | undefined
      nextKey = next ?? null
    }
    if (next === undefined) return { file, node, key, found: false }
    node = next
    key = nextKey
    const other = depth === 0 ? included.get(String(step)) : undefined
    if (other) {
      file = other
      node = other.document.contents as Node | null
      key = node
    }
  }
  return { file, node, key, found: true }
}

function locate(main: SourceFile, included: Map<string, SourceFile>, path: Path, part: 'key' | 'value'): Position {
  const { file, node, key, found } = walk(main, included, path)
  // A missing member is reported where the mapping starts that lacks it. For a block mapping that is its key: its node
  // starts only at its first entry.
  if (part === 'key' || !found || !node?.range) return positionOf(file, key ?? node)
  return positionOf(file, node)
}

function nodeAt(main: SourceFile, included: Map<string, SourceFile>, path: Path): Node | null {
  const { node, found } = walk(main, included, path)
  return found ? node : null
}
