/**
 * The last hour of the dashboard's charts: one point a second, also while no page is open, so that a page that is
 * opened after an incident shows it. The size is fixed: 3,600 points of 68 bytes, 245 KB. No answer is larger than
 * that.
 */
import type { Live } from './snapshot.ts'

/** Points that are kept: one for each second of an hour. */
const HOUR = 3600
/** The values of a point, in the order in which they are kept and sent. */
export const SERIES = [
  'ok',
  'refused',
  'failed',
  'gone',
  'input',
  'output',
  'streams',
  'exchanges',
  'connections',
  'ttfb50',
  'ttfb99',
  'duration50',
  'duration99',
  'loop99',
  'loopMax',
] as const

export class History {
  /** Unix seconds. */
  readonly #times = new Float64Array(HOUR)
  readonly #values = new Float32Array(HOUR * SERIES.length)
  #next = 0
  #size = 0

  add(live: Live): void {
    const { ok, refused, failed, gone, input, output, streams, exchanges, connections, ttfb, duration, loop } = live
    const times = [ttfb.p50, ttfb.p99, duration.p50, duration.p99, loop.p99, loop.max].map(ms => ms ?? Number.NaN)
    const counts = [ok, refused, failed, gone, input, output, streams, exchanges, connections]
    this.#times[this.#next] = live.at / 1000
    this.#values.set([...counts, ...times], this.#next * SERIES.length)
    this.#next = (this.#next + 1) % HOUR
    this.#size = Math.min(HOUR, this.#size + 1)
  }

  /**
   * The points after a time, oldest first: their times as float64 (Unix seconds), then for each point its values as
   * float32 in the order of `SERIES`, NaN where there is none. Numbers are little-endian.
   * @param seconds Unix seconds
   */
  since(seconds: number): Buffer {
    let count = 0
    while (count < this.#size && this.#times[(this.#next - 1 - count + HOUR) % HOUR]! > seconds) count++
    const start = (this.#next - count + HOUR) % HOUR
    return Buffer.concat([
      ...inOrder(this.#times, start, count, 1),
      ...inOrder(this.#values, start, count, SERIES.length),
    ])
  }
}

/** The bytes of `count` points from index `start`; after the end of the ring they continue at its beginning. */
function inOrder(ring: Float64Array | Float32Array, start: number, count: number, width: number): Buffer[] {
  const bytes = (from: number, to: number) => {
    const part = ring.subarray(from * width, to * width)
    return Buffer.from(part.buffer, part.byteOffset, part.byteLength)
  }
  const first = Math.min(count, HOUR - start)
  return [bytes(start, start + first), bytes(0, count - first)]
}
