/**
 * `npm run bench:overload`: sends three times as many requests as the gateway can serve. It measures how much of the
 * gateway's throughput remains, how fast the other requests are refused, and what becomes of open streams and of the
 * admin server meanwhile. The exit code is 1 when a goal is missed. See README.md.
 */
import { once } from 'node:events'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { freePort } from '../test/ports.ts'
import { start, startProgram, stop } from './children.ts'
import { startSluice } from './contenders/sluice.ts'
import { closedLoop, demandNone, failures, type Lane, lane, load, Prober, ready, startUpstream } from './lanes.ts'
import type { Opened, Job as StreamsJob } from './load/open-streams.ts'
import type { Job, Report } from './load/overload.ts'
import { median, percentile } from './load/percentile.ts'
import { busyWith, CONTENDER, LOAD, pinning } from './machine.ts'
import { chat, type Route } from './requests.ts'
import { type Goal, reached, show, table } from './results.ts'

const HELP = `Usage: npm run bench:overload [-- --rounds 3] [--seconds 5] [--times 3]

Measures the gateway's peak, then sends four fifths and --times as much, open loop. About three minutes. The goals are
those of three times the peak; above it only admin and open streams have goals.
`

/** Connections of the closed loop, as in profile 3. */
const CONNECTIONS = 64
/** Connections of the load: more than any round needs, so that it is the gateway that refuses. */
const MOST_CONNECTIONS = 3000
/** Programs that keep the gateway's core busy, to see that it refuses nobody for that. */
const OTHERS = 15
/** The goals: this part of the peak throughput remains. */
const GOODPUT = { buffered: 0.75, streamed: 0.95 }
/** The rate at which the gateway is busy and not overloaded, as a share of the peak. */
const BUSY = 0.8
/** Streams that stay open all the time, each with an event every four seconds. */
const KEPT = 200
/** The admin server is asked this often, in milliseconds. */
const ASK_MS = 50
const trickle: Route = { name: 'trickle', surface: 'chat', model: 'trickle-chat' }
const WARM_MS = 4000
/**
 * The load runs this long before it is measured, in milliseconds, so that the gateway sheds load, and the backlog of the
 * first moment is gone.
 */
const LEAD_IN_MS = { busy: 2000, overload: 4000 }

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
  const admin = await freePort()
  const running = await startSluice({
    upstream: upstream.port,
    change: config => (config.server.admin = `127.0.0.1:${admin}`),
  })
  const streamed = await ready([lane('streams of 200 events', running, chat, true)], each => peak(each, WARM_MS))
  const buffered = await ready([lane('buffered, 400 bytes', running, chat, false)], each => peak(each, WARM_MS))
  let good = true
  const kept = await keepStreams(running.port, lane('trickle', running, trickle, true).file)
  for (const each of [...streamed, ...buffered]) {
    const peaks: Peak[] = []
    const reports: Report[] = []
    const busy: Report[] = []
    const answers: number[] = []
    for (let round = 0; round < rounds; round++) {
      await calm(admin, each)
      peaks.push(await peak(each, measureMs))
      busy.push(await openLoop(each, BUSY * peaks.at(-1)!.rate, LEAD_IN_MS.busy, measureMs))
      const asking = ask(admin)
      reports.push(await openLoop(each, times * peaks.at(-1)!.rate, LEAD_IN_MS.overload, measureMs))
      answers.push(...(await asking.stop()))
    }
    const middle = (of: (report: Report) => number) => median(reports.map(of))
    const goodput = median(reports.map((report, i) => report.served / peaks[i]!.rate))
    const micros = reports.map(report => report.cpuMicros / (report.served * (measureMs / 1000)))
    const perCpu = median(micros.map((each, i) => peaks[i]!.micros / each))
    const slower = median(reports.map((report, i) => report.servedP99 / busy[i]!.servedP99))
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
          [
            `the same at ${BUSY} of the peak`,
            `${show(median(busy.map(r => r.servedP50)))}, ${show(median(busy.map(r => r.servedP99)))}`,
          ],
          ['refused, answers/s', show(middle(r => r.refused))],
          ['refused, ms p50, p99', `${show(middle(r => r.refusedP50))}, ${show(middle(r => r.refusedP99))}`],
          ['refused with', [...new Set(reports.flatMap(r => Object.keys(r.codes)))].join(', ')],
          ['not sent: all connections busy', String(middle(r => r.givenUp))],
          ['sent late, ms p99', show(middle(r => r.sentLateP99))],
          ['admin: /healthz, ms p50, p99', `${show(percentile(answers, 0.5))}, ${show(percentile(answers, 0.99))}`],
        ],
      ),
    )
    for (const report of reports)
      for (const [reason, n] of Object.entries(report.failures)) failures.push(`${each.name}: ${n} × ${reason}`)
    const least = each.stream ? GOODPUT.streamed : GOODPUT.buffered
    const goals: Goal[] = [
      { text: 'goodput, share of the peak', value: goodput, least },
      { text: 'refused, ms p50', value: middle(r => r.refusedP50), most: 20 },
      { text: `served p99, of that at ${BUSY} of the peak`, value: slower, most: 2 },
    ]
    const aims = [
      ...(times === 3 ? goals : []),
      { text: 'admin, ms p99', value: percentile(answers, 0.99), most: 1000 },
    ]
    const rows = aims.map(goal => [
      goal.text,
      goal.least === undefined ? `≤ ${goal.most}` : `≥ ${goal.least}`,
      show(goal.value),
      reached(goal) ? 'reached' : 'missed',
    ])
    console.log(`\n${table(['goal', 'is', 'measured', ''], rows)}`)
    good &&= aims.every(reached)
  }
  for (const each of buffered) {
    await calm(admin, each)
    const { answers, refused } = await besideOthers(each, measureMs * rounds)
    console.log(`\n## ${each.name}, a closed loop beside ${OTHERS} busy programs on the gateway’s core\n`)
    console.log(table(['answers', 'refused'], [[String(answers), String(refused)]]))
    good &&= refused === 0
  }
  for (const [reason, n] of Object.entries(await kept.lost())) failures.push(`open streams: ${n} × ${reason}`)
  await running.stop()
  await upstream.stop()
  for (const failure of failures) console.error(`! ${failure}`)
  return good && failures.length === 0 ? 0 : 1
}

/** Opens streams that last. @returns what counts those that ended since, by reason, and closes the others */
async function keepStreams(port: number, file: string): Promise<{ lost(): Promise<Record<string, number>> }> {
  const job: StreamsJob = { port, requests: { kind: 'short', file } }
  const program = join(import.meta.dirname, 'load', 'open-streams.ts')
  const child = startProgram(LOAD, program, [JSON.stringify(job)], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  child.send({ open: KEPT })
  demandNone(((await once(child, 'message')) as [Opened])[0].failures)
  return {
    async lost() {
      child.send({ open: 0 })
      const [{ failures }] = (await once(child, 'message')) as [Opened]
      await stop(child)
      return failures
    },
  }
}

/** Sends a few requests until the gateway sheds no load, which takes about 20 s after an overload. */
async function calm(admin: number, each: Lane): Promise<void> {
  for (let i = 0; i < 60; i++) {
    const metrics = await (await fetch(`http://127.0.0.1:${admin}/metrics`)).text()
    if (metrics.includes('\nsluice_shed_running_limit 0\n')) return
    const prober = new Prober(each)
    await prober.ask().catch(() => {})
    prober.close()
    await new Promise(resolve => setTimeout(resolve, 1000))
  }
  throw new Error('the gateway sheds load without being loaded')
}

/** Asks the admin server again and again. `stop` returns the milliseconds of each answer. */
function ask(port: number): { stop(): Promise<number[]> } {
  const all: number[] = []
  let asking = true
  const done = (async () => {
    while (asking) {
      const began = performance.now()
      const { status } = await fetch(`http://127.0.0.1:${port}/healthz`)
      if (status !== 200) failures.push(`/healthz answered ${status}`)
      all.push(performance.now() - began)
      await new Promise(resolve => setTimeout(resolve, ASK_MS))
    }
  })()
  return {
    async stop() {
      asking = false
      await done
      return all
    },
  }
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

/** A closed loop while other programs use the gateway's core: it is slower, and no request is too many. */
async function besideOthers(each: Lane, measureMs: number): Promise<{ answers: number; refused: number }> {
  const busy = Array.from({ length: OTHERS }, () => start(CONTENDER, process.execPath, ['-e', 'for (;;);']))
  try {
    const { answers, failures: wrong } = await closedLoop(each, CONNECTIONS, 500, measureMs)
    const { 'status 503': refused = 0, ...others } = wrong
    demandNone(others)
    return { answers, refused }
  } finally {
    await Promise.all(busy.map(child => stop(child)))
  }
}

async function openLoop(
  { running, file, expect }: Lane,
  rate: number,
  leadInMs: number,
  measureMs: number,
): Promise<Report> {
  const job: Job = {
    port: running.port,
    rate,
    connections: MOST_CONNECTIONS,
    requests: { kind: 'short', file },
    leadInMs,
    measureMs,
    expect,
    pid: running.pid,
  }
  return load<Report>('overload.ts', job, leadInMs + measureMs + 30_000)
}
