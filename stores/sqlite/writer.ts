/**
 * Groups writes into transactions: while one group commits, the next gathers. A database file is written by a thread, so that no fsync ever stops
 * the event loop; an in-memory one inline.
 */
import type { DatabaseSync } from 'node:sqlite'
import { Worker } from 'node:worker_threads'
import { StoreUnavailable } from '../../core/store.ts'
import { type Caps, Tables, type Write } from './tables.ts'

export interface Writer {
  /** Resolves when the write is committed; rejects with StoreUnavailable when its group failed (nothing of it was written). */
  write(write: Write): Promise<void>
  /** Why the last group failed, or that the present one takes very long; undefined while all is well. */
  readonly failure: string | undefined
  close(): Promise<void>
}

export class InlineWriter implements Writer {
  readonly failure = undefined
  #tables: Tables
  constructor(db: DatabaseSync, caps: Caps) {
    this.#tables = new Tables(db, caps)
  }
  write(write: Write): Promise<void> {
    try {
      this.#tables.apply([write])
      return Promise.resolve()
    } catch (error) {
      return Promise.reject(new StoreUnavailable(`the store cannot write: ${(error as Error).message}`, error))
    }
  }
  close(): Promise<void> {
    return Promise.resolve()
  }
}

interface Job {
  write: Write
  resolve(): void
  reject(error: Error): void
}

const RESTART_MS = 1000
/** A commit that takes longer says so in /readyz. */
const SLOW_MS = 5000

export class ThreadWriter implements Writer {
  #failure: string | undefined
  #file: string
  #caps: Caps
  #worker: Worker | undefined
  #queue: Job[] = []
  #inFlight: Job[] | undefined
  #sentAt = 0
  #closing: (() => void) | undefined
  #restartAt = 0

  constructor(file: string, caps: Caps) {
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
      // Referenced while it works, so that a process with nothing else to do still waits for its commit.
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
    worker.on('message', (error: string | null) => {
      const jobs = this.#inFlight ?? []
      this.#inFlight = undefined
      this.#failure = error ?? undefined
      if (error === null) for (const job of jobs) job.resolve()
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
