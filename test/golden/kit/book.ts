/**
 * A book is a text file with cases. Behind each case is the recording of its result.
 *
 *     # comment lines; `# gateway: NAME` names the file of gateways/ that serves the cases
 *
 *     === {"name": "…", …}       the case: one line of JSON
 *     > text                     its input; any number of lines
 *     < 200                      from here to the next case: the recording
 *       content-type: …          headers; a repeated list is stored once, at the end of the file: `headers 1a2b3c`
 *     | body
 *
 *     --- headers 1a2b3c         the lists; and texts that several cases send, by `"body": {"text": "NAME"}`
 *     --- text NAME
 *
 * A line of a recording must not begin with `===`, `> ` or `---`. The code that writes one puts a mark before it
 * (`marked`).
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'

const FOLDER = join(import.meta.dirname, '..', 'recorded')

/** The members of a case. Each kind of book adds its own. */
export interface Case {
  name: string
  /** The input: its lines without `> `. */
  input: string
  [member: string]: unknown
}

export interface Entry {
  case: Case
  /** The lines of the recording. References to lists of headers are replaced by the headers. */
  recorded: string[]
}

/** The beginning of a reference to a list of headers, inside a recording. */
export const HEADERS = '  headers '

export class Book {
  readonly name: string
  readonly #comments: string[] = []
  readonly entries: Entry[] = []
  /** The lines of each `--- text NAME`, by name. */
  readonly #texts = new Map<string, string[]>()

  constructor(name: string) {
    this.name = name
    const lists = new Map<string, string[]>()
    let entry: Entry | undefined
    let list: string[] | undefined
    const pending: [Entry, string[]][] = []
    for (const line of readFileSync(this.#file, 'utf8').split('\n')) {
      if (line.startsWith('--- headers ')) {
        lists.set(line.slice(12), (list = []))
      } else if (line.startsWith('--- text ')) {
        this.#texts.set(line.slice(9), (list = []))
      } else if (list) {
        if (line !== '') list.push(line)
      } else if (line.startsWith('=== ')) {
        entry = { case: { input: '', ...JSON.parse(line.slice(4)) }, recorded: [] }
        this.entries.push(entry)
        pending.push([entry, []])
      } else if (!entry) {
        if (line.startsWith('#')) this.#comments.push(line)
      } else if (line.startsWith('> ')) {
        pending.at(-1)![1].push(line.slice(2))
      } else if (line !== '') {
        entry.recorded.push(line)
      }
    }
    for (const [of, input] of pending) {
      of.case.input = input.join('\n')
      of.recorded = of.recorded.flatMap(line =>
        line.startsWith(HEADERS)
          ? (lists.get(line.slice(HEADERS.length)) ?? [`${line}, which the file lacks`])
          : [line],
      )
    }
  }

  get #file(): string {
    return join(FOLDER, `${this.name}.txt`)
  }

  /** The value of a comment line: for `# gateway: main` this is `main`. */
  setting(name: string): string | undefined {
    return this.#comments.find(line => line.startsWith(`# ${name}: `))?.slice(name.length + 4)
  }

  text(name: string): string {
    const lines = this.#texts.get(name)
    if (!lines) throw new Error(`${this.#file} has no '--- text ${name}'`)
    return lines.map(line => line.slice(2)).join('\n')
  }

  /** Writes the file with new recordings, one for each entry. */
  write(recordings: readonly string[][]): void {
    const lists = new Map<string, string[]>()
    const blocks = this.entries.map(({ case: { input, ...rest } }, i) =>
      [
        `=== ${JSON.stringify(rest)}`,
        ...(input === '' ? [] : input.split('\n').map(line => `> ${line}`)),
        ...folded(recordings[i]!, lists),
      ].join('\n'),
    )
    const inOrder = (named: Map<string, string[]>, kind: string) =>
      [...named].sort(([a], [b]) => (a < b ? -1 : 1)).map(([id, list]) => [`--- ${kind} ${id}`, ...list].join('\n'))
    const tail = [...inOrder(lists, 'headers'), ...inOrder(this.#texts, 'text')]
    writeFileSync(this.#file, [this.#comments.join('\n'), ...blocks, ...tail].join('\n\n') + '\n')
  }
}

/** Replaces header lines, which begin with two spaces, by a reference to their list. */
function folded(lines: readonly string[], lists: Map<string, string[]>): string[] {
  const out: string[] = []
  for (let i = 0; i < lines.length; ) {
    if (!lines[i]!.startsWith('  ')) {
      out.push(lines[i++]!)
      continue
    }
    const list: string[] = []
    while (lines[i]?.startsWith('  ')) list.push(lines[i++]!)
    const id = createHash('sha256').update(list.join('\n')).digest('hex').slice(0, 6)
    lists.set(id, list)
    out.push(HEADERS + id)
  }
  return out
}

export const books = (): Book[] =>
  readdirSync(FOLDER)
    .filter(name => name.endsWith('.txt'))
    .sort()
    .map(name => new Book(basename(name, '.txt')))

/** A recording shows only the beginning, the end and the digest of a line with more characters than this. */
const LONG = 20_000

/** The lines of a text for a recording: a mark before each, and invisible characters as escape sequences. */
export const marked = (mark: string, text: string): string[] =>
  text.split('\n').map(line => `${mark} ${line.length > LONG ? shortened(line) : visible(line)}`)

function shortened(line: string): string {
  const digest = createHash('sha256').update(line).digest('hex')
  return `${visible(line.slice(0, 500))}‹${line.length} characters, sha256 ${digest}›${visible(line.slice(-500))}`
}

const visible = (line: string): string =>
  line.replace(/[\x00-\x1f\x7f]|[\u2028\u2029\ufeff]| +$/g, found =>
    [...found].map(c => `‹${c.charCodeAt(0).toString(16).padStart(2, '0')}›`).join(''),
  )

/**
 * The first line that differs; undefined when all are equal. Only one is shown, so that several cases fit on a screen.
 */
export function difference(expected: readonly string[], actual: readonly string[]): string | undefined {
  const length = Math.max(expected.length, actual.length)
  for (let i = 0; i < length; i++) {
    const [was, is] = [expected[i], actual[i]]
    if (was === is) continue
    let at = 0
    while (was !== undefined && is !== undefined && was[at] === is[at]) at++
    const from = Math.max(0, at - 60)
    const cut = (line: string | undefined) =>
      line === undefined
        ? '(no such line)'
        : (from > 0 ? '…' : '') + line.slice(from, from + 160) + (line.length > from + 160 ? '…' : '')
    return `line ${i + 1}\n    recorded ${cut(was)}\n    now      ${cut(is)}`
  }
  return undefined
}
