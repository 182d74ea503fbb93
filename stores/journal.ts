/**
 * The append-only local journal that the ledger is filled from (decisions 26). One folder per running instance, cut into segments:
 *
 *   <dir>/<instance>/lock            held by a living owner (an SQLite lock: the kernel frees it with the process, `kill -9` included)
 *   <dir>/<instance>/00000001.log    one record per line: `<crc32 of the rest, 8 hex> <kind> <json>\n`
 *   <dir>/damaged/…                  segments in which a checksum failed, kept for a look
 *
 * An append is one write() to an O_APPEND file: it survives a killed process as soon as it returns. A power cut may lose the last moments.
 * An item is open until it is released; the oldest segments go once nothing in them is open, always oldest first, so that a record never
 * outlives a later one that speaks of it. A few open items never keep a segment: they are written again into the newest one.
 */
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { crc32 } from 'node:zlib'
import { DenseSet, type Placed } from '../core/collections.ts'
import type { Logger } from '../core/plugin.ts'
import { StoreUnavailable } from '../core/store.ts'

/** Spend of a settled request on one cell: cell id, period, period index, nano-USD. */
export type Charge = [cell: string, period: 'day' | 'month', index: number, amount: number]

/**
 * h: head of a segment. i: intent. o: outcome, with the charges of the same tick. s: charges settled apart from the outcome.
 * d: request ids whose rows have been delivered. k: an idempotency key whose first use runs.
 */
export type RecordKind = 'h' | 'i' | 'o' | 's' | 'd' | 'k'

export interface JournalRecord {
  kind: RecordKind
  json: string
}

/** One open record. */
export interface Item extends JournalRecord, Placed {
  /** Internal: where it is. */
  segment: Segment
}

interface Segment {
  file: string
  number: number
  open: DenseSet<Item>
}

export interface JournalOptions {
  /** Folder of all instances' journals. */
  dir: string
  instance: string
  /** What the journal feeds, e.g. `sqlite` or `redis://host:6379/0`, without secrets. Journals for another store are left alone. */
  store: string
  log: Logger
  /** Default 8 MiB. */
  segmentBytes?: number
}

const SEGMENT_BYTES = 8 << 20
/** Segments that may stand before the oldest one's items are carried over. */
const MAX_SEGMENTS = 4
/** As many items are carried over at once, so that it never takes long. */
const MAX_CARRIED = 256

export class Journal {
  readonly instance: string
  #options: JournalOptions
  #folder: string
  #lock: DatabaseSync
  #fd = -1
  #size = 0
  #segments: Segment[] = []
  #failure: string | undefined

  constructor(options: JournalOptions) {
    this.#options = options
    this.instance = options.instance
    this.#folder = path.join(options.dir, options.instance)
    fs.mkdirSync(this.#folder, { recursive: true, mode: 0o700 })
    const lock = acquire(path.join(this.#folder, 'lock'))
    if (!lock) throw new StoreUnavailable(`the journal ${this.#folder} belongs to a running process`)
    this.#lock = lock
    this.#rotate()
  }

  /** Why the last append failed; undefined while all is well. For /readyz. */
  get failure(): string | undefined {
    return this.#failure
  }
  /** Segments on disk; for tests and metrics. */
  get segments(): number {
    return this.#segments.length
  }

  /** One write; on return it is safe against a killed process. Throws StoreUnavailable (disk full). */
  append(kind: RecordKind, json: string): Item {
    return this.appendAll([{ kind, json }])[0]!
  }

  /** Several records in one write. They are open until released. */
  appendAll(records: readonly JournalRecord[]): Item[] {
    let lines = ''
    for (const record of records) lines += lineOf(record.kind, record.json)
    this.#write(lines)
    const segment = this.#segments[this.#segments.length - 1]!
    return records.map(({ kind, json }) => {
      const item: Item = { kind, json, segment, place: -1 }
      segment.open.add(item)
      return item
    })
  }

  /** A record that nothing waits for: it stays as long as its segment. */
  note(kind: RecordKind, json: string): void {
    this.#write(lineOf(kind, json))
  }

  /** Nothing needs the item any more. */
  release(item: Item): void {
    item.segment.open.delete(item)
    if (item.segment.open.size === 0 && this.#segments.length > 1) this.#trim()
  }

  /** Ends the journal. With nothing open the folder goes; otherwise it waits for the next start. */
  close(): void {
    if (this.#fd < 0) return
    fs.closeSync(this.#fd)
    this.#fd = -1
    const done = this.#segments.every(segment => segment.open.size === 0)
    if (done) for (const segment of this.#segments) fs.rmSync(segment.file, { force: true })
    this.#lock.close()
    if (done) fs.rmSync(this.#folder, { recursive: true, force: true })
  }

  #write(lines: string): void {
    if (this.#fd < 0) throw new StoreUnavailable('the journal is closed')
    try {
      if (this.#size > (this.#options.segmentBytes ?? SEGMENT_BYTES)) this.#rotate()
      this.#put(lines)
      this.#failure = undefined
    } catch (error) {
      this.#failure = (error as Error).message
      throw new StoreUnavailable(`the journal cannot be written: ${this.#failure}`, error)
    }
  }

  #put(lines: string): void {
    const bytes = Buffer.from(lines)
    let written: number
    try {
      written = fs.writeSync(this.#fd, bytes)
    } catch (error) {
      this.#cut()
      throw error
    }
    if (written < bytes.length) {
      this.#cut()
      throw new Error('short write')
    }
    this.#size += written
  }

  /** Takes a half-written record off the end again, so that the next one starts on a line of its own. */
  #cut(): void {
    try {
      fs.ftruncateSync(this.#fd, this.#size)
    } catch {
      // A torn line then stands in the middle; its checksum fails at recovery and it was never acknowledged.
    }
  }

  #rotate(): void {
    const number = (this.#segments.at(-1)?.number ?? 0) + 1
    const file = path.join(this.#folder, String(number).padStart(8, '0') + '.log')
    const fd = fs.openSync(file, 'ax', 0o600)
    if (this.#fd >= 0) fs.closeSync(this.#fd)
    this.#fd = fd
    this.#size = 0
    this.#segments.push({ file, number, open: new DenseSet() })
    this.#put(lineOf('h', JSON.stringify({ version: 1, instance: this.instance, store: this.#options.store })))
    this.#carry()
    this.#trim()
  }

  #carry(): void {
    const current = this.#segments.at(-1)!
    while (this.#segments.length > MAX_SEGMENTS) {
      const oldest = this.#segments[0]!
      if (oldest.open.size > MAX_CARRIED) return
      for (const item of oldest.open) {
        this.#put(lineOf(item.kind, item.json))
        oldest.open.delete(item)
        item.segment = current
        current.open.add(item)
      }
      this.#trim()
    }
  }

  #trim(): void {
    while (this.#segments.length > 1 && this.#segments[0]!.open.size === 0)
      fs.rmSync(this.#segments.shift()!.file, { force: true })
  }
}

function lineOf(kind: RecordKind, json: string): string {
  const text = kind + ' ' + json
  return crc32(text).toString(16).padStart(8, '0') + ' ' + text + '\n'
}

// ---- recovery ---------------------------------------------------------------------------------------------------------

/** A dead instance's journal, taken over: its lock is held until `done` or `leave`. */
export interface Abandoned {
  instance: string
  /** All good records in the order of writing. */
  records: JournalRecord[]
  /** Lines whose checksum failed, not counting a torn end. */
  damaged: number
  /** All records are delivered: the folder goes (damaged segments are kept aside). */
  done(): void
  /** Not now: frees the lock for a later try. */
  leave(): void
}

/** Takes over the journals that were written for `store` and whose owners are dead. A living owner's journal is never read. */
export function abandonedJournals(options: { dir: string; store: string; log: Logger }): Abandoned[] {
  const { dir, store, log } = options
  if (!fs.existsSync(dir)) return []
  const found: Abandoned[] = []
  for (const name of fs.readdirSync(dir).sort()) {
    const folder = path.join(dir, name)
    if (name === 'damaged' || !fs.existsSync(path.join(folder, 'lock'))) continue
    const lock = acquire(path.join(folder, 'lock'))
    if (!lock) continue
    const abandoned = take(dir, folder, name, lock, log)
    const head = abandoned.records.find(record => record.kind === 'h')
    const feeds = head ? (JSON.parse(head.json) as { store: string }).store : store
    if (feeds === store) found.push(abandoned)
    else abandoned.leave()
  }
  return found
}

function take(dir: string, folder: string, instance: string, lock: DatabaseSync, log: Logger): Abandoned {
  const records: JournalRecord[] = []
  const bad: string[] = []
  let damaged = 0
  for (const name of fs.readdirSync(folder).sort()) {
    if (!name.endsWith('.log')) continue
    const segment = readSegment(path.join(folder, name))
    for (const record of segment.records) records.push(record)
    for (const offset of segment.damaged)
      log.error(
        { file: path.join(folder, name), offset },
        'journal record with a wrong checksum: left out, the segment is kept',
      )
    damaged += segment.damaged.length
    if (segment.damaged.length) bad.push(name)
  }
  return {
    instance,
    records,
    damaged,
    done() {
      if (bad.length) {
        const aside = path.join(dir, 'damaged')
        fs.mkdirSync(aside, { recursive: true, mode: 0o700 })
        for (const name of bad) fs.renameSync(path.join(folder, name), path.join(aside, `${instance}-${name}`))
      }
      // The segments first: once they are gone nobody can deliver them again, even if the rest of the folder stays.
      for (const name of fs.readdirSync(folder))
        if (name.endsWith('.log')) fs.rmSync(path.join(folder, name), { force: true })
      lock.close()
      fs.rmSync(folder, { recursive: true, force: true })
    },
    leave: () => lock.close(),
  }
}

/** The good records of a segment, and the byte offsets of damaged lines. A last line without its line feed is torn, not damaged. */
export function readSegment(file: string): { records: JournalRecord[]; damaged: number[] } {
  const bytes = fs.readFileSync(file)
  const records: JournalRecord[] = []
  const damaged: number[] = []
  let start = 0
  while (start < bytes.length) {
    let end = bytes.indexOf(10, start)
    const torn = end < 0
    if (torn) end = bytes.length
    const record = parseLine(bytes.subarray(start, end))
    if (record) records.push(record)
    else if (!torn) damaged.push(start)
    start = end + 1
  }
  return { records, damaged }
}

const KINDS = 'hiosdk'

function parseLine(line: Buffer): JournalRecord | null {
  // `cccccccc k {}`
  if (line.length < 11 || line[8] !== 32 || line[10] !== 32) return null
  const text = line.subarray(9)
  if (crc32(text) !== Number.parseInt(line.toString('latin1', 0, 8), 16)) return null
  const kind = String.fromCharCode(line[9]!)
  return KINDS.includes(kind) ? { kind: kind as RecordKind, json: text.toString('utf8', 2) } : null
}

/**
 * An exclusive lock on a file, or null when another process or store holds it. SQLite's own file lock is the one kernel lock that Node can reach: it
 * needs no process ids, which mean nothing between containers that share a volume.
 */
export function acquire(file: string): DatabaseSync | null {
  let db: DatabaseSync | undefined
  try {
    db = new DatabaseSync(file)
    db.exec('PRAGMA busy_timeout = 0; BEGIN EXCLUSIVE')
    return db
  } catch (error) {
    db?.close()
    if (/locked|busy/i.test((error as Error).message)) return null
    throw new StoreUnavailable(`cannot lock ${file}: ${(error as Error).message}`, error)
  }
}
