/**
 * Threads that parse and count what would block the event loop. They share the tables (tables.ts), so a thread starts
 * in some tens of milliseconds. A thread starts when it is first needed. An idle thread does not keep the process
 * alive.
 */
import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'
import { FairGate } from '../core/tools/fair.ts'
import type { JsonPath } from '../core/tools/json.ts'
import { movable } from './json.ts'
import { type Tables, tables } from './tables.ts'
import { type Load, TextWriter } from './text-writer.ts'

/** The pool is closed, or the thread that did the job died. The gateway answers 503 `route_capacity`. */
export class MeterBusy extends Error {
  override name = 'MeterBusy'
  constructor() {
    super('the meter has no thread for a large prompt')
  }
}

export interface MeterPoolOptions {
  /**
   * Number of threads, and of those that parse large bodies beside them. Default: one less than the machine's cores, at
   * least 1 and at most 4.
   */
  workers?: number
}

/**
 * Jobs wait for a thread in one line for each owner, which is an organization, and the lines take turns
 * (core/tools/fair.ts). The pool does not bound how many wait: the budget of work before admission does
 * (plugins/shared/preparation.ts).
 */
export interface MeterPool {
  /** Tokens of each text. Rejects with `MeterBusy`, or with the signal's reason. */
  count(texts: readonly string[], signal?: AbortSignal, owner?: string): Promise<number[]>
  /**
   * The value of a JSON body, and the body. Memory that the body has for itself goes to the thread and back, so that
   * there is no second copy: use the returned body, since the given one is empty then. Rejects with a SyntaxError for
   * what is not JSON, with `MeterBusy`, or with the signal's reason.
   * @param exactAt where the spelling of numbers is wanted, as `exact`
   */
  parse(body: Uint8Array, signal?: AbortSignal, owner?: string, exactAt?: JsonPath): Promise<Parsed>
  /**
   * The form of each JSON text in which it is sent and counted (core/tools/json.ts). Rejects with `MeterBusy`, or with
   * the signal's reason.
   */
  normalise(texts: readonly string[], signal?: AbortSignal, owner?: string): Promise<NormalText[]>
  /** Jobs that have a thread, and jobs that wait for one. */
  readonly jobs: { running: number; waiting: number }
  /** Ends the threads. Running and waiting jobs reject with `MeterBusy`. */
  close(): Promise<void>
}

export interface Parsed {
  value: unknown
  body: Uint8Array
  /** The JSON texts at `exactAt`, numbers spelled as in the body. */
  exact?: string[] | undefined
}

/** What a thread makes of a JSON text. */
export interface NormalText {
  /** The form, `''` when that is the text itself. */
  text: string
  /** The form of a long text as a JSON string in UTF-8: to write 15 MB of it takes some 100 ms. */
  quoted?: Uint8Array | undefined
  /** The text is one JSON object. */
  object: boolean
}

/**
 * A message to a thread: count the texts in its memory, forget a text that will not go on, parse a body, or write JSON
 * texts into form.
 */
export type Request = CountRequest | ForgetRequest | ParseRequest | NormalRequest
/** `job` says which text a load continues: other jobs use the thread between two loads. */
export type CountRequest = Load & { job: number }
interface ForgetRequest {
  forget: number
}
interface ParseRequest {
  body: Uint8Array
  exactAt?: JsonPath | undefined
}
interface NormalRequest {
  json: readonly string[]
}
/** The one answer to each request but `forget`. `counts` has the tokens of each text that ends in the load. */
export type Response = { counts: number[] } | Parsed | { syntax: string } | { normal: NormalText[] }

export interface WorkerData {
  tables: Tables
  /** Shared with the main thread, which writes texts into it while this thread is idle. */
  memory: Uint8Array
}

/**
 * The shared memory of each thread, in bytes. What is in it is counted in one go, some 10 ms and at most 25 ms, for
 * which all other owners wait. A text with more bytes is counted in parts. That costs nothing that could be measured,
 * against a memory of 2 MiB, which took 170 ms.
 */
const MEMORY_BYTES = 1 << 17

/**
 * A body of more bytes is parsed by a thread of its own, which is ended then. What it made of the body is garbage,
 * twice the body's size and more, and an idle thread collects none. The other threads go on meanwhile, so that nobody
 * waits for large bodies of others but with such a one.
 */
const LARGE_BYTES = 4 * 1024 * 1024

/**
 * The flags of this process that a thread needs too: for type stripping, for the cache of its results, and for
 * warnings. Node refuses some other flags for the file of a thread, for example `--input-type`.
 */
const inherited = process.execArgv.filter(flag =>
  /^--((no-)?(experimental|disable-warning|warnings)|import=)/.test(flag),
)

/** A thread of the pool. It answers one request at a time. */
class Member {
  readonly memory = new Uint8Array(new SharedArrayBuffer(MEMORY_BYTES))
  readonly worker: Worker
  /** True while a job uses the thread. */
  busy = false
  /** Texts that the thread has counted in part. */
  readonly texts = new Set<number>()
  /** Jobs that go on with such a text, and wait until the thread is not busy. */
  readonly waiting: (() => void)[] = []
  /** Why the thread has ended. */
  #lost: unknown
  #pending: { resolve(response: Response): void; reject(error: unknown): void } | undefined

  constructor() {
    const workerData: WorkerData = { tables: tables(), memory: this.memory }
    this.worker = new Worker(new URL('worker.ts', import.meta.url), { workerData, execArgv: inherited })
    this.worker.on('message', (response: Response) => this.#pending?.resolve(response))
  }

  /** Sends a request. Resolves with the answer; rejects when the thread has ended or ends before it answers. */
  ask(request: CountRequest): Promise<{ counts: number[] }>
  ask(request: ParseRequest): Promise<Parsed | { syntax: string }>
  ask(request: NormalRequest): Promise<{ normal: NormalText[] }>
  ask(request: CountRequest | ParseRequest | NormalRequest): Promise<Response> {
    return new Promise((resolve, reject) => {
      if (this.#lost !== undefined) return reject(this.#lost)
      this.#pending = { resolve, reject }
      this.worker.postMessage(request, 'body' in request ? movable(request.body) : [])
    })
  }

  /** The text of this job will not go on. */
  forget(job: number): void {
    if (this.texts.delete(job)) this.worker.postMessage({ forget: job } satisfies ForgetRequest)
  }

  /** Marks the thread as ended, and rejects its request. */
  lose(error: unknown): void {
    this.#lost ??= error
    this.#pending?.reject(error)
  }
}

export function createMeterPool(options: MeterPoolOptions = {}): MeterPool {
  const size = options.workers ?? Math.min(4, Math.max(1, availableParallelism() - 1))
  const gate = new FairGate(size)
  const large = new FairGate(size)
  const members: Member[] = []
  let closed = false
  let jobs = 0

  function start(): Member {
    const member = new Member()
    // When a thread has ended (out of memory, or closed), its job fails. The next job starts another thread.
    const lose = (error: unknown) => {
      retire(member)
      member.lose(error)
    }
    member.worker.on('error', lose)
    member.worker.on('exit', () => lose(new MeterBusy()))
    members.push(member)
    return member
  }

  /** Ends a thread that has just answered, or has ended by itself. */
  function retire(member: Member): void {
    const at = members.indexOf(member)
    if (at >= 0) members.splice(at, 1)
    void member.worker.terminate()
  }

  /** Waits for a place and works in it. */
  async function inPlace<T>(
    places: FairGate,
    owner: string,
    signal: AbortSignal | undefined,
    work: () => Promise<T>,
  ): Promise<T> {
    if (closed) throw new MeterBusy()
    const leave = await places.enter(owner, signal)
    try {
      if (closed) throw new MeterBusy()
      return await work()
    } finally {
      leave()
    }
  }

  /**
   * Waits for a thread and works with it. When the signal is aborted, the place in the line is free at once; a thread
   * that works is free when it has answered.
   * @param same the thread that must do it; undefined: any
   */
  async function withMember<T>(
    owner: string,
    signal: AbortSignal | undefined,
    work: (member: Member) => Promise<T>,
    same?: Member,
  ): Promise<T> {
    return inPlace(gate, owner, signal, async () => {
      // Who has a place finds a thread that nobody waits for: there are as many places as threads, and one that waits
      // here has a place, too.
      if (same?.busy) await new Promise<void>(resolve => same.waiting.push(resolve))
      const member = same ?? members.find(m => !m.busy) ?? start()
      member.busy = true
      // Only a thread at work keeps the process alive.
      member.worker.ref()
      try {
        return await work(member)
      } finally {
        const next = member.waiting.shift()
        // The thread stays busy for the job that has waited.
        if (next) next()
        else member.busy = false
        // The process lives until the threads that `close` ends have ended.
        if (!closed) member.worker.unref()
      }
    })
  }

  /** As `withMember`, with a thread of its own. */
  async function withOwnMember<T>(
    owner: string,
    signal: AbortSignal | undefined,
    work: (member: Member) => Promise<T>,
  ): Promise<T> {
    return inPlace(large, owner, signal, async () => {
      const member = start()
      member.busy = true
      try {
        return await work(member)
      } finally {
        retire(member)
      }
    })
  }

  /**
   * One load after the other. Between two loads the thread is free for other owners, so that none waits for a whole
   * long prompt. A text that is cut goes on in the thread that has counted its beginning.
   */
  async function count(texts: readonly string[], signal: AbortSignal | undefined, owner: string): Promise<number[]> {
    const counts: number[] = []
    const writer = new TextWriter(texts)
    const job = ++jobs
    let same: Member | undefined
    try {
      while (!writer.done) {
        const work = async (member: Member) => {
          let load = writer.write(member.memory)
          while (!load) {
            await new Promise<void>(resolve => setImmediate(resolve))
            signal?.throwIfAborted()
            load = writer.write(member.memory)
          }
          same = load.open ? member : undefined
          if (load.open) member.texts.add(job)
          else member.texts.delete(job)
          return member.ask({ ...load, job })
        }
        const { counts: more } = await withMember(owner, signal, work, same)
        signal?.throwIfAborted()
        for (const one of more) counts.push(one)
      }
      return counts
    } finally {
      same?.forget(job)
    }
  }

  return {
    count(texts, signal, owner = '') {
      return orAborted(count(texts, signal, owner), signal)
    },
    parse(body, signal, owner = '', exactAt) {
      const run = body.byteLength > LARGE_BYTES ? withOwnMember : withMember
      const parsed = run(owner, signal, async member => {
        const answer = await member.ask({ body, exactAt })
        if ('syntax' in answer) throw new SyntaxError(answer.syntax)
        return answer
      })
      return orAborted(parsed, signal)
    },
    normalise(texts, signal, owner = '') {
      const size = texts.reduce((sum, { length }) => sum + length, 0)
      const run = size > LARGE_BYTES ? withOwnMember : withMember
      const made = run(owner, signal, async member => (await member.ask({ json: texts })).normal)
      return orAborted(made, signal)
    },
    get jobs() {
      return { running: gate.running + large.running, waiting: gate.waiting + large.waiting }
    },
    async close() {
      closed = true
      for (const each of [gate, large]) each.refuseAll(new MeterBusy())
      await Promise.all(members.map(m => m.worker.terminate()))
    },
  }
}

/** Rejects as soon as the signal is aborted; the work then ends by itself. */
function orAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return work
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
