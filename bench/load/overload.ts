/**
 * Open loop far above the capacity of a server. Requests become due at a fixed rate. Each is sent at once, on a free
 * keep-alive connection. All connections are opened before: a listener accepts 512 at a time, and what the kernel drops
 * beyond that comes back after 1, 3, 7 and 15 s, so that a load that opens connections measures the kernel. The report says how many were served completely, how many were refused, with
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
  /** Complete answers per second of the measured time. Times are of requests that were sent in it, too. */
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

/** So many connections are opened at a time: fewer than a listener holds back. */
const AT_ONCE = 100

if (process.argv[1] === import.meta.filename) run(JSON.parse(process.argv[2]!) as Job)

function run(job: Job): void {
  const source = openRequests(job.requests)
  const periodMs = 1000 / job.rate
  const count = Math.round((job.leadInMs + job.measureMs) / periodMs)
  let start = 0
  let from = 0
  let until = 0
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
  let refusals = 0
  let whole = 0

  const handler = {
    onAnswer(answer: Answer, connection: Connection) {
      const at = now()
      const counts = at >= from && at < until
      // A request of the lead-in may have waited behind those of the first moment.
      const timed = connection.since >= from
      if (answer.status === 429 || answer.status === 503) {
        const code = /"code":"([a-z_]+)"/.exec(answer.tail.toString('latin1'))?.[1]
        if (code === undefined) tally(failures, `status ${answer.status} without a code`)
        else if (counts) {
          refusals++
          if (timed) refused.push(at - connection.since)
          tally(codes, `${answer.status} ${code}`)
        }
      } else {
        const reason = fault(answer, job.expect)
        if (reason !== undefined) tally(failures, reason)
        else if (counts) {
          whole++
          if (timed) served.push(at - connection.since)
        }
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

  let opening: Connection[] = []
  const opener = setInterval(() => {
    opening = opening.filter(connection => !connection.open)
    while (open < job.connections && opening.length < AT_ONCE) {
      open++
      const connection = new Connection(job.port, handler)
      opening.push(connection)
      free.push(connection)
    }
    if (open < job.connections || opening.length > 0) return
    clearInterval(opener)
    begin()
  }, 5)

  const begin = () => {
    start = now() + 300
    from = start + job.leadInMs
    until = from + job.measureMs
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
        served: whole / seconds,
        servedP50: percentile(served, 0.5),
        servedP99: percentile(served, 0.99),
        refused: refusals / seconds,
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
}
