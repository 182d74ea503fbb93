/**
 * Open loop far above the capacity of a server. Requests become due at a fixed rate. Each is sent at once, on a free
 * keep-alive connection or on a new one. The report says how many were served completely, how many were refused, with
 * which codes, and how fast. The program takes a `Job` as JSON and prints a `Report` as JSON.
 */
import { Worker } from 'node:worker_threads'
import { cpuMicros } from '../machine.ts'
import { openRequests } from '../requests.ts'
import { now } from './clock.ts'
import { type Job as ClosedJob, fault } from './closed-loop.ts'
import { type Answer, Connection } from './connection.ts'
import { percentile } from './percentile.ts'

export interface Job extends ClosedJob {
  /** Requests per second that become due. */
  rate: number
  /** At most this many connections at a time. A request for which there is none is given up and counted. */
  connections: number
}

export interface Report {
  cpuMicros: number
  /** Complete answers per second of the measured time. */
  served: number
  servedP50: number
  servedP99: number
  /** Answers 429 and 503 per second. */
  refused: number
  /** Median time of a refusal from the sending to the last byte, ms. */
  refusedP50: number
  refusedP99: number
  codes: Record<string, number>
  /** Number of requests that were not sent, because all connections were busy. */
  givenUp: number
  /** How late this program sent the requests, ms. */
  sentLateP99: number
  /** Number of requests that were neither served nor properly refused, by reason. */
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
      // The server closed an idle connection: no request is lost.
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
    // The clock says how many are due, not the number of messages, because several messages may arrive at once.
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
