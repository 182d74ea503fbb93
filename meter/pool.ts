/**
 * Worker threads that parse and count what would hold up the event loop. They share the tables (tables.ts), so a worker starts in some tens of
 * milliseconds; workers start when first needed and keep no process alive.
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
  /** Threads. Default: one less than the machine runs at once, 1 to 4. */
  workers?: number
  /** Jobs that may wait for a thread. Default 32. */
  queue?: number
}

export interface MeterPool {
  /** Tokens of each text. Rejects with `MeterBusy`, or with the signal's reason. */
  count(texts: readonly string[], signal?: AbortSignal): Promise<number[]>
  /** The value of a JSON body. Rejects with a SyntaxError for what is not JSON, with `MeterBusy`, or with the signal's reason. */
  parse(body: Uint8Array, signal?: AbortSignal): Promise<unknown>
  /** Jobs running and waiting. */
  readonly jobs: { running: number; waiting: number }
  /** Ends the threads; what is under way rejects with `MeterBusy`. */
  close(): Promise<void>
}

/** What a worker is told: to count what lies in its memory, or to parse. */
export type Request = Load | { body: Uint8Array }
/** What it answers, once for each request. `counts`: of the texts that end in the load. */
export type Response = { counts: number[] } | { value: unknown } | { syntax: string }

export interface WorkerData {
  tables: Tables
  /** Shared with the event loop, which writes texts into it while the thread has nothing to do. */
  memory: Uint8Array
}

/** Of each thread; the system gives it pages as they are written. A text of more bytes is counted in parts, a third slower. */
const MEMORY_BYTES = 1 << 21

/** Flags a worker needs too: type stripping and what keeps its results, warnings. Others, as `--input-type`, are refused for a worker's file. */
const inherited = process.execArgv.filter(flag =>
  /^--((no-)?(experimental|disable-warning|warnings)|import=)/.test(flag),
)

interface Job {
  /** Does the job with a thread of its own. */
  run(member: Member): Promise<void>
  reject(reason: unknown): void
}

/** A thread. It is asked one thing at a time. */
class Member {
  readonly memory = new Uint8Array(new SharedArrayBuffer(MEMORY_BYTES))
  readonly worker: Worker
  job: Job | undefined
  /** Why the thread has ended. */
  #lost: unknown
  #asked: { resolve(response: Response): void; reject(error: unknown): void } | undefined

  constructor() {
    const workerData: WorkerData = { tables: tables(), memory: this.memory }
    this.worker = new Worker(new URL('worker.ts', import.meta.url), { workerData, execArgv: inherited })
    this.worker.on('message', (response: Response) => this.#asked?.resolve(response))
  }

  /** Rejects when the thread has ended, or ends meanwhile. */
  ask(request: Load): Promise<{ counts: number[] }>
  ask(request: { body: Uint8Array }): Promise<{ value: unknown } | { syntax: string }>
  ask(request: Request): Promise<Response> {
    return new Promise((resolve, reject) => {
      if (this.#lost !== undefined) return reject(this.#lost)
      this.#asked = { resolve, reject }
      this.worker.postMessage(request)
    })
  }

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
    // A thread died (out of memory, closed): its job fails, the next one starts another thread.
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
      // Only a thread at work keeps the process alive.
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
          // The caller finds the thread free, however the work ended.
          await result.catch(() => {})
          signal?.removeEventListener('abort', abort)
          member.job = undefined
          member.worker.unref()
          resolve(result)
          next()
        },
        reject,
      }
      // Waiting: the place is free at once. Running: the thread is, when it has answered what it was asked.
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
