/**
 * Worker threads that parse and count what would hold up the event loop. They share the tables (tables.ts), so a worker starts in some tens of
 * milliseconds; workers start when first needed and keep no process alive.
 */
import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'
import { tables } from './tables.ts'

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

/** What a worker is told. Texts come in messages of bounded size; `open`: the last text goes on in the next message. */
export type Request = { texts: string[]; open: boolean; last: boolean } | { body: Uint8Array } | { drop: true }
/** What it answers, once for each job. */
export type Response = { counts: number[] } | { value: unknown } | { syntax: string } | { dropped: true }

/** UTF-16 units in one message: copying more at once would hold up the event loop that it is meant to spare. */
const MESSAGE_UNITS = 1 << 18

/** Flags a worker needs too: type stripping, warnings. Others, as `--input-type`, are refused for a worker's file. */
const inherited = process.execArgv.filter(flag => /^--(no-)?(experimental|disable-warning|warnings)/.test(flag))

interface Job {
  /** Sends the job's messages; returns early when `job.settled`. */
  send(worker: Worker, job: Job): void
  resolve(value: unknown): void
  reject(reason: unknown): void
  settled: boolean
  forget(): void
}

interface Member {
  worker: Worker
  job: Job | undefined
}

export function createMeterPool(options: MeterPoolOptions = {}): MeterPool {
  const size = options.workers ?? Math.min(4, Math.max(1, availableParallelism() - 1))
  const room = options.queue ?? 32
  const members: Member[] = []
  const waiting: Job[] = []
  let closed = false

  function start(): Member {
    const worker = new Worker(new URL('worker.ts', import.meta.url), { workerData: tables(), execArgv: inherited })
    const member: Member = { worker, job: undefined }
    worker.on('message', (response: Response) => finish(member, response))
    worker.on('error', error => lose(member, error))
    worker.on('exit', () => lose(member, new MeterBusy()))
    members.push(member)
    return member
  }

  /** A thread died (out of memory, closed): its job fails, the next one starts another thread. */
  function lose(member: Member, error: unknown): void {
    const at = members.indexOf(member)
    if (at >= 0) members.splice(at, 1)
    const { job } = member
    member.job = undefined
    if (job) settle(job, () => job.reject(error))
    if (!closed) next()
  }

  function settle(job: Job, how: () => void): void {
    if (job.settled) return
    job.settled = true
    job.forget()
    how()
  }

  function finish(member: Member, response: Response): void {
    const job = member.job!
    member.job = undefined
    member.worker.unref()
    settle(job, () => {
      if ('counts' in response) job.resolve(response.counts)
      else if ('value' in response) job.resolve(response.value)
      else if ('syntax' in response) job.reject(new SyntaxError(response.syntax))
    })
    next()
  }

  function next(): void {
    while (waiting.length > 0) {
      const member = members.find(m => m.job === undefined) ?? (members.length < size ? start() : undefined)
      if (!member) return
      const job = waiting.shift()!
      member.job = job
      // Only a thread at work keeps the process alive.
      member.worker.ref()
      job.send(member.worker, job)
    }
  }

  function submit<T>(send: Job['send'], signal: AbortSignal | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason)
      const busy = members.reduce((n, m) => n + (m.job ? 1 : 0), 0)
      if (closed || (busy >= size && waiting.length >= room)) return reject(new MeterBusy())
      const abort = () => {
        // Waiting: the place is free at once. Running: the thread stops at the next message.
        const at = waiting.indexOf(job)
        if (at >= 0) waiting.splice(at, 1)
        settle(job, () => reject(signal!.reason))
      }
      const job: Job = {
        send,
        resolve: resolve as Job['resolve'],
        reject,
        settled: false,
        forget: () => signal?.removeEventListener('abort', abort),
      }
      signal?.addEventListener('abort', abort, { once: true })
      waiting.push(job)
      next()
    })
  }

  return {
    count(texts, signal) {
      if (texts.length === 0) return Promise.resolve([])
      return submit((worker, job) => sendTexts(worker, job, texts), signal)
    },
    parse(body, signal) {
      return submit(worker => worker.postMessage({ body } satisfies Request), signal)
    },
    get jobs() {
      return { running: members.reduce((n, m) => n + (m.job ? 1 : 0), 0), waiting: waiting.length }
    },
    async close() {
      closed = true
      for (const job of waiting.splice(0)) settle(job, () => job.reject(new MeterBusy()))
      await Promise.all(members.map(m => m.worker.terminate()))
    },
  }
}

/** One message per turn of the event loop. */
function sendTexts(worker: Worker, job: Job, texts: readonly string[]): void {
  let index = 0
  let offset = 0
  const step = () => {
    if (job.settled) return worker.postMessage({ drop: true } satisfies Request)
    const batch: string[] = []
    let units = 0
    while (index < texts.length && units < MESSAGE_UNITS && batch.length < 4096) {
      const text = texts[index]!
      const end = Math.min(text.length, offset + MESSAGE_UNITS - units)
      batch.push(offset === 0 && end === text.length ? text : text.slice(offset, end))
      units += end - offset
      offset = end
      if (end === text.length) {
        index++
        offset = 0
      }
    }
    const last = index === texts.length
    worker.postMessage({ texts: batch, open: offset > 0, last } satisfies Request)
    if (!last) setImmediate(step)
  }
  step()
}
