/** Profile 4: the latency that a contender adds to that of the upstream, at a fixed rate. */
import { alternate, demandNone, type Lane, lane, load, ready, startAll, startUpstream, Void } from '../lanes.ts'
import type { Job, Report } from '../load/open-loop.ts'
import { median } from '../load/percentile.ts'
import { chat } from '../requests.ts'
import { type Figures, goals, medians, type Profile } from '../results.ts'

const RATE = 3000
const CONNECTIONS = 32
const DIRECT = 'upstream direct'
const POINTS = ['p50 ms', 'p99 ms', 'p99.9 ms']

export const latency: Profile = {
  name: 'latency',
  title: `added latency at ${RATE} requests/s, open loop, ${CONNECTIONS} connections, from the time a request is due`,
  async run({ rounds, seconds = 2, contenders }) {
    const upstream = await startUpstream()
    const names = contenders ?? ['sluice', 'uws-undici', 'nginx', 'haproxy', 'http-proxy-3']
    const running = await startAll(names, { upstream: upstream.port, streaming: false })
    const direct = { port: upstream.port, pid: 0, stop: upstream.stop }
    const lanes = [
      lane(DIRECT, direct, chat, false),
      ...[...running].map(([{ name, headers }, at]) => lane(name, at, chat, false, headers?.(upstream.port))),
    ]
    const good = await ready(lanes, each => run(each, 1500))
    const samples = await alternate(good, rounds, each => measure(each, seconds * 1000))
    for (const at of [...running.values(), upstream]) await at.stop()

    // A percentile of the contender minus the same percentile of the upstream in the same round.
    const added = (name: string, point: string) =>
      median(
        (samples.get(name) ?? []).flatMap((round, i) => {
          const base = samples.get(DIRECT)?.[i]
          return round && base ? [round[point]! - base[point]!] : []
        }),
      )
    const figures = medians(samples)
    for (const [name, row] of Object.entries(figures))
      for (const point of POINTS) row[`added ${point}`] = name === DIRECT ? 0 : added(name, point)
    return {
      profile: 'latency',
      lanes: figures,
      ratios: {},
      goals: goals(
        { text: 'added p50 ms', value: figures['sluice']?.['added p50 ms'], most: 0.25 },
        { text: 'added p99 ms', value: figures['sluice']?.['added p99 ms'], most: 1 },
      ),
    }
  },
}

async function run({ running, file, expect }: Lane, measureMs: number): Promise<Report> {
  const job: Job = {
    port: running.port,
    connections: CONNECTIONS,
    rate: RATE,
    requests: { kind: 'short', file },
    leadInMs: 300,
    measureMs,
    expect,
  }
  const report = await load<Report>('open-loop.ts', job, measureMs + 20_000)
  demandNone(report.failures)
  return report
}

async function measure(each: Lane, measureMs: number): Promise<Figures> {
  const report = await run(each, measureMs)
  if (report.answered < report.due)
    throw new Void(`can't keep up: ${report.answered} of ${report.due} requests answered in time`)
  return {
    'p50 ms': report.p50,
    'p99 ms': report.p99,
    'p99.9 ms': report.p999,
    'sent late p99 ms': report.sentLateP99,
  }
}
