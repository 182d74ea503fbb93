/** Ships the ledger beside a gateway that serves: `ledger.ship` of gateway.yaml. */
import { Worker } from 'node:worker_threads'
import type { Logger } from '../../core/plugin.ts'
import type { Clock, Timer } from '../../core/tools/clock.ts'
import { behind, nameOfTarget, type ShipStatus } from './ship.ts'
import type { ShipNews, ShipWork } from './thread.ts'

/** A thread that has died is started again after this many ms. */
const RESTART_MS = 5000
/** Closing waits this long for the running batch, ms. What it does not wait for is shipped after the next start. */
const CLOSE_MS = 5000

const NOTHING: ShipStatus = { shipped: 0, failures: 0, failure: null, leading: false, lag: null }

export class Shipping {
  readonly target: string
  readonly #work: ShipWork
  readonly #clock: Clock
  readonly #log: Logger
  #worker: Worker | undefined
  #status: ShipStatus = NOTHING
  /** What threads before this one have counted. */
  #before = { shipped: 0, failures: 0 }
  #restart: Timer | undefined
  #closed = false

  /** @throws ShipError when the target's URL is wrong */
  constructor(work: ShipWork, { clock, log }: { clock: Clock; log: Logger }) {
    this.target = nameOfTarget(work.to)
    this.#work = work
    this.#clock = clock
    this.#log = log
    this.#start()
  }

  /** For metrics: what this process has shipped, how often that failed, and how far the target is behind. */
  get figures(): { shipped: number; failures: number; rows: number; seconds: number } {
    const { shipped, failures, lag } = this.#status
    const before = this.#before
    return {
      shipped: before.shipped + shipped,
      failures: before.failures + failures,
      ...behind(lag, this.#clock.now()),
    }
  }

  /** For readiness: that rows wait, and why; undefined while they are shipped. */
  get waiting(): string | undefined {
    const { failure, lag } = this.#status
    if (failure === null) return undefined
    const { rows, seconds } = behind(lag, this.#clock.now())
    return `the ledger is not shipped: ${failure} (${rows} rows behind, the oldest for ${seconds} s)`
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#restart?.cancel()
    const worker = this.#worker
    if (!worker) return
    const ended = new Promise(resolve => worker.once('exit', resolve))
    // A process with nothing else to do waits for the thread, and then goes on closing.
    worker.ref()
    worker.postMessage('stop')
    const timer = this.#clock.setTimer(CLOSE_MS, () => void worker.terminate())
    await ended
    timer.cancel()
  }

  #start(): void {
    const worker = new Worker(new URL('./thread.ts', import.meta.url), { workerData: this.#work })
    this.#worker = worker
    worker.unref()
    worker.on('message', (news: ShipNews) => {
      if ('status' in news) this.#status = news.status
      else this.#log[news.level](news.fields, news.message)
    })
    worker.on('error', error => this.#log.error({ err: error }, 'the thread that ships the ledger has died'))
    worker.on('exit', () => {
      this.#worker = undefined
      if (this.#closed) return
      const { shipped, failures } = this.figures
      this.#before = { shipped, failures: failures + 1 }
      this.#status = { ...NOTHING, lag: this.#status.lag, failure: 'its thread has died' }
      this.#restart = this.#clock.setTimer(RESTART_MS, () => this.#start())
    })
  }
}
