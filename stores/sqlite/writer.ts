/**
 * Groups writes into transactions: while one group is being committed, the next one gathers. A thread writes a database
 * file, so that fsync never blocks the event loop. An in-memory database is written on the main thread.
 */
import type { DatabaseSync } from 'node:sqlite'
import { Worker } from 'node:worker_threads'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import type { KeptStats } from '../../core/ports/store.ts'
import { type Caps, Tables, type Write } from './tables.ts'
import type { Applied } from './thread.ts'

export interface Writer {
  /**
   * Resolves when the write is committed. Rejects with StoreUnavailable when its group failed; then nothing of the
   * group was written.
   */
  write(write: Write): Promise<void>
  /** Deletes one slice of what has expired. Resolves with true when there may be more; rejects as `write` does. */
  sweep(now: number): Promise<boolean>
  /** Why the last group failed, or a message that the present one takes very long; undefined otherwise. */
  readonly failure: string | undefined
  /** Removes one slice of what an organization has beside its account. Resolves and rejects as `sweep` does. */
  remove(organization: string): Promise<boolean>
  /** As of the last group. */
  readonly kept: KeptStats
  /** Resolves when all writes so far have been committed or have failed. */
  close(): Promise<void>
}

export class InlineWriter implements Writer {
  readonly failure = undefined
  #tables: Tables
  constructor(db: DatabaseSync, caps: Caps) {
    this.#tables = new Tables(db, caps)
  }
  get kept(): KeptStats {
    return this.#tables.kept()
  }
  async write(write: Write): Promise<void> {
    await this.#apply(write)
  }
  sweep(now: number): Promise<boolean> {
    return this.#apply({ op: 'sweep', now })
  }
  remove(organization: string): Promise<boolean> {
    return this.#apply({ op: 'remove', organization })
  }
  #apply(write: Write): Promise<boolean> {
    try {
      return Promise.resolve(this.#tables.apply([write]))
    } catch (error) {
      return Promise.reject(new StoreUnavailable(`the store cannot write: ${(error as Error).message}`, error))
    }
  }
  close(): Promise<void> {
    return Promise.resolve()
  }
}

/** One write that waits for its commit. */
interface Job {
  write: Write
  /** @param left whether a slice in its group has left rows */
  resolve(left: boolean): void
  reject(error: Error): void
}

/** After the thread has died, a new one is started not earlier than this. Until then every write fails. */
const RESTART_MS = 1000
/** A commit that takes longer than this is reported as a failure in /readyz. */
const SLOW_MS = 5000

export class ThreadWriter implements Writer {
  kept: KeptStats
  #failure: string | undefined
  #file: string
  #caps: Caps
  #worker: Worker | undefined
  #queue: Job[] = []
  #inFlight: Job[] | undefined
  #sentAt = 0
  #closing: (() => void) | undefined
  #restartAt = 0

  /** @param kept until the thread has reported */
  constructor(file: string, caps: Caps, kept: KeptStats) {
    this.kept = kept
    this.#file = file
    this.#caps = caps
    this.#start()
  }

  get failure(): string | undefined {
    const waited = this.#inFlight ? performance.now() - this.#sentAt : 0
    return waited > SLOW_MS ? `nothing has been committed for ${Math.round(waited / 1000)} s` : this.#failure
  }

  write(write: Write): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ write, resolve: () => resolve(), reject })
      this.#pump()
    })
  }

  sweep(now: number): Promise<boolean> {
    return this.#slice({ op: 'sweep', now })
  }

  remove(organization: string): Promise<boolean> {
    return this.#slice({ op: 'remove', organization })
  }

  #slice(write: Write): Promise<boolean> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ write, resolve, reject })
      this.#pump()
    })
  }

  async close(): Promise<void> {
    const worker = this.#worker
    if (!worker) return
    await new Promise<void>(resolve => {
      this.#closing = resolve
      worker.ref()
      worker.once('exit', resolve)
      this.#pump()
    })
  }

  /** Sends the next group to the thread, if none is being committed. */
  #pump(): void {
    if (this.#inFlight) return
    if (!this.#worker) {
      if (Date.now() < this.#restartAt) {
        this.#fail(this.#queue.splice(0), this.#failure ?? 'the writer is down')
        return
      }
      this.#start()
    }
    const worker = this.#worker!
    if (this.#queue.length) {
      this.#inFlight = this.#queue
      this.#queue = []
      this.#sentAt = performance.now()
      // The thread keeps the process alive while it works, so that a process with nothing else to do waits for the
      // commit.
      worker.ref()
      worker.postMessage(this.#inFlight.map(job => job.write))
    } else if (this.#closing) worker.postMessage('close')
    else worker.unref()
  }

  #start(): void {
    const worker = new Worker(new URL('./thread.ts', import.meta.url), {
      workerData: { file: this.#file, caps: this.#caps },
    })
    this.#worker = worker
    worker.unref()
    worker.on('message', ({ error, left, kept }: Applied) => {
      if (kept) this.kept = kept
      const jobs = this.#inFlight ?? []
      this.#inFlight = undefined
      this.#failure = error ?? undefined
      if (error === null) for (const job of jobs) job.resolve(left)
      else this.#fail(jobs, error)
      this.#pump()
    })
    const died = (reason: string) => {
      if (this.#worker !== worker) return
      this.#worker = undefined
      this.#failure = reason
      this.#restartAt = Date.now() + RESTART_MS
      const jobs = this.#inFlight ?? []
      this.#inFlight = undefined
      this.#fail(jobs, reason)
    }
    worker.on('error', error => died((error as Error).message))
    worker.on('exit', code => died(`the writer ended with code ${code}`))
  }

  #fail(jobs: readonly Job[], reason: string): void {
    for (const job of jobs) job.reject(new StoreUnavailable(`the store cannot write: ${reason}`))
  }
}
