/**
 * Open loop far above what a server can do: requests fall due at a fixed rate and are sent on a connection of their own, a kept one when one is free;
 * nobody waits. Says how many were served whole, how many refused, with which codes and how quickly. Takes a `Job` as JSON, prints a `Report` as JSON.
 */
import { Worker } from 'node:worker_threads'
import { cpuMicros } from '../machine.ts'
import { openRequests } from '../requests.ts'
import { now } from './clock.ts'
import { type Job as ClosedJob, fault } from './closed-loop.ts'
import { type Answer, Connection } from './connection.ts'
import { percentile } from './percentile.ts'

export interface Job extends ClosedJob {
  /** Requests per second. */
  rate: number
  /** At most so many at a time; a request beyond is given up, and counted. */
  connections: number
}

export interface Report {
  cpuMicros: number
  /** Whole answers a second, of the measured time. */
  served: number
  servedP50: number
  servedP99: number
  /** Answers 429 and 503 a second. */
  refused: number
  /** Milliseconds from the sending to the last byte. */
  refusedP50: number
  refusedP99: number
  codes: Record<string, number>
  /** Not sent, because all connections were busy. */
  givenUp: number
  /** How late requests were sent, of this program's own doing. */
  sentLateP99: number
  /** Neither served nor properly refused, by what was wrong. */
  failures: Record<string, number>
}

if (process.argv[1] === import.meta.filename) run(JSON.parse(process.argv[2]!) as Job)

function run(job: Job): void {
  const source = openRequests(job.requests)
  const periodMs = 1000 / job.rate
  const count = Math.round((job.leadInMs + job.measureMs) / periodMs)
  const start = now() + 300
  const from = start + job.leadInMs
  const until = from + job.measureMs
  const free: Connection[] = []
  const served: number[] = []
  const refused: number[] = []
  const lateness: number[] = []
  const codes: Report['codes'] = {}
  const failures: Report['failures'] = {}
  const tally = (of: Record<string, number>, what: string) => (of[what] = (of[what] ?? 0) + 1)
  let open = 0
  let sent = 0
  let givenUp = 0

  const handler = {
    onAnswer(answer: Answer, connection: Connection) {
      const at = now()
      const counts = at >= from && at < until
      if (answer.status === 429 || answer.status === 503) {
        const code = /"code":"([a-z_]+)"/.exec(answer.tail.toString('latin1'))?.[1]
        if (code === undefined) tally(failures, `status ${answer.status} without a code`)
        else if (counts) {
          refused.push(at - connection.since)
          tally(codes, `${answer.status} ${code}`)
        }
      } else {
        const reason = fault(answer, job.expect)
        if (reason !== undefined) tally(failures, reason)
        else if (counts) served.push(at - connection.since)
      }
      free.push(connection)
    },
    onLost(reason: string, connection: Connection) {
      open--
      const at = free.indexOf(connection)
      // A kept connection that its server closed has nothing to lose.
      if (at >= 0) free.splice(at, 1)
      else tally(failures, `connection ${reason}`)
    },
  }
  const send = (i: number) => {
    let connection = free.pop()
    if (!connection) {
      if (open >= job.connections) {
        givenUp++
        return
      }
      open++
      connection = new Connection(job.port, handler)
    }
    const at = now()
    connection.since = at
    const due = start + i * periodMs
    if (due >= from) lateness.push(at - due)
    connection.send(source.next())
  }

  const metronome = new Worker(new URL('./metronome.ts', import.meta.url), { workerData: { start, periodMs, count } })
  metronome.on('message', () => {
    // By the clock, not by the message: several may come at once.
    const fallen = Math.min(count, Math.floor((now() - start) / periodMs) + 1)
    while (sent < fallen) send(sent++)
  })
  let cpu = 0
  setTimeout(() => (cpu = cpuMicros(job.pid)), from - now())
  setTimeout(() => {
    const seconds = job.measureMs / 1000
    const report: Report = {
      cpuMicros: cpuMicros(job.pid) - cpu,
      served: served.length / seconds,
      servedP50: percentile(served, 0.5),
      servedP99: percentile(served, 0.99),
      refused: refused.length / seconds,
      refusedP50: percentile(refused, 0.5),
      refusedP99: percentile(refused, 0.99),
      codes,
      givenUp,
      sentLateP99: percentile(lateness, 0.99),
      failures,
    }
    console.log(JSON.stringify(report))
    process.exit(0)
  }, until - now())
}
