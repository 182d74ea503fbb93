/**
 * Counts and durations of the hot path, kept in plain numbers and given to prom-client at each scrape. prom-client's
 * own `inc` and `observe` hash their labels on every call, which costs more than most plugins.
 */
import type { MetricObjectWithValues, MetricValueWithName } from 'prom-client'

export type Aggregator = 'sum' | 'max' | 'worker'

/** Upper bounds of the buckets in seconds: from the time of a refusal to that of the longest stream. */
const BOUNDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1200, 3600]

/** A histogram of seconds. */
export class Distribution {
  readonly #counts = new Float64Array(BOUNDS.length + 1)
  #sum = 0
  #total = 0

  observe(seconds: number): void {
    let i = 0
    while (i < BOUNDS.length && seconds > BOUNDS[i]!) i++
    this.#counts[i]!++
    this.#sum += seconds
    this.#total++
  }

  get count(): number {
    return this.#total
  }

  /** In Prometheus' form: cumulative buckets, sum, count. */
  values(name: string, labels: Record<string, string>): MetricValueWithName<string>[] {
    const values: MetricValueWithName<string>[] = []
    let cumulative = 0
    for (const [i, bound] of BOUNDS.entries()) {
      cumulative += this.#counts[i]!
      values.push({ metricName: `${name}_bucket`, labels: { ...labels, le: bound }, value: cumulative })
    }
    values.push({ metricName: `${name}_bucket`, labels: { ...labels, le: '+Inf' }, value: this.#total })
    values.push({ metricName: `${name}_sum`, labels, value: this.#sum })
    values.push({ metricName: `${name}_count`, labels, value: this.#total })
    return values
  }
}

/**
 * A metric that prom-client reads and never writes.
 * @param aggregator how the values of several workers become one; `worker`: not at all, each gets its label
 */
export function readOnly(
  name: string,
  help: string,
  type: string,
  read: () => MetricValueWithName<string>[] | Promise<MetricValueWithName<string>[]>,
  aggregator: Aggregator = 'sum',
) {
  return {
    name,
    help,
    type,
    aggregator,
    reset() {},
    async get(): Promise<MetricObjectWithValues<MetricValueWithName<string>>> {
      return { name, help, type, aggregator, values: await read() } as unknown as MetricObjectWithValues<
        MetricValueWithName<string>
      >
    },
  }
}
