/**
 * Threads that parse and count what would block the event loop. They share the tables (tables.ts), so a thread starts
 * in some tens of milliseconds. A thread starts when it is first needed. An idle thread does not keep the process
 * alive.
 */
import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'
import { type Tables, tables } from './tables.ts'
import { type Load, TextWriter } from './text-writer.ts'

/** The queue is full. The gateway answers 503 `route_capacity`. */
export class MeterBusy extends Error {
  override name = 'MeterBusy'
  constructor() {
    super('the meter has no room for another large prompt')
  }
}

export interface MeterPoolOptions {
  /** Number of threads. Default: one less than the machine's cores, at least 1 and at most 4. */
  workers?: number
  /** At most this many jobs wait for a thread. Default 32. */
  queue?: number
}

export interface MeterPool {
  /** Resolves with the tokens of each text. Rejects with `MeterBusy`, or with the signal's reason. */
  count(texts: readonly string[], signal?: AbortSignal): Promise<number[]>
  /**
   * Resolves with the value of a JSON body. Rejects with a SyntaxError when it is not JSON, with `MeterBusy`, or with
   * the signal's reason.
   */
  parse(body: Uint8Array, signal?: AbortSignal): Promise<unknown>
  /** How many jobs are running and waiting. */
  readonly jobs: { running: number; waiting: number }
  /** Ends the threads. Running and waiting jobs reject with `MeterBusy`. */
  close(): Promise<void>
}

/** A message to a thread: count the texts in its memory, or parse a body. */
export type Request = Load | { body: Uint8Array }
/** The one answer to each request. `counts` has the tokens of each text that ends in the load. */
export type Response = { counts: number[] } | { value: unknown } | { syntax: string }

export interface WorkerData {
  tables: Tables
  /** Shared with the main thread, which writes texts into it while this thread is idle. */
  memory: Uint8Array
}

/**
 * The shared memory of each thread, in bytes. The system allocates its pages when they are first written. A text with
 * more bytes is counted in parts, which takes a third longer.
 */
const MEMORY_BYTES = 1 << 21

/**
 * The flags of this process that a thread needs too: for type stripping, for the cache of its results, and for
 * warnings. Node refuses some other flags for the file of a thread, for example `--input-type`.
 */
const inherited = process.execArgv.filter(flag =>
  /^--((no-)?(experimental|disable-warning|warnings)|import=)/.test(flag),
)

interface Job {
  /** Does the job. The thread has no other job until the promise resolves. */
  run(member: Member): Promise<void>
  reject(reason: unknown): void
}

/** A thread of the pool. It answers one request at a time. */
class Member {
  readonly memory = new Uint8Array(new SharedArrayBuffer(MEMORY_BYTES))
  readonly worker: Worker
  job: Job | undefined
  /** Why the thread has ended; undefined while it runs. */
  #lost: unknown
  #asked: { resolve(response: Response): void; reject(error: unknown): void } | undefined

  constructor() {
    const workerData: WorkerData = { tables: tables(), memory: this.memory }
    this.worker = new Worker(new URL('worker.ts', import.meta.url), { workerData, execArgv: inherited })
    this.worker.on('message', (response: Response) => this.#asked?.resolve(response))
  }

  /** Sends a request. Resolves with the answer; rejects when the thread has ended or ends before it answers. */
  ask(request: Load): Promise<{ counts: number[] }>
  ask(request: { body: Uint8Array }): Promise<{ value: unknown } | { syntax: string }>
  ask(request: Request): Promise<Response> {
    return new Promise((resolve, reject) => {
      if (this.#lost !== undefined) return reject(this.#lost)
      this.#asked = { resolve, reject }
      this.worker.postMessage(request)
    })
  }

  /** Marks the thread as ended, and rejects its request. */
  lose(error: unknown): void {
    this.#lost ??= error
    this.#asked?.reject(error)
  }
}

export function createMeterPool(options: MeterPoolOptions = {}): MeterPool {
  const size = options.workers ?? Math.min(4, Math.max(1, availableParallelism() - 1))
  const room = options.queue ?? 32
  const members: Member[] = []
  const waiting: Job[] = []
  let closed = false

  function start(): Member {
    const member = new Member()
    // When a thread has ended (out of memory, or closed), its job fails. The next job starts another thread.
    const lose = (error: unknown) => {
      const at = members.indexOf(member)
      if (at >= 0) members.splice(at, 1)
      member.lose(error)
    }
    member.worker.on('error', lose)
    member.worker.on('exit', () => lose(new MeterBusy()))
    members.push(member)
    return member
  }

  function next(): void {
    while (waiting.length > 0) {
      const member = members.find(m => m.job === undefined) ?? (members.length < size ? start() : undefined)
      if (!member) return
      const job = waiting.shift()!
      member.job = job
      // Only a working thread keeps the process alive.
      member.worker.ref()
      void job.run(member)
    }
  }

  function submit<T>(work: (member: Member) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason)
      const busy = members.reduce((n, m) => n + (m.job ? 1 : 0), 0)
      if (closed || (busy >= size && waiting.length >= room)) return reject(new MeterBusy())
      const job: Job = {
        async run(member) {
          const result = work(member)
          // The thread is free before the caller learns the result, also after a failure.
          await result.catch(() => {})
          signal?.removeEventListener('abort', abort)
          member.job = undefined
          member.worker.unref()
          resolve(result)
          next()
        },
        reject,
      }
      // The place of a waiting job is free at once. A running job frees its thread when the thread has answered.
      const abort = () => {
        const at = waiting.indexOf(job)
        if (at >= 0) waiting.splice(at, 1)
        reject(signal!.reason)
      }
      signal?.addEventListener('abort', abort, { once: true })
      waiting.push(job)
      next()
    })
  }

  return {
    async count(texts, signal) {
      if (texts.length === 0) return []
      return submit(member => countTexts(member, texts, signal), signal)
    },
    parse(body, signal) {
      return submit(async member => {
        const answer = await member.ask({ body })
        if ('syntax' in answer) throw new SyntaxError(answer.syntax)
        return answer.value
      }, signal)
    },
    get jobs() {
      return { running: members.reduce((n, m) => n + (m.job ? 1 : 0), 0), waiting: waiting.length }
    },
    async close() {
      closed = true
      for (const job of waiting.splice(0)) job.reject(new MeterBusy())
      await Promise.all(members.map(m => m.worker.terminate()))
    },
  }
}

async function countTexts(
  member: Member,
  texts: readonly string[],
  signal: AbortSignal | undefined,
): Promise<number[]> {
  const counts: number[] = []
  const writer = new TextWriter(texts)
  while (!writer.done) {
    let load = writer.write(member.memory)
    while (!load) {
      await new Promise<void>(resolve => setImmediate(resolve))
      signal?.throwIfAborted()
      load = writer.write(member.memory)
    }
    for (const count of (await member.ask(load)).counts) counts.push(count)
    signal?.throwIfAborted()
  }
  return counts
}
