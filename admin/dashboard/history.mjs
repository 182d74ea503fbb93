/** What the charts show: one hour of seconds in typed arrays of fixed size. A page that stays open for a week holds no more than that. */
export const HOUR = 3600

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

  /** @param at seconds; @param values by name, null where there is none */
  push(at, values) {
    this.#times[this.#next] = at
    for (const [name, series] of this.#series) series[this.#next] = values[name] ?? Number.NaN
    this.#next = (this.#next + 1) % HOUR
    this.#size = Math.min(HOUR, this.#size + 1)
  }

  /** The last `seconds` of some series as uPlot takes them: times first, null for gaps. */
  window(names, seconds) {
    const count = Math.min(this.#size, seconds)
    const start = (this.#next - count + HOUR) % HOUR
    return [this.#times, ...names.map(name => this.#series.get(name))].map(series => {
      const out = new Array(count)
      for (let i = 0; i < count; i++) {
        const value = series[(start + i) % HOUR]
        out[i] = Number.isNaN(value) ? null : value
      }
      return out
    })
  }
}
