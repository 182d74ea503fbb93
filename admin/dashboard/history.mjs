/**
 * The points of the charts: one hour of seconds in typed arrays of fixed size, so that a page that stays open for a
 * week takes no more memory. Points of the time before the page was opened, or while it had lost the gateway, come from
 * the hour that the gateway keeps.
 */
export const HOUR = 3600
/** Points further apart than this have nothing between them, seconds: there is one a second, and one may be late. */
const GAP = 3

export class History {
  #times = new Float64Array(HOUR)
  #series
  #next = 0
  #size = 0

  /** @param names of the series */
  constructor(names) {
    this.#series = new Map(names.map(name => [name, new Float64Array(HOUR)]))
  }

  get size() {
    return this.#size
  }

  /** Unix seconds of the newest point, 0 when there is none. */
  get last() {
    return this.#size === 0 ? 0 : this.#times[(this.#next - 1 + HOUR) % HOUR]
  }

  /**
   * Inserts points of the past before the points that have come over the feed since then.
   * @param times seconds, oldest first
   * @param rows values by name, as many as times
   */
  fill(times, rows) {
    if (times.length === 0) return
    const newer = []
    while (this.#size > 0 && this.last >= times[0]) {
      this.#next = (this.#next - 1 + HOUR) % HOUR
      this.#size--
      if (this.#times[this.#next] > times.at(-1))
        newer.unshift([
          this.#times[this.#next],
          Object.fromEntries([...this.#series].map(([name, series]) => [name, series[this.#next]])),
        ])
    }
    for (const [i, at] of times.entries()) this.push(at, rows[i])
    for (const [at, values] of newer) this.push(at, values)
  }

  /**
   * @param at seconds
   * @param values by name, null where there is none
   */
  push(at, values) {
    if (at === this.last) return
    this.#times[this.#next] = at
    for (const [name, series] of this.#series) series[this.#next] = values[name] ?? Number.NaN
    this.#next = (this.#next + 1) % HOUR
    this.#size = Math.min(HOUR, this.#size + 1)
  }

  /** Of a series of rates, how many it is in the last `seconds`. */
  count(name, seconds) {
    const [times, rates] = this.window([name], seconds)
    const from = times.at(-1) - seconds
    return times.reduce((sum, at, i) => {
      // Of the first point, and of one after a gap, the second before it is meant.
      const since = i > 0 && rates[i - 1] !== null ? times[i - 1] : at - 1
      return at > from ? sum + (rates[i] ?? 0) * (at - since) : sum
    }, 0)
  }

  /**
   * The last `seconds` of some series as uPlot takes them: times first, null for gaps. Seconds of which no point came,
   * because the gateway was away, are a gap, too.
   */
  window(names, seconds) {
    const count = Math.min(this.#size, seconds)
    const start = (this.#next - count + HOUR) % HOUR
    const out = [[], ...names.map(() => [])]
    const series = names.map(name => this.#series.get(name))
    for (let i = 0; i < count; i++) {
      const at = (start + i) % HOUR
      const before = out[0].at(-1)
      if (this.#times[at] - before > GAP) {
        out[0].push(before + 1)
        for (let j = 1; j < out.length; j++) out[j].push(null)
      }
      out[0].push(this.#times[at])
      for (let j = 1; j < out.length; j++) {
        const value = series[j - 1][at]
        out[j].push(Number.isNaN(value) ? null : value)
      }
    }
    return out
  }
}
