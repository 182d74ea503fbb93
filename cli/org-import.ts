/** `sluice org import`: reads many organizations into the store, line by line, beside running gateways. */
import { createReadStream, statSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { accountNames, readOrganization } from '../config/accounts.ts'
import { LIMITS } from '../config/schema.ts'
import {
  apart,
  creditedOf,
  goneWords,
  hintOf,
  ORGANIZATION_ID as ID,
  ID_RULE,
  madeWith,
  noteOf,
  sha256Of,
  wholeOf,
} from '../config/stored.ts'
import type { GatewayConfig } from '../config/types.ts'
import { isUsd } from '../core/canon/limits.ts'
import type { AccountChange, AccountStore, OrganizationWithKeys, StoredKey } from '../core/ports/accounts.ts'
import { cellsOf } from './csv.ts'
import { cliAuthor } from './holders.ts'
import { Progress } from './progress.ts'
import { Failure, fold, type Terminal, UsageError } from './terminal.ts'

export interface ImportOptions {
  /** `-` is standard input. */
  file: string
  csv: boolean
  atomic: boolean
  replace: boolean
  plainKeys: boolean
  json: boolean
}

/** This many organizations share a transaction: the store is free for the gateway between two. */
const TOGETHER = 500
/** Faults that are printed; the others are counted. */
const MOST_FAULTS = 100
/** A line of the file may have this many characters. */
const MOST_CHARACTERS = 4 << 20

/** An organization as the file has it. */
interface Entry {
  line: number
  id: string
  members: Record<string, unknown> & { keys: Record<string, unknown>[] }
}

interface Counts {
  created: number
  changed: number
  unchanged: number
  refused: number
  keys: number
}

/** @returns the exit code: 1 when a line was refused */
export async function importOrganizations(
  store: AccountStore,
  config: GatewayConfig,
  options: ImportOptions,
  terminal: Terminal,
): Promise<number> {
  if (options.atomic && options.file === '-') throw new UsageError('--atomic reads the file twice; give it a name')
  if (options.atomic) {
    const trial = new Import(store, config, options, terminal, true)
    await trial.run()
    if (trial.counts.refused > 0) return trial.report('Nothing was written.')
  }
  const real = new Import(store, config, options, terminal, false)
  await real.run()
  return real.report('')
}

class Import {
  readonly counts: Counts = { created: 0, changed: 0, unchanged: 0, refused: 0, keys: 0 }
  readonly #store: AccountStore
  readonly #options: ImportOptions
  readonly #terminal: Terminal
  readonly #names: ReturnType<typeof accountNames>
  readonly #config: GatewayConfig
  readonly #digests: Map<string, string>
  /** Only checks, and remembers what it has seen, because the store does not get it. */
  readonly #trial: boolean
  readonly #author = cliAuthor()
  readonly #seen = new Set<string>()
  readonly #faults: { line: number; fault: string }[] = []

  constructor(store: AccountStore, config: GatewayConfig, options: ImportOptions, terminal: Terminal, trial: boolean) {
    this.#store = store
    this.#config = config
    this.#options = options
    this.#terminal = terminal
    this.#trial = trial
    this.#names = accountNames(config)
    const keys = Object.values(config.organizations).flatMap(({ id, keys }) =>
      keys.map(key => [key.sha256, id] as const),
    )
    this.#digests = new Map(keys)
  }

  async run(): Promise<void> {
    const { file, csv } = this.#options
    const progress = new Progress(process.stderr, this.#trial ? 'organizations checked' : 'organizations')
    const size = file === '-' ? undefined : sizeOf(file)
    const input = file === '-' ? process.stdin : createReadStream(file)
    let bytes = 0
    let done = 0
    let batch: Entry[] = []
    const lines = linesOf(input, read => {
      bytes += read
    })
    const fault = (line: number, text: string) => this.#refuse(line, text)
    for await (const entry of csv ? csvEntries(lines, fault) : jsonEntries(lines, fault)) {
      if (batch.length === TOGETHER || batch.some(({ id }) => id === entry.id)) {
        await this.#apply(batch)
        done += batch.length
        batch = []
        progress.show(done, size && bytes / size)
      }
      batch.push(entry)
    }
    await this.#apply(batch)
    progress.clear()
    this.#faults.sort((a, b) => a.line - b.line)
  }

  report(end: string): number {
    const { counts } = this
    const code = counts.refused > 0 ? 1 : 0
    if (this.#options.json) {
      const written = end === '' ? counts : { ...counts, created: 0, changed: 0, keys: 0 }
      this.#terminal.out(JSON.stringify({ ...written, faults: this.#faults }))
      return code
    }
    const { columns, err } = this.#terminal
    for (const { line, fault } of this.#faults) {
      const text = `${this.#options.file}:${line}: ${fault}`
      err(columns === undefined ? text : fold(text, columns))
    }
    if (counts.refused > this.#faults.length) this.#terminal.err(`and ${counts.refused - this.#faults.length} more`)
    const told = end === '' ? counts : { refused: counts.refused }
    const words = Object.entries(told).map(([what, n]) => `${n.toLocaleString('en')} ${what}`)
    this.#terminal.out([`${words.join(', ')}.`, end].filter(Boolean).join(' '))
    return code
  }

  #refuse(line: number, fault: string): void {
    this.counts.refused++
    if (this.#faults.length < MOST_FAULTS) this.#faults.push({ line, fault })
  }

  /** Checks a batch of different organizations, and writes what is new or different. */
  async #apply(batch: readonly Entry[]): Promise<void> {
    const good: Entry[] = []
    for (const entry of batch) {
      const fault = this.#fault(entry)
      if (fault === undefined) good.push(entry)
      else this.#refuse(entry.line, fault)
    }
    const held = new Set(await this.#store.held(good.map(({ id }) => id)))
    const changes: { entry: Entry; change: AccountChange }[] = []
    for (const entry of good) {
      const { id, members } = entry
      const { keys, id: _, ...own } = members
      const before = held.has(id) ? await this.#store.read(id) : null
      // Credits are given, and neither imported nor taken away.
      const credited = before && creditedOf(before)
      const known = new Map(before?.keys.map(key => [key.id, key]))
      const stored = keys.map(({ id, sha256, ...rest }): StoredKey => {
        const key = { id: id as string, sha256: sha256 as string }
        const same = known.get(key.id)
        // What was made with the key stays where the line does not have it.
        const made = same?.sha256 === key.sha256 ? madeWith(wholeOf(same)) : {}
        return { ...key, ...apart({ ...made, ...rest }, 'key', same) }
      })
      const change = { id, ...apart(credited ? { ...own, credited } : own, 'organization', before ?? {}), keys: stored }
      const audit = noteOf(before, change, { author: this.#author, operation: 'organization.import' })
      if (!before) changes.push({ entry, change: { ...change, expected: 0, audit } })
      else if (isSame(before, change)) this.counts.unchanged++
      else if (this.#options.replace) changes.push({ entry, change: { ...change, expected: before.version, audit } })
      else this.#refuse(entry.line, `${id}: it is in the store with other settings or keys; --replace changes it`)
    }
    if (changes.length === 0) return
    const results = this.#trial
      ? await this.#tried(changes.map(({ change }) => change))
      : await this.#store.change(changes.map(({ change }) => change))
    for (const [i, result] of results.entries()) {
      const { entry, change } = changes[i]!
      if (result.refused === 'changed') this.#refuse(entry.line, `${entry.id}: somebody changed it at the same time`)
      else if (result.refused === 'gone') this.#refuse(entry.line, `${entry.id}: ${goneWords(entry.id, result.key)}`)
      else if (result.refused === 'digest')
        this.#refuse(
          entry.line,
          `${entry.id}: the digest ${result.sha256.slice(0, 8)}… is ${result.organization}'s ${result.key}`,
        )
      else {
        this.counts[change.expected === 0 ? 'created' : 'changed']++
        this.counts.keys += change.keys.length
      }
    }
  }

  /** What the store would answer, as far as that can be known. */
  async #tried(changes: readonly AccountChange[]): Promise<Awaited<ReturnType<AccountStore['change']>>> {
    const owners = await Promise.all(
      changes.map(({ keys }) => Promise.all(keys.map(key => this.#store.find(key.sha256)))),
    )
    return changes.map(({ id, keys }, i) => {
      for (const [k, { id: key, sha256 }] of keys.entries()) {
        const owner = owners[i]![k]
        const taken = owner && (owner.organization.id !== id || owner.key.id !== key)
        if (taken) return { refused: 'digest', sha256, organization: owner.organization.id, key: owner.key.id }
        if (this.#seen.has(sha256)) return { refused: 'digest', sha256, organization: 'an earlier line', key: 'key' }
        this.#seen.add(sha256)
      }
      if (this.#seen.has(`o ${id}`)) return { refused: 'changed' }
      this.#seen.add(`o ${id}`)
      return { version: 1 }
    })
  }

  /** Why a line is refused, with the field; undefined when it is good. Puts digests in place of secrets. */
  #fault({ id, members }: Entry): string | undefined {
    if (Object.hasOwn(this.#config.organizations, id))
      return `id: ${id} stands in the configuration, and an id may stand in one place only`
    for (const [i, key] of members.keys.entries()) {
      if (typeof key !== 'object' || key === null) return `keys.${i}: must be a mapping`
      const { secret } = key
      if (secret !== undefined) {
        if (!this.#options.plainKeys)
          return `keys.${i}.secret: a plain key; import its digest as sha256, or allow it with --plain-keys`
        if (typeof secret !== 'string') return `keys.${i}.secret: must be text`
        delete key['secret']
        key['sha256'] = sha256Of(secret)
        key['hint'] ??= hintOf(secret)
      }
      if (typeof key['sha256'] === 'string') key['sha256'] = key['sha256'].toLowerCase()
      const owner = this.#digests.get(String(key['sha256']))
      if (owner !== undefined) return `keys.${i}.sha256: it is a key of ${owner} in the configuration`
    }
    const { id: _, ...own } = members
    const { faults } = readOrganization(id, own, this.#names)
    return faults.length > 0 ? `${id}: ${faults.join('; ')}` : undefined
  }
}

/** Whether the store has these settings and all these keys already. */
function isSame(
  before: OrganizationWithKeys,
  { keys, ...own }: Pick<OrganizationWithKeys, 'settings' | 'keys'>,
): boolean {
  const equal = (a: Parameters<typeof wholeOf>[0], b: typeof a) =>
    (a.settings === b.settings && a.about === b.about) || isDeepStrictEqual(wholeOf(a), wholeOf(b))
  return (
    equal(before, own) &&
    keys.every(key => {
      const known = before.keys.find(({ id }) => id === key.id)
      return known?.sha256 === key.sha256 && equal(known, key)
    })
  )
}

function sizeOf(file: string): number {
  try {
    return statSync(file).size
  } catch (error) {
    throw new Failure(`cannot read ${file} (${(error as NodeJS.ErrnoException).code})`)
  }
}

// ---- lines ----------------------------------------------------------------------------------------------------------

type TellFault = (line: number, fault: string) => void

async function* linesOf(
  input: AsyncIterable<Buffer | string>,
  read: (bytes: number) => void,
): AsyncGenerator<[number, string]> {
  const decoder = new TextDecoder()
  let rest = ''
  let line = 0
  for await (const chunk of input) {
    read(chunk.length)
    const lines = (rest + (typeof chunk === 'string' ? chunk : decoder.decode(chunk, { stream: true }))).split('\n')
    rest = lines.pop()!
    if (rest.length > MOST_CHARACTERS) throw new Failure(`line ${line + lines.length + 1} is too long`)
    for (const text of lines) yield [++line, text.replace(/\r$/, '')]
  }
  if (rest !== '') yield [++line, rest]
}

async function* jsonEntries(lines: AsyncIterable<[number, string]>, fault: TellFault): AsyncGenerator<Entry> {
  for await (const [line, text] of lines) {
    if (text.trim() === '') continue
    let value: any
    try {
      value = JSON.parse(text)
    } catch (error) {
      fault(line, `no JSON: ${(error as Error).message}`)
      continue
    }
    if (typeof value !== 'object' || value === null || Array.isArray(value)) fault(line, 'no JSON object')
    else if (typeof value.id !== 'string' || !ID.test(value.id)) fault(line, `id: ${ID_RULE}`)
    else if (value.keys !== undefined && !Array.isArray(value.keys)) fault(line, 'keys: must be a list')
    else yield { line, id: value.id, members: { ...value, keys: value.keys ?? [] } }
  }
}

/** Columns of a key; every other column is a member of the organization. */
const KEY_COLUMNS = { key_id: 'id', sha256: 'sha256', secret: 'secret', key_status: 'status', expires: 'expires' }

/** The first line names the columns. Rows with the same id that follow each other are keys of one organization. */
async function* csvEntries(lines: AsyncIterable<[number, string]>, fault: TellFault): AsyncGenerator<Entry> {
  let names: string[] | undefined
  let entry: Entry | undefined
  for await (const [line, text] of lines) {
    if (text === '') continue
    const cells = cellsOf(text)
    if (!cells) {
      fault(line, 'a quote is not closed; a cell may not have a line break')
      continue
    }
    if (!names) {
      names = cells.map(name => name.trim())
      if (!names.includes('id'))
        throw new Failure('the first line of the CSV names the columns, and id must be among them')
      continue
    }
    if (cells.length !== names.length) {
      fault(line, `${cells.length} cells, and ${names.length} columns`)
      continue
    }
    const members: Record<string, any> = {}
    const key: Record<string, unknown> = {}
    for (const [i, name] of names.entries()) {
      const cell = cells[i]!
      if (cell === '') continue
      if (Object.hasOwn(KEY_COLUMNS, name)) key[KEY_COLUMNS[name as keyof typeof KEY_COLUMNS]] = cell
      else if (Object.hasOwn(LIMITS, name)) (members['limits'] ??= {})[name] = isUsd(name) ? cell : Number(cell)
      else if (name === 'models' || name === 'capabilities') members[name] = cell === 'all' ? cell : cell.split(';')
      else members[name] = name === 'streaming' ? cell === 'true' : cell
    }
    const { id } = members
    if (typeof id !== 'string' || !ID.test(id)) {
      fault(line, `id: ${ID_RULE}`)
      continue
    }
    const keys = Object.keys(key).length > 0 ? [key] : []
    if (entry?.id === id) entry.members.keys.push(...keys)
    else {
      if (entry) yield entry
      entry = { line, id, members: { ...members, keys } }
    }
  }
  if (entry) yield entry
}
