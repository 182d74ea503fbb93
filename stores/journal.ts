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
import { checkFormat, type Mark, markOf } from './format.ts'

/** Spend of a settled request on one cell: cell id, period, period index, nano-USD. */
export type Charge = [cell: string, period: 'day' | 'month', index: number, amount: number]

/**
 * h: head of a segment. i: intent. o: the whole row, with the charges of the same tick. s: charges settled apart from the outcome.
 * d: request ids whose rows have been delivered. k: an idempotency key whose first use runs.
 */
export type RecordKind = 'h' | 'i' | 'o' | 's' | 'd' | 'k'

export interface JournalRecord {
  kind: RecordKind
  json: string
}

/** One open record; whoever writes it may keep more in the same object. */
export interface Item extends JournalRecord, Placed {
  /** Where it is. The journal's own. */
  segment: Segment | undefined
}

export interface Segment {
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

/** A version of the records. The head of a segment keeps its place and its members in every version. */
export interface JournalStep extends Mark {
  /** Makes a record of the version before one of this. The head is not given. Absent: all records stay as they are. */
  upgrade?(record: JournalRecord): JournalRecord
}

/**
 * By version, ascending; 2 writes rows as `rows.ts` says, and what was before is not read. A new version is one more
 * entry. Records of a kind that this build does not know are passed over, so a new kind can leave `minReader` as it is.
 */
export const STEPS: readonly JournalStep[] = [{ version: 2, minReader: 2 }]
const SEGMENT_BYTES = 8 << 20
/** Segments that may stand before the oldest one's items are carried over. */
const MAX_SEGMENTS = 4
/** As many items are carried over at once, so that it never takes long. */
const MAX_CARRIED = 256
/** Of the buffer that lines gather in; one that grew beyond the second is not kept. */
const BUFFER_BYTES = 64 << 10
const KEPT_BYTES = 1 << 20
/** Of a line besides its JSON. */
const LINE_BYTES = 'cccccccc k \n'.length

export class Journal {
  readonly instance: string
  #options: JournalOptions
  #folder: string
  #lock: DatabaseSync
  #fd = -1
  #size = 0
  /** Lines that the next `commit` writes. */
  #bytes = Buffer.allocUnsafeSlow(BUFFER_BYTES)
  #end = 0
  #segments: Segment[] = []
  #failure: string | undefined
  #head: string

  constructor(options: JournalOptions) {
    this.#options = options
    const { version, minReader } = markOf(STEPS)
    const { instance, store } = options
    this.#head = JSON.stringify({ version, min_reader: minReader, instance, store } satisfies Head)
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
    const item: Item = { kind, json, segment: undefined, place: -1 }
    this.note(kind, json)
    this.keep(item)
    return item
  }

  /** A record that nothing waits for: it stays as long as its segment. */
  note(kind: RecordKind, json: string): void {
    this.stage(kind, json)
    this.commit()
  }

  /** A record for the next `commit`, which must come in the same turn. */
  stage(kind: RecordKind, json: string): void {
    // A unit of UTF-16 is three bytes at most.
    const most = this.#end + LINE_BYTES + 3 * json.length
    if (most > this.#bytes.length) this.#grow(most)
    const bytes = this.#bytes
    const text = this.#end + 9
    bytes[text] = kind.charCodeAt(0)
    bytes[text + 1] = SPACE
    const end = text + 2 + bytes.write(json, text + 2)
    putHex(bytes, this.#end, crc32(bytes.subarray(text, end)))
    bytes[text - 1] = SPACE
    bytes[end] = LINE_FEED
    this.#end = end + 1
  }

  /** Writes what has been staged, at once: all of it is safe against a killed process on return. Throws StoreUnavailable (disk full): nothing was written. */
  commit(): void {
    try {
      if (this.#fd < 0) throw new Error('it is closed')
      if (this.#size > (this.#options.segmentBytes ?? SEGMENT_BYTES)) this.#rotate()
      this.#put(0)
      this.#failure = undefined
    } catch (error) {
      this.#failure = (error as Error).message
      throw new StoreUnavailable(`the journal cannot be written: ${this.#failure}`, error)
    } finally {
      this.#end = 0
      if (this.#bytes.length > KEPT_BYTES) this.#bytes = Buffer.allocUnsafeSlow(BUFFER_BYTES)
    }
  }

  /** The item's record, just committed, is open until the item is released. An earlier record that it stood for no longer is. */
  keep(item: Item): void {
    const segment = this.#segments[this.#segments.length - 1]!
    if (item.segment === segment) return
    this.release(item)
    item.segment = segment
    segment.open.add(item)
  }

  /** Nothing needs the item any more. */
  release(item: Item): void {
    const { segment } = item
    if (!segment) return
    item.segment = undefined
    segment.open.delete(item)
    if (segment.open.size === 0 && this.#segments.length > 1) this.#trim()
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

  #grow(needed: number): void {
    const bytes = Buffer.allocUnsafeSlow(2 * needed)
    this.#bytes.copy(bytes, 0, 0, this.#end)
    this.#bytes = bytes
  }

  /** Writes the staged lines from there on. */
  #put(start: number): void {
    const length = this.#end - start
    this.#end = start
    let written: number
    try {
      written = fs.writeSync(this.#fd, this.#bytes, start, length)
    } catch (error) {
      this.#cut()
      throw error
    }
    if (written < length) {
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
    const start = this.#end
    this.stage('h', this.#head)
    this.#put(start)
    this.#carry()
    this.#trim()
  }

  #carry(): void {
    while (this.#segments.length > MAX_SEGMENTS) {
      const oldest = this.#segments[0]!
      if (oldest.open.size > MAX_CARRIED) return
      for (const item of oldest.open) {
        const start = this.#end
        this.stage(item.kind, item.json)
        this.#put(start)
        this.keep(item)
      }
      this.#trim()
    }
  }

  #trim(): void {
    while (this.#segments.length > 1 && this.#segments[0]!.open.size === 0)
      fs.rmSync(this.#segments.shift()!.file, { force: true })
  }
}

const SPACE = 0x20
const LINE_FEED = 0x0a
const HEX = Buffer.from('0123456789abcdef')

function putHex(bytes: Buffer, at: number, value: number): void {
  for (let i = at + 7; i >= at; i--) {
    bytes[i] = HEX[value & 15]!
    value >>>= 4
  }
}

// ---- recovery ---------------------------------------------------------------------------------------------------------

interface Head {
  version: number
  /** Absent: the version itself. */
  min_reader?: number
  instance: string
  store: string
}

/** A dead instance's journal, taken over: its lock is held until `done` or `leave`. */
export interface Abandoned {
  instance: string
  /** All good records in the order of writing, as this build's version has them, without the heads. */
  records: JournalRecord[]
  /** Lines whose checksum failed, not counting a torn end. */
  damaged: number
  /** All records are delivered: the folder goes (damaged segments are kept aside). */
  done(): void
  /** Not now: frees the lock for a later try. After `done` it does nothing. */
  leave(): void
}

/**
 * Takes over the journals that were written for `store` and whose owners are dead. A living owner's journal is never read.
 * Throws FormatRefused, with nothing taken over, when one is of a version that this build does not read.
 */
export function abandonedJournals(options: {
  dir: string
  store: string
  log: Logger
  steps?: readonly JournalStep[]
}): Abandoned[] {
  const { dir, store, log, steps = STEPS } = options
  if (!fs.existsSync(dir)) return []
  const found: Abandoned[] = []
  for (const name of fs.readdirSync(dir).sort()) {
    const folder = path.join(dir, name)
    if (name === 'damaged' || !fs.existsSync(path.join(folder, 'lock'))) continue
    const lock = acquire(path.join(folder, 'lock'))
    if (!lock) continue
    try {
      const abandoned = take(dir, name, lock, { store, log, steps })
      if (abandoned) found.push(abandoned)
      else lock.close()
    } catch (error) {
      lock.close()
      for (const abandoned of found) abandoned.leave()
      throw error
    }
  }
  return found
}

/** Null: it feeds another store. */
function take(
  dir: string,
  instance: string,
  lock: DatabaseSync,
  { store, log, steps }: { store: string; log: Logger; steps: readonly JournalStep[] },
): Abandoned | null {
  const folder = path.join(dir, instance)
  const records: JournalRecord[] = []
  const bad: { name: string; offset: number }[] = []
  // Of a head that is damaged; the damage is told.
  let { version } = markOf(steps)
  for (const name of fs.readdirSync(folder).sort()) {
    if (!name.endsWith('.log')) continue
    const segment = readSegment(path.join(folder, name))
    for (const record of segment.records) {
      if (record.kind !== 'h') {
        records.push(upgraded(record, version, steps))
        continue
      }
      const head = JSON.parse(record.json) as Head
      if (head.store !== store) return null
      ;({ version } = head)
      checkFormat(`the journal ${folder}`, { version, minReader: head.min_reader ?? version }, steps, {
        newer: `start the release that wrote it, or a later one, once: it books the journal and removes it; ${ASIDE}`,
        older: `start the release that wrote it once: it books the journal and removes it; ${ASIDE}`,
      })
    }
    for (const offset of segment.damaged) bad.push({ name, offset })
  }
  for (const { name, offset } of bad)
    log.error(
      { file: path.join(folder, name), offset },
      'journal record with a wrong checksum: left out, the segment is kept',
    )
  return {
    instance,
    records,
    damaged: bad.length,
    done() {
      if (bad.length) {
        const aside = path.join(dir, 'damaged')
        fs.mkdirSync(aside, { recursive: true, mode: 0o700 })
        for (const name of new Set(bad.map(({ name }) => name)))
          fs.renameSync(path.join(folder, name), path.join(aside, `${instance}-${name}`))
      }
      // The segments first: once they are gone nobody can deliver them again, even if the rest of the folder stays.
      for (const name of fs.readdirSync(folder))
        if (name.endsWith('.log')) fs.rmSync(path.join(folder, name), { force: true })
      lock.close()
      fs.rmSync(folder, { recursive: true, force: true })
    },
    leave() {
      if (lock.isOpen) lock.close()
    },
  }
}

const ASIDE = 'or move its folder away, and its rows are not booked'

function upgraded(record: JournalRecord, version: number, steps: readonly JournalStep[]): JournalRecord {
  for (const step of steps) if (step.version > version && step.upgrade) record = step.upgrade(record)
  return record
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

function parseLine(line: Buffer): JournalRecord | null {
  // `cccccccc k {}`
  if (line.length < 11 || line[8] !== 32 || line[10] !== 32) return null
  const text = line.subarray(9)
  if (crc32(text) !== Number.parseInt(line.toString('latin1', 0, 8), 16)) return null
  return { kind: String.fromCharCode(line[9]!) as RecordKind, json: text.toString('utf8', 2) }
}

/**
 * An exclusive lock on a file, or null when another process or store holds it. SQLite's own file lock is the one kernel lock that Node can reach: it
 * needs no process ids, which mean nothing between containers that share a volume.
 */
export function acquire(file: string): DatabaseSync | null {
  let db: DatabaseSync | undefined
  try {
    // Made before SQLite does, which would make it readable to all.
    fs.closeSync(fs.openSync(file, 'a', 0o600))
    db = new DatabaseSync(file)
    db.exec('PRAGMA busy_timeout = 0; BEGIN EXCLUSIVE')
    return db
  } catch (error) {
    db?.close()
    if (/locked|busy/i.test((error as Error).message)) return null
    throw new StoreUnavailable(`cannot lock ${file}: ${(error as Error).message}`, error)
  }
}
