/**
 * Files as a target: one for each UTC day of the rows' `time`, with one JSON object a line (NDJSON).
 *
 *   <dir>/2026-11-23.ndjson   rows; a late row is appended to the file of its own day
 *   <dir>/position.json       the position of each source, and how many bytes of each file belong to rows before it
 *   <dir>/lock                locked during a batch; the kernel frees it when a process dies
 *
 * A batch appends to the files, syncs them, and then replaces position.json. What is in a file behind the bytes of
 * position.json is of a batch that did not end, and is cut off by the next one.
 */
import fs from 'node:fs'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { acquire } from '../journal.ts'
import { type Batch, ShipError, type Shipped, type ShipRow, type ShipTarget } from './ship.ts'

/** The JSON of position.json. */
export interface Position {
  version: 1
  /** By source. `again`: its position was lost, and rows that the files have are left out until it has caught up. */
  sources: Record<string, { position: string | null; again?: true }>
  /** By file name: its bytes. */
  files: Record<string, number>
}

/** Another process may hold the lock for the time of a batch. */
const LOCK_TRIES = 200
const LOCK_PAUSE_MS = 50
/** While rows are left out that the files have, the request ids of this many days are in memory. */
const DAYS = 3
const DAY_MS = 86_400_000
export const POSITION = 'position.json'
const NAME = /^\d{4}-\d\d-\d\d\.ndjson$/

export class FileTarget implements ShipTarget {
  readonly #dir: string
  /** By file name: its request ids, and how many bytes of it they are from. */
  readonly #ids = new Map<string, { ids: Set<string>; bytes: number }>()

  constructor(dir: string) {
    this.#dir = path.resolve(dir)
  }

  async batch(source: string, next: (after: string | null) => Promise<Batch>): Promise<Shipped> {
    try {
      fs.mkdirSync(this.#dir, { recursive: true, mode: 0o750 })
      const lock = await this.#lock()
      try {
        return await this.#batch(source, next)
      } finally {
        lock.close()
      }
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException
      if (code === undefined || !(code in CURES)) throw error
      throw new ShipError(`file:${this.#dir}: ${message}; ${CURES[code]}`, { cause: error })
    }
  }

  /** Removes the files of days that ended before this time, Unix ms. */
  async expire(before: number): Promise<void> {
    const old = this.#names().filter(name => Date.parse(name.slice(0, 10)) + DAY_MS <= before)
    if (old.length === 0) return
    const lock = await this.#lock()
    try {
      for (const name of old) fs.rmSync(path.join(this.#dir, name), { force: true })
    } finally {
      lock.close()
    }
  }

  async close(): Promise<void> {}

  async #lock() {
    for (let i = 0; i < LOCK_TRIES; i++) {
      const lock = acquire(path.join(this.#dir, 'lock'))
      if (lock) return lock
      await sleep(LOCK_PAUSE_MS)
    }
    throw new ShipError(`file:${this.#dir} is locked by another process that ships; wait for its end`)
  }

  async #batch(source: string, next: (after: string | null) => Promise<Batch>): Promise<Shipped> {
    const state = this.#read()
    // A source that these files do not know may have filled them before position.json was lost.
    const known = state.sources[source] ?? { position: null, ...(this.#names().length > 0 && { again: true }) }
    const { rows, position, again, last } = await next(known.position)
    const days = Map.groupBy(rows, fileOf)
    state.sources[source] = known
    if (again) known.again = true
    for (const name of days.keys()) if (!(name in state.files)) this.#adopt(state, name)
    const doubtful = known.again === true
    if (!doubtful) this.#ids.clear()
    let added = 0
    for (const [name, all] of days) {
      const had = state.files[name]!
      const ids = doubtful ? await this.#idsOf(name, had) : undefined
      const fresh = ids ? all.filter(row => !ids.has(row.id)) : all
      if (fresh.length === 0) continue
      added += fresh.length
      const bytes = had + this.#append(name, had, fresh)
      state.files[name] = bytes
      if (!ids) continue
      for (const { id } of fresh) ids.add(id)
      this.#ids.set(name, { ids, bytes })
    }
    if (rows.length > 0 || doubtful) {
      state.sources[source] = { position, ...(doubtful && !last && { again: true }) }
      this.#write(state)
    }
    return { rows: added, position, last }
  }

  #read(): Position {
    let text: string
    try {
      text = fs.readFileSync(path.join(this.#dir, POSITION), 'utf8')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
      return { version: 1, sources: {}, files: {} }
    }
    let state: Position
    try {
      state = JSON.parse(text) as Position
    } catch {
      throw new ShipError(`${this.#dir}/position.json is damaged; remove it: rows that the files have are left out`)
    }
    if (state.version !== 1)
      throw new ShipError(`${this.#dir}/position.json is of a later release of Sluice; use that one`)
    this.#cut(state)
    return state
  }

  /** Cuts off what a batch left that did not end, and forgets files that were moved away. */
  #cut(state: Position): void {
    for (const [name, bytes] of Object.entries(state.files)) {
      const file = path.join(this.#dir, name)
      const size = fs.statSync(file, { throwIfNoEntry: false })?.size
      if (size === undefined) delete state.files[name]
      else if (size > bytes) fs.truncateSync(file, bytes)
      else if (size < bytes)
        throw new ShipError(
          `${file} has ${size} bytes, and ${bytes} were written; restore it, or move it and position.json away`,
        )
    }
  }

  /**
   * Notes a file in position.json before anything is appended to it. One that has rows already is not of this state of
   * position.json, so nobody knows of which sources they are.
   */
  #adopt(state: Position, name: string): void {
    const fd = fs.openSync(path.join(this.#dir, name), fs.constants.O_RDWR | fs.constants.O_CREAT, 0o640)
    let bytes = 0
    try {
      bytes = wholeLines(fd)
      fs.ftruncateSync(fd, bytes)
    } finally {
      fs.closeSync(fd)
    }
    if (bytes > 0) for (const source of Object.values(state.sources)) source.again = true
    state.files[name] = bytes
    this.#write(state)
  }

  #append(name: string, at: number, rows: readonly ShipRow[]): number {
    const bytes = Buffer.from(rows.map(row => `${row.json}\n`).join(''))
    const fd = fs.openSync(path.join(this.#dir, name), fs.constants.O_WRONLY | fs.constants.O_CREAT, 0o640)
    try {
      for (let done = 0; done < bytes.length; ) done += fs.writeSync(fd, bytes, done, bytes.length - done, at + done)
      fs.fsyncSync(fd)
    } finally {
      fs.closeSync(fd)
    }
    return bytes.length
  }

  #write(state: Position): void {
    const file = path.join(this.#dir, POSITION)
    const fd = fs.openSync(`${file}.tmp`, 'w', 0o640)
    try {
      fs.writeFileSync(fd, `${JSON.stringify(state)}\n`)
      fs.fsyncSync(fd)
    } finally {
      fs.closeSync(fd)
    }
    fs.renameSync(`${file}.tmp`, file)
    const folder = fs.openSync(this.#dir, 'r')
    try {
      fs.fsyncSync(folder)
    } finally {
      fs.closeSync(folder)
    }
  }

  #names(): string[] {
    return fs.readdirSync(this.#dir).filter(name => NAME.test(name))
  }

  /** The request ids in the first bytes of a file, which are all that belong to it. */
  async #idsOf(name: string, bytes: number): Promise<Set<string>> {
    const known = this.#ids.get(name)
    if (known?.bytes === bytes) return known.ids
    const file = path.join(this.#dir, name)
    const ids = new Set<string>()
    let number = 0
    for await (const line of createInterface({ input: fs.createReadStream(file), crlfDelay: Infinity })) {
      number++
      try {
        ids.add((JSON.parse(line) as { request_id: string }).request_id)
      } catch {
        throw new ShipError(`${file}:${number} is no JSON; mend the line, or move the file away`)
      }
    }
    this.#ids.delete(name)
    this.#ids.set(name, { ids, bytes })
    if (this.#ids.size > DAYS) this.#ids.delete(this.#ids.keys().next().value!)
    return ids
  }
}

/** The file of the day on which the request came. */
function fileOf({ time }: ShipRow): string {
  return `${new Date(time).toISOString().slice(0, 10)}.ndjson`
}

/** How many bytes of a file are whole lines. */
function wholeLines(fd: number): number {
  const chunk = Buffer.alloc(64 << 10)
  for (let end = fs.fstatSync(fd).size; end > 0; ) {
    const start = Math.max(0, end - chunk.length)
    const read = fs.readSync(fd, chunk, 0, end - start, start)
    const at = chunk.subarray(0, read).lastIndexOf(10)
    if (at >= 0) return start + at + 1
    end = start
  }
  return 0
}

const CURES: Readonly<Record<string, string>> = {
  ENOSPC: 'free space on its disk',
  EDQUOT: 'free space, or raise the quota',
  EACCES: 'let this user write there',
  EPERM: 'let this user write there',
  EROFS: 'mount it for writing, or name another folder',
  ENOTDIR: 'name a folder',
  EEXIST: 'name a folder',
}
