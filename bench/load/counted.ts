/**
 * Closed loop of a fixed number of requests, so that the CPU time of two runs can be compared whatever else runs on the
 * machine. The program takes a `Job` as JSON and prints a `Report` as JSON.
 */
import { openRequests, type RequestSpec } from '../requests.ts'
import { Connection } from './connection.ts'

export interface Job {
  port: number
  connections: number
  requests: RequestSpec
  /** How many requests are sent. */
  count: number
}

export interface Report {
  seconds: number
  requestBytes: number
  /** The bytes of all answers with their heads. */
  answerBytes: number
  /** The number of answers that are not 200, and of lost connections, by reason. */
  failures: Record<string, number>
}

if (process.argv[1] === import.meta.filename) run(JSON.parse(process.argv[2]!) as Job)

function run(job: Job): void {
  const source = openRequests(job.requests)
  const report: Report = { seconds: 0, requestBytes: 0, answerBytes: 0, failures: {} }
  const fail = (reason: string) => (report.failures[reason] = (report.failures[reason] ?? 0) + 1)
  const start = performance.now()
  let sent = 0
  let ended = 0
  const ask = (connection: Connection) => {
    if (sent === job.count) return
    sent++
    const pieces = source.next()
    for (const piece of pieces) report.requestBytes += piece.length
    connection.send(pieces)
  }
  const end = () => {
    if (++ended < job.count) return
    report.seconds = (performance.now() - start) / 1000
    console.log(JSON.stringify(report))
    process.exit(0)
  }
  const handler = {
    onAnswer({ status, wire }: { status: number; wire: number }, connection: Connection) {
      report.answerBytes += wire
      if (status !== 200) fail(`status ${status}`)
      ask(connection)
      end()
    },
    onLost(reason: string) {
      fail(`connection ${reason}`)
      ask(new Connection(job.port, handler))
      end()
    },
  }
  for (let i = 0; i < Math.min(job.connections, job.count); i++) ask(new Connection(job.port, handler))
}
