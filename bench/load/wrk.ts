/** Runs the load program wrk, for buffered answers. */
import { join } from 'node:path'
import { output, start } from '../children.ts'
import { LOAD } from '../machine.ts'
import { TEXT } from '../upstream-replies.ts'
import type { Expectation } from './closed-loop.ts'

export interface WrkReport {
  requests: number
  seconds: number
  /** Number of all bytes read, with the heads. */
  bytes: number
  /** Median latency of the closed loop, ms. */
  p50: number
  p99: number
  /** The number of wrong answers, refusals and lost connections, by reason. */
  failures: Record<string, number>
}

export interface WrkJob {
  port: number
  /** The file that `writeRequests` made. */
  file: string
  /** What every answer must look like, as `verify` found it. */
  expect: Expectation
  connections: number
  seconds: number
}

export async function wrk(job: WrkJob): Promise<WrkReport> {
  const script = join(import.meta.dirname, 'wrk.lua')
  const counter = String(Math.floor(Math.random() * 1e8))
  const url = `http://127.0.0.1:${job.port}/`
  const load = ['-t1', `-c${job.connections}`, `-d${job.seconds}s`, '--timeout', '5s', '-s', script, url]
  const answer = [String(job.expect.payloadMin), String(job.expect.payloadMax), TEXT]
  const child = start(LOAD, 'wrk', [...load, '--', job.file, counter, ...answer], { stdio: ['ignore', 'pipe', 'pipe'] })
  const text = await output(child, (job.seconds + 15) * 1000)
  const report = JSON.parse(/^report (.*)$/m.exec(text)![1]!) as Record<string, number>
  const { requests, bytes, micros, p50, p99, ...errors } = report as Record<string, number> & { requests: number }
  const failures = Object.fromEntries(Object.entries(errors).filter(([, n]) => n > 0))
  return { requests, bytes: bytes!, seconds: micros! / 1e6, p50: p50! / 1000, p99: p99! / 1000, failures }
}
