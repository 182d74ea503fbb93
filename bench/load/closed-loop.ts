/**
 * Closed loop: each of a fixed number of connections sends its next request when it has its answer. The status, the
 * length and the last bytes of every answer are checked. The program takes a `Job` as JSON and prints a `Report` as
 * JSON.
 */
import { cpuMicros } from '../machine.ts'
import { openRequests, type RequestSpec } from '../requests.ts'
import { type Answer, Connection } from './connection.ts'
import { percentile } from './percentile.ts'

export interface Job {
  port: number
  connections: number
  requests: RequestSpec
  /** The load runs this long before it is measured. */
  leadInMs: number
  measureMs: number
  /** What every answer must look like, as `verify` found it. */
  expect: Expectation
  /** The process whose CPU time is read at the beginning and the end of the measurement. */
  pid: number
}

export interface Expectation {
  payloadMin: number
  payloadMax: number
  /** The last bytes of an answer must contain this text; '' for no check. */
  terminal: string
}

export interface Report {
  seconds: number
  answers: number
  payloadBytes: number
  requestBytes: number
  cpuMicros: number
  /** Median time from the sending of a request to the last byte of its answer, ms. */
  p50: number
  p99: number
  /** The number of wrong answers and lost connections, by reason. */
  failures: Record<string, number>
}

/** Why an answer is wrong, or undefined. */
export function fault(answer: Answer, expect: Expectation): string | undefined {
  if (answer.status !== 200) return `status ${answer.status}`
  if (answer.payload < expect.payloadMin || answer.payload > expect.payloadMax)
    return `${answer.payload < expect.payloadMin ? 'short' : 'long'} answer`
  if (expect.terminal !== '' && !answer.tail.includes(expect.terminal)) return 'no terminal event'
  return undefined
}

if (process.argv[1] === import.meta.filename) run(JSON.parse(process.argv[2]!) as Job)

function run(job: Job): void {
  const shared = job.requests.kind === 'agents' ? undefined : openRequests(job.requests)
  const failures: Report['failures'] = {}
  let latencies: number[] = []
  let answers = 0
  let payloadBytes = 0
  let requestBytes = 0
  const fail = (reason: string) => (failures[reason] = (failures[reason] ?? 0) + 1)
  const ask = (connection: Connection) => {
    connection.since = performance.now()
    const pieces = connection.source!.next()
    for (const piece of pieces) requestBytes += piece.length
    connection.send(pieces)
  }
  const handler = {
    onAnswer(answer: Answer, connection: Connection) {
      const reason = fault(answer, job.expect)
      if (reason === undefined) answers++
      else fail(reason)
      latencies.push(performance.now() - connection.since)
      ask(connection)
    },
    onPayload(bytes: number) {
      payloadBytes += bytes
    },
    onLost(reason: string) {
      fail(`connection ${reason}`)
      connections.push(open())
    },
  }
  const open = () => {
    const source = shared ?? openRequests(job.requests)
    const hears = source.hear && { onContent: (content: Buffer) => source.hear!(content) }
    const connection = new Connection(job.port, { ...handler, ...hears })
    connection.source = source
    ask(connection)
    return connection
  }
  const connections = Array.from({ length: job.connections }, open)

  setTimeout(() => {
    latencies = []
    answers = payloadBytes = requestBytes = 0
    const cpu = cpuMicros(job.pid)
    const start = performance.now()
    setTimeout(() => {
      const report: Report = {
        seconds: (performance.now() - start) / 1000,
        answers,
        payloadBytes,
        requestBytes,
        cpuMicros: cpuMicros(job.pid) - cpu,
        p50: percentile(latencies, 0.5),
        p99: percentile(latencies, 0.99),
        failures,
      }
      for (const connection of connections) connection.destroy()
      console.log(JSON.stringify(report))
      process.exit(0)
    }, job.measureMs)
  }, job.leadInMs)
}
