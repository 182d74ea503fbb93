/**
 * `npm run bench:overload`: sends three times as many requests as the gateway can serve. It measures how much of the
 * gateway's throughput remains, and how fast the other requests are refused. The exit code is 1 when the goal is
 * missed. See README.md.
 */
import { parseArgs } from 'node:util'
import { startSluice } from './contenders/sluice.ts'
import { closedLoop, demandNone, failures, type Lane, lane, load, ready, startUpstream } from './lanes.ts'
import type { Job, Report } from './load/overload.ts'
import { median } from './load/percentile.ts'
import { busyWith, pinning } from './machine.ts'
import { chat } from './requests.ts'
import { show, table } from './results.ts'

const HELP = `Usage: npm run bench:overload [-- --rounds 3] [--seconds 5] [--times 3]

Measures the gateway's peak, then sends --times as much, open loop. About a minute.
`

/** Connections of the closed loop, as in profile 3. */
const CONNECTIONS = 64
/** The most connections of the load: more than any round needs, so that it is the gateway that refuses. */
const MOST_CONNECTIONS = 6000
/** The goal: this part of the peak throughput remains. */
const GOAL = 0.9
const WARM_MS = 4000
/**
 * The load runs this long before it is measured, so that the gateway's overload shedding has noticed the overload, and
 * the backlog of the first moment is gone.
 */
const LEAD_IN_MS = 2000

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '5' },
    times: { type: 'string', default: '3' },
    help: { type: 'boolean', short: 'h' },
  },
})

process.exitCode = await main(Number(values.rounds), Number(values.seconds) * 1000, Number(values.times))
// A contender that did not stop must not keep this process alive.
process.exit()

async function main(rounds: number, measureMs: number, times: number): Promise<number> {
  if (values.help) {
    console.log(HELP)
    return 0
  }
  if (!(rounds >= 1 && measureMs > 0 && times > 1)) {
    console.error(HELP)
    return 2
  }
  console.log(`${pinning}; node ${process.version}; ${rounds} rounds of ${measureMs / 1000} s`)
  const others = busyWith()
  if (others > 0.3) console.log(`! this machine has other work (load ${others}): the figures are noise`)
  const upstream = await startUpstream()
  const running = await startSluice({ upstream: upstream.port })
  const streamed = await ready([lane('streams of 200 events', running, chat, true)], each => peak(each, WARM_MS))
  const buffered = await ready([lane('buffered, 400 bytes', running, chat, false)], each => peak(each, WARM_MS))
  let good = true
  for (const each of [...streamed, ...buffered]) {
    const peaks: Peak[] = []
    const reports: Report[] = []
    for (let round = 0; round < rounds; round++) {
      peaks.push(await peak(each, measureMs))
      reports.push(await overload(each, times * peaks.at(-1)!.rate, measureMs))
    }
    const middle = (of: (report: Report) => number) => median(reports.map(of))
    const goodput = median(reports.map((report, i) => report.served / peaks[i]!.rate))
    const micros = reports.map(report => report.cpuMicros / (report.served * (measureMs / 1000)))
    const perCpu = median(micros.map((each, i) => peaks[i]!.micros / each))
    const peakRate = median(peaks.map(({ rate }) => rate))
    console.log(`\n## ${each.name}\n`)
    console.log(
      table(
        ['', ''],
        [
          ['peak, answers/s', show(peakRate)],
          [`offered, ${times} times that`, show(times * peakRate)],
          ['served whole, answers/s', show(middle(r => r.served))],
          ['goodput, share of the peak', show(goodput)],
          ['the same for each second of the gateway’s CPU time', show(perCpu)],
          ['busy % of its core', show(middle(r => r.cpuMicros / (measureMs * 10)))],
          ['served, ms p50, p99', `${show(middle(r => r.servedP50))}, ${show(middle(r => r.servedP99))}`],
          ['refused, answers/s', show(middle(r => r.refused))],
          ['refused, ms p50, p99', `${show(middle(r => r.refusedP50))}, ${show(middle(r => r.refusedP99))}`],
          ['refused with', [...new Set(reports.flatMap(r => Object.keys(r.codes)))].join(', ')],
          ['not sent: all connections busy', String(middle(r => r.givenUp))],
          ['sent late, ms p99', show(middle(r => r.sentLateP99))],
        ],
      ),
    )
    for (const report of reports)
      for (const [reason, n] of Object.entries(report.failures)) failures.push(`${each.name}: ${n} × ${reason}`)
    if (each.stream && goodput < GOAL) {
      good = false
      console.log(`\nThe goal is ${GOAL} of the peak.`)
    }
  }
  await running.stop()
  await upstream.stop()
  for (const failure of failures) console.error(`! ${failure}`)
  return good && failures.length === 0 ? 0 : 1
}

interface Peak {
  /** Complete answers per second. */
  rate: number
  /** CPU time of one answer, µs. */
  micros: number
}

/** Measures a lane at full load, in a closed loop. */
async function peak(each: Lane, measureMs: number): Promise<Peak> {
  const { answers, seconds, cpuMicros, failures: wrong } = await closedLoop(each, CONNECTIONS, 500, measureMs)
  // A gateway that refuses requests of a closed loop has no peak to compare with.
  demandNone(wrong)
  return { rate: answers / seconds, micros: cpuMicros / answers }
}

async function overload({ running, file, expect }: Lane, rate: number, measureMs: number): Promise<Report> {
  const job: Job = {
    port: running.port,
    rate,
    connections: MOST_CONNECTIONS,
    requests: { kind: 'short', file },
    leadInMs: LEAD_IN_MS,
    measureMs,
    expect,
    pid: running.pid,
  }
  return load<Report>('overload.ts', job, LEAD_IN_MS + measureMs + 30_000)
}
