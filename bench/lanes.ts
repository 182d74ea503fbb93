/**
 * Lanes. A lane is one contender with one route, and a profile compares several. The lanes take turns in each round, so
 * that a slow minute of the machine affects all of them.
 */
import type { ChildProcess } from 'node:child_process'
import { join } from 'node:path'
import { Progress } from '../cli/progress.ts'
import { makeCertificates } from '../test/faults/certificates.ts'
import { terminalOf, wrong } from './answers.ts'
import { output, printed, startProgram, stop, temporaryFolder } from './children.ts'
import { available, type Contender, type Running, type Secure, type StartOptions } from './contenders/index.ts'
import type { Job as ClosedJob, Report as ClosedReport, Expectation } from './load/closed-loop.ts'
import { Connection } from './load/connection.ts'
import { LOAD } from './machine.ts'
import { openRequests, type RequestSource, type RequestSpec, type Route, writeRequests } from './requests.ts'

/** A measurement that does not count, because an answer was wrong. */
export class Void extends Error {}

export interface Upstream {
  port: number
  /** Its ports with TLS. */
  secure?: Secure
  stats(): Promise<{ whole: number; streams: number }>
  stop(): Promise<void>
}

/** @param tls also listen with TLS, with certificates made for this run */
export async function startUpstream({ tls = false } = {}): Promise<Upstream> {
  const certificates = tls ? makeCertificates() : undefined
  if (certificates) process.once('exit', () => certificates.remove())
  const files = certificates ? ['server.pem', 'server.key'].map(name => join(certificates.folder, name)) : []
  const child = startProgram(LOAD, join(import.meta.dirname, 'upstream.ts'), files, {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const said = await printed(child, tls ? /listening (\d+)\s+secure (\d+) (\d+)/ : /listening (\d+)/)
  const port = Number(said[1])
  const secure = certificates && { ca: certificates.ca, http1: Number(said[2]), http2: Number(said[3]) }
  let stopping = false
  child.once('exit', (code, signal) => {
    if (stopping) return
    failures.push(`the upstream ended with ${signal ?? code}`)
    console.error(`! ${failures.at(-1)}`)
  })
  return {
    port,
    secure,
    stats: async () =>
      (await fetch(`http://127.0.0.1:${port}/stats`)).json() as Promise<{ whole: number; streams: number }>,
    stop() {
      stopping = true
      return stop(child)
    },
  }
}

export interface Lane {
  /** The name, unique in the profile. */
  name: string
  running: Running
  route: Route
  stream: boolean
  requests: RequestSpec
  /** The file of its requests (`writeRequests`); '' for those of agents. */
  file: string
  headers: Record<string, string>
  /** What a good answer looks like. `verify` sets it. */
  expect: Expectation
  /**
   * The fewest bytes of a whole HTTP answer with its head. Meaningful only for buffered answers, whose size is stable.
   */
  wireMin: number
  wireMax: number
  /** How many answers the load has counted. */
  answered: number
}

const files = new Map<string, string>()

/** The file of a route's requests. Lanes with the same requests share one file. */
function requestFile(route: Route, stream: boolean, headers: Record<string, string>): string {
  const key = JSON.stringify([route, stream, headers])
  let file = files.get(key)
  if (file === undefined) {
    file = join(temporaryFolder(), `requests-${files.size}`)
    writeRequests(file, route, stream, headers)
    files.set(key, file)
  }
  return file
}

export function lane(
  name: string,
  running: Running,
  route: Route,
  stream: boolean,
  headers: Record<string, string> = {},
): Lane {
  const expect = { payloadMin: 0, payloadMax: 0, terminal: stream ? terminalOf(route) : '' }
  const file = route.agents ? '' : requestFile(route, stream, headers)
  const requests: RequestSpec = route.agents ? { kind: 'agents', route, headers } : { kind: 'short', file }
  return { name, running, route, stream, requests, file, headers, expect, wireMin: 0, wireMax: 0, answered: 0 }
}

/** Puts full load on a lane: each connection sends its next request as soon as it has its answer. */
export function closedLoop(
  { running, requests, expect }: Lane,
  connections: number,
  leadInMs: number,
  measureMs: number,
): Promise<ClosedReport> {
  const { port, pid } = running
  const job: ClosedJob = { port, pid, connections, requests, leadInMs, measureMs, expect }
  return load<ClosedReport>('closed-loop.ts', job, measureMs + 20_000)
}

/** Starts those contenders that can run on this machine. One that does not start is left out, with a message. */
export async function startAll(names: readonly string[], options: StartOptions): Promise<Map<Contender, Running>> {
  const running = new Map<Contender, Running>()
  for (const contender of available(names)) {
    try {
      running.set(contender, await contender.start(options))
    } catch (error) {
      failures.push(`${contender.name} did not start: ${(error as Error).message}`)
      console.error(`! ${contender.name} is left out: ${(error as Error).message}`)
    }
  }
  return running
}

/** Sends requests one after the other on one connection, and reads each answer to its end. */
export class Prober {
  readonly #source: RequestSource
  readonly #lane: Lane
  #connection: Connection | undefined
  #settle: ((result: { payload: number; wire: number } | Error) => void) | undefined
  #body: Buffer[] = []

  constructor(lane: Lane) {
    this.#lane = lane
    this.#source = openRequests(lane.requests)
  }

  /** Sends one request. Rejects with Void when its answer is not exactly right. */
  ask(): Promise<{ payload: number; wire: number }> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#settle?.(new Void('no answer in ten seconds')), 10_000)
      this.#settle = result => {
        clearTimeout(timer)
        this.#settle = undefined
        if (result instanceof Error) reject(result)
        else resolve(result)
      }
      this.#body = []
      this.#connection ??= this.#connect()
      this.#connection.send(this.#source.next())
    })
  }

  close(): void {
    this.#connection?.destroy()
    this.#connection = undefined
  }

  #connect(): Connection {
    const { route, stream } = this.#lane
    return new Connection(this.#lane.running.port, {
      onContent: bytes => {
        this.#source.hear?.(bytes)
        this.#body.push(Buffer.from(bytes))
      },
      onAnswer: ({ status, payload, wire }) => {
        const problem = wrong(route, stream, status, Buffer.concat(this.#body).toString())
        this.#settle?.(problem === undefined ? { payload, wire } : new Void(problem))
      },
      onLost: reason => {
        this.#connection = undefined
        this.#settle?.(new Void(`connection ${reason}`))
      },
    })
  }
}

const VERIFIED = 20

/**
 * Checks some answers exactly, and learns from them how long this lane's answers are. Rejects with Void when one is
 * wrong.
 */
export async function verify(lane: Lane): Promise<void> {
  const prober = new Prober(lane)
  const payloads: number[] = []
  const wires: number[] = []
  try {
    for (let i = 0; i < VERIFIED; i++) {
      const { payload, wire } = await prober.ask()
      payloads.push(payload)
      wires.push(wire)
    }
  } finally {
    prober.close()
  }
  // Prompts of different lengths have counts with more digits or fewer, and a response repeats its instructions and
  // tools.
  const { agents, surface } = lane.route
  const slack = agents === undefined ? 0 : surface === 'responses' ? Math.max(...payloads) / 10 : 16
  lane.expect.payloadMin = Math.min(...payloads) - slack
  lane.expect.payloadMax = Math.max(...payloads) + slack
  lane.wireMin = Math.min(...wires)
  lane.wireMax = Math.max(...wires)
}

/** Warms up and checks each lane. @returns the lanes whose answers are right; the others are named on stderr */
export async function ready<L extends Lane>(lanes: L[], warm: (lane: L) => Promise<unknown>): Promise<L[]> {
  const good: L[] = []
  for (const each of lanes) {
    try {
      await verify(each)
      await warm(each)
      // Verified again, because the headers have their final length only after the warm-up.
      await verify(each)
      good.push(each)
    } catch (error) {
      failures.push(`${each.name}: ${(error as Error).message}`)
      console.error(`! ${each.name} answers wrong and is left out: ${(error as Error).message}`)
    }
  }
  return good
}

/**
 * Checks that these lanes, which have stopped, recorded every exchange: a contender must not be faster by not
 * recording.
 */
export function checkRecords(lanes: readonly Lane[]): void {
  for (const { name, running, answered } of lanes) {
    const recorded = running.recorded?.()
    if (!recorded || (recorded.ledger >= answered && recorded.log >= answered)) continue
    failures.push(`${name}: ${answered} answers, ${recorded.ledger} ledger rows, ${recorded.log} log lines`)
    console.error(`! ${failures.at(-1)}`)
  }
}

/** All wrong answers and lost measurements of this run. */
export const failures: string[] = []

/** The samples of each lane, one for each round. A void one is undefined. */
export type Samples<T> = Map<string, (T | undefined)[]>

/** Measures every lane once in each round. Each round has another order. */
export async function alternate<L extends { name: string }, T>(
  lanes: readonly L[],
  rounds: number,
  measure: (lane: L, round: number) => Promise<T>,
): Promise<Samples<T>> {
  const samples: Samples<T> = new Map(lanes.map(each => [each.name, []]))
  const progress = new Progress(process.stderr, 'measurements')
  let done = 0
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < lanes.length; i++) {
      const each = lanes[(i + round) % lanes.length]!
      progress.show(done, done / (rounds * lanes.length), `round ${round + 1} of ${rounds}: ${each.name}`)
      done++
      try {
        samples.get(each.name)!.push(await measure(each, round))
      } catch (error) {
        samples.get(each.name)!.push(undefined)
        failures.push(`${each.name}, round ${round + 1}: ${(error as Error).message}`)
        progress.clear()
        console.error(`! ${each.name}, round ${round + 1} is void: ${(error as Error).message}`)
      }
    }
  }
  progress.clear()
  return samples
}

/** Runs a load program with a job, and parses its report. */
export async function load<Report>(file: string, job: object, timeoutMs: number): Promise<Report> {
  const child: ChildProcess = startProgram(LOAD, join(import.meta.dirname, 'load', file), [JSON.stringify(job)], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  // What was measured without a sample is NaN, which JSON writes as null.
  return JSON.parse(await output(child, timeoutMs), (_, value) => value ?? Number.NaN) as Report
}

export function demandNone(faults: Record<string, number>): void {
  const all = Object.entries(faults)
  if (all.length > 0) throw new Void(all.map(([reason, n]) => `${n} × ${reason}`).join(', '))
}
