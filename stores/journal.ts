/**
 * The append-only local journal that the ledger is filled from (decisions 26). Each running instance has its own
 * folder, and the records are cut into segment files:
 *
 *   <dir>/<instance>/lock            locked while the owner lives: an SQLite file lock, which the kernel frees when the
 *                                    process ends, also after `kill -9`
 *   <dir>/<instance>/00000001.log    one record per line: `<crc32 of the rest, 8 hex digits> <kind> <json>\n`
 *   <dir>/damaged/…                  segments with a failed checksum, kept for the operator to inspect
 *
 * An append is one write() to an O_APPEND file. Once it has returned, the record survives a killed process. A power cut
 * may lose the last records, because nothing calls fsync.
 *
 * An item is open until it is released. A segment is deleted when no item in it is open and all older segments have
 * been deleted. This order matters: a record must not outlive a later record about the same request. When only a few
 * items keep an old segment, they are written again into the newest segment.
 */
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { crc32 } from 'node:zlib'
import { StoreUnavailable } from '../core/canon/errors.ts'
import type { Logger } from '../core/plugin.ts'
import { DenseSet, type Placed } from '../core/tools/collections.ts'
import { checkFormat, type Mark, markOf } from './format.ts'
import { createPrivate } from './private-file.ts'
import { rowOfNext } from './rows.ts'

/**
 * What a settled request adds to one spend cell: the cell's id, the period, the period's index, the amount in nano-USD.
 */
export type Charge = [cell: string, period: 'day' | 'month', index: number, amount: number]

/**
 * The kinds of records:
 * - `h`: the head of a segment
 * - `i`: an intent
 * - `o`: a whole row, with the charges that were settled in the same event-loop turn
 * - `s`: charges that were settled in another turn than the outcome
 * - `d`: the request ids of rows that have been delivered
 * - `k`: an idempotency key whose first use is running
 * - `l`: the levels of buckets in which something was settled in this event-loop turn (sqlite/levels.ts)
 * - `b`: what a settled request takes from buckets, where an engine holds its reservation (Redis)
 */
export type RecordKind = 'h' | 'i' | 'o' | 's' | 'd' | 'k' | 'l' | 'b'

export interface JournalRecord {
  kind: RecordKind
  json: string
}

/** One open record. The writer of the record may keep its own data in the same object. */
export interface Item extends JournalRecord, Placed {
  /**
   * The segment that holds the record; undefined before the item is kept and after it is released. Only the journal
   * sets it.
   */
  segment: Segment | undefined
  /** A second record that goes wherever this one goes. */
  also?: JournalRecord | undefined
}

export interface Segment {
  file: string
  number: number
  /** The items in this segment that have not been released. */
  open: DenseSet<Item>
}

export interface JournalOptions {
  /** Folder of all instances' journals. */
  dir: string
  instance: string
  /**
   * The store that the journal feeds, e.g. `sqlite` or `redis://host:6379/0`, without secrets. Recovery leaves journals
   * of another store untouched.
   */
  store: string
  log: Logger
  /** A new segment begins when the newest has more than this many bytes. Default 8 MiB. */
  segmentBytes?: number
}

/** A version of the records. In every version, a segment begins with a head, and the head has the same members. */
export interface JournalStep extends Mark {
  /**
   * Converts a record from the previous version to this one. It is not called for heads. Absent: the records of both
   * versions are alike.
   */
  upgrade?(record: JournalRecord): JournalRecord
}

/**
 * In ascending order of version. Version 2 wrote rows as arrays; version 1 is not read any more. Version 3 writes tags
 * and the provider's side of a row behind what version 2 had, so its rows have their charges elsewhere; and an earlier
 * release would book prepaid rows without taking them from the balance. Version 4 writes the digest of the body behind
 * that. A new version adds an entry. A build skips records of a kind that it does not know, so a new kind need not raise
 * `minReader`.
 */
export const STEPS: readonly JournalStep[] = [
  { version: 2, minReader: 2 },
  {
    version: 3,
    minReader: 3,
    upgrade: ({ kind, json }) => ({ kind, json: kind === 'o' ? rowOfNext(2, json) : json }),
  },
  {
    version: 4,
    minReader: 4,
    upgrade: ({ kind, json }) => ({ kind, json: kind === 'o' ? rowOfNext(3, json) : json }),
  },
]
const SEGMENT_BYTES = 8 << 20
/** With more segments than this, the open items of the oldest one are carried over into the newest. */
const MAX_SEGMENTS = 4
/** A segment with more open items than this is not carried over, because the synchronous writes would take too long. */
const MAX_CARRIED = 256
/** The initial size in bytes of the buffer in which staged lines gather. */
const BUFFER_BYTES = 64 << 10
/** A staging buffer that grew beyond this many bytes is replaced by an initial one after the commit. */
const KEPT_BYTES = 1 << 20
/** How many bytes of a line are not its JSON. */
const LINE_BYTES = 'cccccccc k \n'.length

export class Journal {
  readonly instance: string
  #options: JournalOptions
  #folder: string
  #lock: DatabaseSync
  #fd = -1
  #size = 0
  /** The staged lines, which the next `commit` writes. */
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

  /** Why the last append failed; undefined when it succeeded. For /readyz. */
  get failure(): string | undefined {
    return this.#failure
  }
  /** Number of segments on disk; for tests and metrics. */
  get segments(): number {
    return this.#segments.length
  }

  /**
   * Writes one open record. On return the record survives a killed process.
   * @throws StoreUnavailable when the file cannot be written, e.g. on a full disk
   */
  append(kind: RecordKind, json: string): Item {
    const item: Item = { kind, json, segment: undefined, place: -1 }
    this.note(kind, json)
    this.keep(item)
    return item
  }

  /**
   * Writes a record that does not keep its segment: it is deleted with the segment.
   * @throws StoreUnavailable when the file cannot be written
   */
  note(kind: RecordKind, json: string): void {
    this.stage(kind, json)
    this.commit()
  }

  /** Adds a record to what the next `commit` writes. The caller must commit in the same event-loop turn. */
  stage(kind: RecordKind, json: string): void {
    // One UTF-16 code unit takes at most three bytes in UTF-8.
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

  /**
   * Writes all staged records with one write(). On return they survive a killed process.
   * @throws StoreUnavailable when the file cannot be written, e.g. on a full disk; then none of them was written
   */
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

  /**
   * Marks the item's record, which the last `commit` wrote, as open until the item is released. If the item had an
   * earlier record in another segment, that record is no longer open.
   */
  keep(item: Item): void {
    const segment = this.#segments[this.#segments.length - 1]!
    if (item.segment === segment) return
    this.release(item)
    item.segment = segment
    segment.open.add(item)
  }

  /** Ends an item: its segment need not be kept for it any more. */
  release(item: Item): void {
    const { segment } = item
    if (!segment) return
    item.segment = undefined
    segment.open.delete(item)
    if (segment.open.size === 0 && this.#segments.length > 1) this.#trim()
  }

  /** Closes the journal. The folder is deleted when no item is open; otherwise the next start recovers it. */
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

  /** Writes the staged lines from offset `start` of the staging buffer to its end. */
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

  /** Removes a half-written record from the end of the file, so that the next record starts on its own line. */
  #cut(): void {
    try {
      fs.ftruncateSync(this.#fd, this.#size)
    } catch {
      // The torn line stays in the middle of the file. It was never acknowledged, and recovery rejects its checksum.
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
        if (item.also) this.stage(item.also.kind, item.also.json)
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

// ---- recovery -------------------------------------------------------------------------------------------------------

/** The JSON of a segment's `h` record. */
interface Head {
  version: number
  /** Absent: the same as `version`. */
  min_reader?: number
  instance: string
  store: string
}

/** The journal of a dead instance. This process holds its lock until it calls `done` or `leave`. */
export interface Abandoned {
  instance: string
  /** All undamaged records in the order of writing, converted to this build's version, without the heads. */
  records: JournalRecord[]
  /** Number of lines whose checksum failed; a torn last line is not counted. */
  damaged: number
  /** To call when all records have been delivered: deletes the folder and moves damaged segments to `damaged/`. */
  done(): void
  /** Frees the lock, so that a later try can take the journal over. After `done` it does nothing. */
  leave(): void
}

/**
 * Takes over the journals that were written for `store` and whose owners are dead. It does not read the journal of a
 * living owner.
 * @throws FormatRefused when one journal has a version that this build does not read; then none is taken over
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
    // An owner that starts has made its lock file, perhaps not locked it, and writes its first segment behind that.
    if (!fs.readdirSync(folder).some(isSegment)) continue
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

/** Reads the locked journal of one dead instance. Null when the journal feeds another store. */
function take(
  dir: string,
  instance: string,
  lock: DatabaseSync,
  { store, log, steps }: { store: string; log: Logger; steps: readonly JournalStep[] },
): Abandoned | null {
  const folder = path.join(dir, instance)
  const found = readFolder(folder, store, steps)
  if (found === null) return null
  const { records, bad } = found
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
      // Deletes the segments first: if the rest fails, no later start can deliver their records again.
      for (const name of fs.readdirSync(folder))
        if (isSegment(name)) fs.rmSync(path.join(folder, name), { force: true })
      lock.close()
      fs.rmSync(folder, { recursive: true, force: true })
    },
    leave() {
      if (lock.isOpen) lock.close()
    },
  }
}

/**
 * All undamaged records of the journals in a folder that feed `store`, also of living owners: what a gateway would find
 * that starts now. It takes no lock and changes nothing.
 * @throws FormatRefused when one journal has a version that this build does not read
 */
export function readJournals(dir: string, store: string): JournalRecord[] {
  if (!fs.existsSync(dir)) return []
  return fs
    .readdirSync(dir)
    .sort()
    .filter(name => name !== 'damaged' && fs.statSync(path.join(dir, name), { throwIfNoEntry: false })?.isDirectory())
    .flatMap(name => readFolder(path.join(dir, name), store, STEPS)?.records ?? [])
}

/** The records of one instance, and the places of damaged lines. Null when they feed another store. */
function readFolder(
  folder: string,
  store: string,
  steps: readonly JournalStep[],
): { records: JournalRecord[]; bad: { name: string; offset: number }[] } | null {
  const records: JournalRecord[] = []
  const bad: { name: string; offset: number }[] = []
  // This build's own version is assumed when the head is damaged. The damage is logged by who takes the journal over.
  let { version } = markOf(steps)
  for (const name of unlessGone(() => fs.readdirSync(folder))?.sort() ?? []) {
    if (!isSegment(name)) continue
    // A living owner deletes a segment when the store has what is in it.
    const segment = unlessGone(() => readSegment(path.join(folder, name)))
    for (const record of segment?.records ?? []) {
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
    for (const offset of segment?.damaged ?? []) bad.push({ name, offset })
  }
  return { records, bad }
}

/** What `read` returns; undefined when the file is not there any more. */
function unlessGone<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

const isSegment = (name: string): boolean => name.endsWith('.log')

const ASIDE = 'or move its folder away, and its rows are not booked'

/** The record, converted from `version` by every later step. */
function upgraded(record: JournalRecord, version: number, steps: readonly JournalStep[]): JournalRecord {
  for (const step of steps) if (step.version > version && step.upgrade) record = step.upgrade(record)
  return record
}

/**
 * The undamaged records of a segment, and the byte offsets of damaged lines. A last line without a line feed is torn by
 * a crash, and does not count as damaged.
 */
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
 * Takes an exclusive lock on a file. Null when another process or store holds it. SQLite's file lock is the only kernel
 * lock that Node offers. A lock file with a process id would not do: containers that share a volume number their
 * processes separately.
 * @throws StoreUnavailable when the file cannot be opened or locked for another reason
 */
export function acquire(file: string): DatabaseSync | null {
  let db: DatabaseSync | undefined
  try {
    // Made before SQLite does, which would make it readable to all.
    createPrivate(file)
    db = new DatabaseSync(file)
    db.exec('PRAGMA busy_timeout = 0; BEGIN EXCLUSIVE')
    return db
  } catch (error) {
    db?.close()
    if (/locked|busy/i.test((error as Error).message)) return null
    throw new StoreUnavailable(`cannot lock ${file}: ${(error as Error).message}`, error)
  }
}
