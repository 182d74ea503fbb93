/**
 * `/feed`: server-sent events, one snapshot a second for every open page. While no page is open no snapshot is taken,
 * only the one point a second that the charts keep.
 */
import type { ServerResponse } from 'node:http'
import type { Clock, Timer } from '../core/tools/clock.ts'
import type { Shown, Snapshot } from './snapshot.ts'

const PERIOD_MS = 1000
const MOST_PAGES = 20
/** In bytes. A page with more than this unsent gets no further snapshot until it has read on. */
const MOST_BUFFERED = 1 << 20

export class Feed {
  readonly #snapshots: Shown
  readonly #clock: Clock
  readonly #pages = new Set<ServerResponse>()
  /** Pages that have got their first snapshot. */
  readonly #begun = new WeakSet<ServerResponse>()
  #timer: Timer | null = null
  #closed = false

  constructor(snapshots: Shown, clock: Clock) {
    this.#snapshots = snapshots
    this.#clock = clock
    this.#schedule()
  }

  get pages(): number {
    return this.#pages.size
  }

  /**
   * Takes over the response: sends the feed's head, then a snapshot a second until the page closes. The first page gets
   * its first snapshot at once.
   * @returns false when too many pages are open; nothing was sent then
   */
  async join(response: ServerResponse): Promise<boolean> {
    if (this.#closed || this.#pages.size >= MOST_PAGES) return false
    const first = this.#pages.size === 0
    this.#pages.add(response)
    response.on('close', () => this.#leave(response))
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
      'x-content-type-options': 'nosniff',
    })
    response.flushHeaders()
    if (first) {
      await this.#snapshots.start()
      this.#send()
    }
    return true
  }

  close(): void {
    this.#closed = true
    this.#timer?.cancel()
    for (const page of this.#pages) page.end()
    this.#snapshots.stop()
    this.#snapshots.close()
  }

  #leave(page: ServerResponse): void {
    this.#pages.delete(page)
    if (this.#pages.size === 0) this.#snapshots.stop()
  }

  #schedule(): void {
    if (this.#closed) return
    this.#timer = this.#clock.setTimer(PERIOD_MS, () => {
      this.#snapshots.tick()
      this.#send()
      this.#schedule()
    })
  }

  #send(): void {
    if (this.#pages.size === 0) return
    const snapshot = this.#snapshots.take()
    const text = frame(snapshot)
    let whole: string | undefined
    for (const page of this.#pages) {
      if (page.writableLength > MOST_BUFFERED) continue
      if (this.#begun.has(page)) page.write(text)
      else {
        this.#begun.add(page)
        page.write((whole ??= frame(this.#snapshots.whole(snapshot))))
      }
    }
  }
}

function frame(snapshot: Snapshot): string {
  return `data: ${JSON.stringify(snapshot)}\n\n`
}
