/**
 * `npm run bench:growth`: how the CPU time of a request and the memory of the process grow with what a gateway has and
 * holds, and what that means for a deployment of any size. It writes tables and a plot for docs/performance.md. See
 * README.md.
 */
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { Redis } from 'ioredis'
import { Progress } from '../cli/progress.ts'
import { startProgram, temporaryFolder } from './children.ts'
import { type SluiceOptions, startSluice } from './contenders/sluice.ts'
import { type Dimension, dimensions } from './growth/dimensions.ts'
import { type Basis, type Growth, growthOf, page, plot, type Results, summary } from './growth/page.ts'
import { type Inspector, inspect } from './inspector.ts'
import { ensurePrograms } from './install.ts'
import { demandNone, load, startUpstream, type Upstream } from './lanes.ts'
import type { Job, Report } from './load/counted.ts'
import type { Opened, Job as StreamsJob } from './load/open-streams.ts'
import { busyWith, cpuMicros, LOAD, machine, pinning, residentBytes, settled } from './machine.ts'
import { startRedis } from './redis-server.ts'
import { chat, type RequestSpec, type Route, writeRequests } from './requests.ts'
import { RESULTS } from './results.ts'

const HELP = `Usage: npm run bench:growth -- [options]

Measures CPU time per request and memory by the number of organizations, keys, models and more. About eight minutes.

  --only NAME,…  some of ${dimensions.map(({ name }) => name).join(', ')}, model; the others keep the last figures
  --quick        fewer sizes, two rounds; about two minutes; nothing is written
  --rounds N     measurements of each size, default 4
  --help
`

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    quick: { type: 'boolean', default: false },
    rounds: { type: 'string' },
    help: { type: 'boolean', short: 'h' },
  },
})

const ROOT = join(import.meta.dirname, '..')
const RESULT = join(RESULTS, 'growth.json')
const PAGE = join(ROOT, 'docs', 'performance.md')
const PLOT = join(ROOT, 'docs', 'performance-growth.svg')
const CONNECTIONS = 32
/** Most requests before the first measurement, beyond those of one: by then the code is compiled. */
const WARM = 6000
const trickle: Route = { name: 'trickle', surface: 'chat', model: 'trickle-chat' }
let files = 0
const newFile = () => join(temporaryFolder(), `growth-${++files}`)
const ROUNDS = Number(values.rounds ?? (values.quick ? 2 : 4))

process.exitCode = await main()
process.exit()

async function main(): Promise<number> {
  if (values.help) {
    console.log(HELP)
    return 0
  }
  const names = [...dimensions.map(({ name }) => name), 'model']
  const only = values.only?.split(',')
  const unknown = only?.find(name => !names.includes(name))
  if (unknown !== undefined || !(ROUNDS >= 1)) {
    console.error(
      `bench: ${unknown === undefined ? '--rounds is a number from 1' : `--only: no ${unknown}`}\n\n${HELP}`,
    )
    return 2
  }
  console.log(`${pinning}; node ${process.version}; ${ROUNDS} rounds`)
  const others = busyWith()
  if (others > 0.3) console.log(`! this machine has other work (load ${others}): small differences are noise`)
  const began = performance.now()
  const results: Results = { machine, node: process.version, day: today(), growth: {}, ...former() }
  const upstream = await startUpstream()
  for (const dimension of dimensions) {
    if (only && !only.includes(dimension.name)) continue
    results.growth[dimension.name] = { ...(await grow(dimension, upstream)), ...(only && { day: today() }) }
    console.log(`\n${summary(dimension.name, results.growth[dimension.name]!)}`)
  }
  if (!only || only.includes('model')) results.basis = await basis(upstream)
  await upstream.stop()
  console.log(`\n${Math.round((performance.now() - began) / 1000)} s`)
  if (values.quick) return 0
  if (!only) Object.assign(results, { machine, node: process.version, day: today() })
  writeFileSync(
    RESULT,
    `${JSON.stringify(results, (_, value) => (typeof value === 'number' ? Number(value.toPrecision(4)) : value), 2)}\n`,
  )
  writeFileSync(PLOT, plot(results))
  writeFileSync(PAGE, page(readFileSync(PAGE, 'utf8'), results))
  console.log('written to docs/performance.md')
  return Object.values(results.growth).some(({ cpu, memory }) =>
    [cpu, memory].some(of => of.verdict === 'worse than linear'),
  )
    ? 1
    : 0
}

function today(): string {
  return new Date().toISOString().slice(0, 10)
}

/** The figures of the last run. */
function former(): Partial<Results> {
  try {
    return JSON.parse(readFileSync(RESULT, 'utf8')) as Results
  } catch {
    return {}
  }
}

/** A gateway with its inspector. */
interface Measured {
  port: number
  pid: number
  inspector: Inspector
  stop(): Promise<void>
}

async function startMeasured(options: SluiceOptions): Promise<Measured> {
  const sluice = await startSluice({ ...options, flags: ['--inspect=127.0.0.1:0'], patienceMs: 60_000 })
  const inspector = await inspect(sluice.log)
  return {
    port: sluice.port,
    pid: sluice.pid,
    inspector,
    async stop() {
      inspector.close()
      await sluice.stop()
    },
  }
}

/** The CPU time of all threads of a gateway, in microseconds, once it has done what it postponed. */
async function cpuOf({ pid, inspector }: Measured): Promise<number> {
  await settled(pid)
  const expression = 'const { user, system } = process.cpuUsage(); user + system'
  const { result } = (await inspector.call('Runtime.evaluate', { expression: `{ ${expression} }` })) as {
    result: { value: number }
  }
  return result.value
}

/** The resident memory in bytes after a garbage collection. */
async function memoryOf({ pid, inspector }: Measured): Promise<number> {
  await inspector.call('HeapProfiler.collectGarbage')
  await settled(pid)
  await inspector.call('HeapProfiler.collectGarbage')
  return residentBytes(pid)
}

async function send({ port }: Measured, requests: RequestSpec, count: number): Promise<Report> {
  const job: Job = { port, connections: CONNECTIONS, requests, count }
  const report = await load<Report>('counted.ts', job, 240_000)
  demandNone(report.failures)
  return report
}

/** Starts a gateway for each size, and measures them in turns, so that a slow minute of the machine meets all sizes. */
async function grow(dimension: Dimension, upstream: Upstream): Promise<Growth> {
  const sizes = values.quick ? dimension.quick : dimension.sizes
  const progress = new Progress(process.stderr, 'measurements')
  const steps = sizes.length * (ROUNDS + 1)
  let done = 0
  const show = (n: number) => progress.show(done, done++ / steps, `${dimension.name}: ${n}`)
  const points: { n: number; at: Measured; requests: RequestSpec; micros: number[]; stop(): Promise<void> }[] = []
  for (const n of sizes) {
    show(n)
    const change = (config: any, folder: string) => dimension.change?.(config, folder, n)
    const at = await startMeasured({ upstream: upstream.port, change })
    const stops: (() => void)[] = []
    const openStreams = async (count: number) => void stops.push(await open(at.port, count))
    const requests = await dimension.load(n, { port: at.port, file: newFile, openStreams })
    const count = dimension.count(n)
    await send(at, requests, Math.max(count, Math.min(3 * count, WARM)))
    const stop = async () => {
      for (const each of stops) each()
      await at.stop()
    }
    points.push({ n, at, requests, micros: [], stop })
  }
  for (let round = 0; round < ROUNDS; round++) {
    for (const { n, at, requests, micros } of points) {
      show(n)
      const idle = dimension.busy ? await idleShare(at) : 0
      const before = await cpuOf(at)
      const began = performance.now()
      await send(at, requests, dimension.count(n))
      const used = (await cpuOf(at)) - before
      micros.push((used - idle * (performance.now() - began)) / dimension.count(n))
    }
  }
  const memory = []
  for (const { n, at, micros, stop } of points) {
    memory.push({ n, micros: Math.min(...micros), mib: (await memoryOf(at)) / 2 ** 20 })
    await stop()
  }
  progress.clear()
  return growthOf(memory)
}

/** Microseconds of CPU time that a gateway uses in a millisecond without requests: that of its open streams. */
async function idleShare(at: Measured): Promise<number> {
  const before = await cpuOf(at)
  const began = performance.now()
  await new Promise(resolve => setTimeout(resolve, 500))
  return ((await cpuOf(at)) - before) / (performance.now() - began)
}

/** @returns what closes the streams */
async function open(port: number, count: number): Promise<() => void> {
  const file = newFile()
  writeRequests(file, trickle, true)
  const job: StreamsJob = { port, requests: { kind: 'short', file } }
  const program = join(import.meta.dirname, 'load', 'open-streams.ts')
  const child = startProgram(LOAD, program, [JSON.stringify(job)], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  child.send({ open: count })
  const [{ opened, failures }] = (await once(child, 'message')) as [Opened]
  demandNone(failures)
  if (opened !== count) throw new Error(`${opened} of ${count} streams open`)
  return () => child.kill()
}

/** The costs of which the model computes: on Redis, as more than one process needs it. */
async function basis(upstream: Upstream): Promise<Basis | undefined> {
  if (ensurePrograms(['redis-server']).size > 0) {
    console.error('! the model is left out: it needs redis-server')
    return undefined
  }
  const redis = await startRedis()
  const at = await startMeasured({ upstream: upstream.port, store: redis.url })
  const measure = async (stream: boolean, count: number) => {
    const file = newFile()
    writeRequests(file, chat, stream)
    const requests: RequestSpec = { kind: 'short', file }
    await send(at, requests, 3 * count)
    const rounds = []
    for (let i = 0; i < ROUNDS; i++) {
      const [before, redisBefore] = [await cpuOf(at), cpuMicros(redis.pid)]
      const { requestBytes, answerBytes } = await send(at, requests, count)
      const gateway = ((await cpuOf(at)) - before) / count
      const bytes = (requestBytes + answerBytes) / count
      rounds.push({ gateway, redis: ((await settled(redis.pid)) - redisBefore) / count, bytes })
    }
    return rounds.reduce((best, round) => (round.gateway < best.gateway ? round : best))
  }
  const buffered = await measure(false, 4000)
  const streamed = await measure(true, 600)
  const client = new Redis(redis.url)
  const [, calls, usec] = /cmdstat_xadd:calls=(\d+),usec=(\d+)/.exec(await client.info('commandstats'))!
  client.disconnect()
  await at.stop()
  await redis.stop()
  return { buffered, streamed, row: Number(usec) / Number(calls) }
}
