/**
 * Open loop: requests become due at a fixed rate, whether or not earlier ones were answered. Latency is counted from
 * the due time, so that a stall of the server counts for all requests that waited (no coordinated omission). A request
 * waits for a free connection when all are busy. The program takes a `Job` as JSON and prints a `Report` as JSON.
 */
import { Worker } from 'node:worker_threads'
import { openRequests, type RequestSpec } from '../requests.ts'
import { now } from './clock.ts'
import { type Expectation, fault } from './closed-loop.ts'
import { type Answer, Connection } from './connection.ts'
import { percentile } from './percentile.ts'

export interface Job {
  port: number
  connections: number
  /** Requests per second that become due. */
  rate: number
  requests: RequestSpec
  leadInMs: number
  measureMs: number
  expect: Expectation
}

/** Percentiles are of the milliseconds from the due time of a request to the last byte of its answer. */
export interface Report {
  p50: number
  p99: number
  p999: number
  max: number
  /** Milliseconds from the due time to the sending: how late this program itself is. */
  sentLateP50: number
  sentLateP99: number
  due: number
  /** How many of them were answered, at most two seconds after the last became due. */
  answered: number
  failures: Record<string, number>
}

if (process.argv[1] === import.meta.filename) run(JSON.parse(process.argv[2]!) as Job)

function run(job: Job): void {
  const source = openRequests(job.requests)
  const periodMs = 1000 / job.rate
  const leadIn = Math.round(job.leadInMs / periodMs)
  const count = leadIn + Math.round(job.measureMs / periodMs)
  const failures: Report['failures'] = {}
  const fail = (reason: string) => (failures[reason] = (failures[reason] ?? 0) + 1)
  const latencies: number[] = []
  const lateness: number[] = []
  const free: Connection[] = []
  const busy = new Map<Connection, number>()
  // The start is delayed so that all connections are open and the metronome runs.
  const start = now() + 300
  const due = (i: number) => start + i * periodMs
  let fallen = 0
  let sent = 0
  let settled = 0

  const handler = {
    onAnswer(answer: Answer, connection: Connection) {
      const request = busy.get(connection)!
      busy.delete(connection)
      const reason = fault(answer, job.expect)
      if (reason !== undefined) fail(reason)
      else if (request >= leadIn) latencies.push(now() - due(request))
      free.push(connection)
      settled++
      push()
    },
    onLost(reason: string, connection: Connection) {
      fail(`connection ${reason}`)
      if (busy.delete(connection)) settled++
      const at = free.indexOf(connection)
      if (at >= 0) free.splice(at, 1)
      free.push(new Connection(job.port, handler))
    },
  }
  for (let i = 0; i < job.connections; i++) free.push(new Connection(job.port, handler))

  const push = () => {
    while (sent < fallen && free.length > 0) {
      const connection = free.pop()!
      busy.set(connection, sent)
      if (sent >= leadIn) lateness.push(now() - due(sent))
      sent++
      connection.send(source.next())
    }
    if (settled === count) finish()
  }
  const finish = () => {
    const report: Report = {
      p50: percentile(latencies, 0.5),
      p99: percentile(latencies, 0.99),
      p999: percentile(latencies, 0.999),
      max: percentile(latencies, 1),
      sentLateP50: percentile(lateness, 0.5),
      sentLateP99: percentile(lateness, 0.99),
      due: count - leadIn,
      answered: latencies.length,
      failures,
    }
    console.log(JSON.stringify(report))
    process.exit(0)
  }

  const metronome = new Worker(new URL('./metronome.ts', import.meta.url), { workerData: { start, periodMs, count } })
  metronome.on('message', () => {
    // The clock says how many are due, not the number of messages, because several messages may arrive at once.
    fallen = Math.min(count, Math.floor((now() - start) / periodMs) + 1)
    push()
  })
  setTimeout(finish, due(count) - now() + 2000)
}
