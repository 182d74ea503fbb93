/**
 * Measures admissions per second and microseconds per admission, for both limit engines. One run also measures
 * rate-limiter-flexible with one dimension, for comparison.
 *
 *   npm run bench:admission [-- --seconds 2] [--json]
 *
 * Goals: the embedded engine with all dimensions takes at most 2 µs, and is faster than rate-limiter-flexible with one.
 * An admission on Redis takes at most 1.6 times as long as an EVALSHA whose script returns at once. Redis latency is of
 * single calls one after the other, as medians of interleaved rounds, on a separate Redis server.
 */
import os from 'node:os'
import { parseArgs } from 'node:util'
import { Redis } from 'ioredis'
import { RateLimiterMemory, RateLimiterRedis } from 'rate-limiter-flexible'
import type { Admission, Cell } from '../core/ports/store.ts'
import { systemClock } from '../core/tools/clock.ts'
import { MemoryLimits } from '../stores/limits/memory.ts'
import { openRedisStore } from '../stores/redis/store.ts'
import { bucket, everyDimension, redisOptions, slots } from '../test/stores/kit.ts'
import { RedisServer, redisAvailable } from '../test/stores/redis-server.ts'

const { values: flags } = parseArgs({
  options: { seconds: { type: 'string', default: '2' }, json: { type: 'boolean', default: false } },
})
const milliseconds = Number(flags.seconds) * 1000

interface Figure {
  name: string
  perSecond: number
  micros: number
}
const figures: Figure[] = []

function report(name: string, micros: number): void {
  figures.push({ name, micros, perSecond: 1e6 / micros })
  if (!flags.json)
    console.log(
      `${name.padEnd(58)} ${micros.toFixed(2).padStart(9)} µs ${Math.round(1e6 / micros)
        .toLocaleString('en')
        .padStart(12)}/s`,
    )
}

/** This many admissions are open at the same time. */
const BATCH = 2000

/** Microseconds per call, in the fastest of several batches, because other work on the machine can only add time. */
function timeSync(run: () => void, batch = 5000): number {
  let best = Number.POSITIVE_INFINITY
  const end = performance.now() + milliseconds
  while (performance.now() < end) {
    const start = process.hrtime.bigint()
    for (let i = 0; i < batch; i++) run()
    best = Math.min(best, Number(process.hrtime.bigint() - start) / batch / 1000)
  }
  return best
}

async function timeAsync(run: () => Promise<unknown>, batch = 5000): Promise<number> {
  let best = Number.POSITIVE_INFINITY
  const end = performance.now() + milliseconds
  while (performance.now() < end) {
    const start = process.hrtime.bigint()
    for (let i = 0; i < batch; i++) await run()
    best = Math.min(best, Number(process.hrtime.bigint() - start) / batch / 1000)
  }
  return best
}

interface Run {
  run(): Promise<unknown>
  /** Undoes the calls so far. Its time is not measured. */
  clear?(): Promise<void>
}
/** Medians of several calls. The calls take turns, so that other work on the machine affects all alike. */
async function compareLatency(runs: Record<string, Run>): Promise<Record<string, number>> {
  const samples: Record<string, number[]> = Object.fromEntries(Object.keys(runs).map(name => [name, []]))
  const end = performance.now() + milliseconds * Object.keys(runs).length
  for (let round = 0; performance.now() < end; round++) {
    for (const [name, { run, clear }] of Object.entries(runs)) {
      const start = process.hrtime.bigint()
      for (let i = 0; i < 20; i++) await run()
      if (round > 20) samples[name]!.push(Number(process.hrtime.bigint() - start) / 20 / 1000)
      await clear?.()
    }
  }
  return Object.fromEntries(
    Object.entries(samples).map(([name, values]) => [
      name,
      values.sort((a, b) => a - b)[Math.floor(values.length / 2)]!,
    ]),
  )
}

const all = everyDimension(1e12)
const one = [bucket('o:rpm', 1e12)]
const amountsOf = (cells: readonly Cell[]) =>
  cells.map(cell => (cell.kind === 'slots' || cell.dimension === 'requests' ? 1 : 1000))
/** Limits of each end user; with how many users a key is used in turn. */
const ofUsers = [bucket('k:key_ci:u:rpm', 1e12), slots('k:key_ci:u:conc', 1e12)].map(
  (cell): Cell => ({ ...cell, scope: 'user' }),
)
const USERS = { 'are kept': 500, 'come and go': 3000 }
const must = (admission: Admission) => {
  if (!admission.admitted) throw new Error('denied')
}

if (!flags.json) console.log(`${os.cpus()[0]!.model}, node ${process.version}\n`)

// ---- embedded -------------------------------------------------------------------------------------------------------
{
  const limits = new MemoryLimits({ clock: systemClock })
  let n = 0
  const admission = (cells: readonly Cell[], users = 0) => {
    const amounts = amountsOf(cells)
    const nothing = cells.map(() => 0)
    const asked = (i: number) => users && { user: { name: `u${i % users}`, cells: ofUsers, amounts: [1, 1] } }
    // In the gateway a request has its id before admission, so the ids are made before the measurement.
    const ids = Array.from({ length: BATCH }, () => `r${n++}`)
    let open = 0
    let sent = 0
    const run = () => {
      const request = { org: 'acme', id: ids[open++]!, cells, amounts, now: Date.now() }
      must(limits.admit(users ? { ...request, ...asked(sent++) } : request))
    }
    // Settles the open admissions. Its time is not measured.
    const clear = () => {
      while (open > 0) limits.settle('acme', ids[--open]!, nothing, Date.now(), users ? [1, 0] : undefined)
    }
    const both = () => {
      run()
      clear()
    }
    return { run, clear, both }
  }
  const time = (cells: readonly Cell[]) => {
    const { run, clear } = admission(cells)
    let best = Number.POSITIVE_INFINITY
    const end = performance.now() + milliseconds
    while (performance.now() < end) {
      const start = process.hrtime.bigint()
      for (let i = 0; i < BATCH; i++) run()
      best = Math.min(best, Number(process.hrtime.bigint() - start) / BATCH / 1000)
      clear()
    }
    return best
  }
  report(`embedded, all dimensions (${all.length} cells), admission`, time(all))
  report(`embedded, all dimensions (${all.length} cells), with settlement`, timeSync(admission(all).both))
  report('embedded, one dimension, admission', time(one))
  for (const [name, users] of Object.entries(USERS))
    report(`embedded, all dimensions and users who ${name}, with settlement`, timeSync(admission(all, users).both))
  const flexible = new RateLimiterMemory({ points: 1e12, duration: 60 })
  report('rate-limiter-flexible in memory, one dimension', await timeAsync(() => flexible.consume('acme')))
  limits.close()
}

// ---- redis ----------------------------------------------------------------------------------------------------------
if (redisAvailable) {
  const server = await RedisServer.start()
  const store = await openRedisStore(redisOptions(server.url, { timeout: 5000 }))
  const redis = new Redis(server.port, '127.0.0.1', { protocol: 2 })
  const flexible = new RateLimiterRedis({ storeClient: redis, points: 1e12, duration: 60 })
  const sha = (await redis.script('LOAD', 'return 1')) as string
  let n = 0
  const admission = (cells: readonly Cell[], users = 0) => {
    const amounts = amountsOf(cells)
    const open: string[] = []
    return {
      async run() {
        const id = `r${n++}`
        const user = users ? { user: { name: `u${n % users}`, cells: ofUsers, amounts: [1, 1] } } : {}
        must(await store.limits.admit({ org: 'acme', id, cells, amounts, now: Date.now(), ...user }))
        open.push(id)
      },
      async clear() {
        const ids = open.splice(0)
        for (const id of ids) store.limits.settle('acme', id, amounts, Date.now(), users ? [1, 0] : undefined)
        await store.limits.delivered(ids)
      },
    }
  }
  const latency = await compareLatency({
    bare: { run: () => redis.evalsha(sha, 1, '{acme}') },
    all: admission(all),
    one: admission(one),
    'are kept': admission(all, USERS['are kept']),
    'come and go': admission(all, USERS['come and go']),
    flexible: { run: () => flexible.consume('acme') },
  })
  report('bare EVALSHA, one after the other', latency['bare']!)
  report(`redis, all dimensions (${all.length} cells)`, latency['all']!)
  report('redis, one dimension', latency['one']!)
  for (const name of Object.keys(USERS)) report(`redis, all dimensions and users who ${name}`, latency[name]!)
  report('rate-limiter-flexible on redis, one dimension', latency['flexible']!)
  const ratio = latency['all']! / latency['bare']!
  if (!flags.json) console.log(`\nredis admission with all dimensions / bare EVALSHA: ${ratio.toFixed(2)}`)
  const parallel = async (call: () => Promise<unknown>, undo?: () => Promise<void>) => {
    let spent = 0
    let done = 0
    const end = performance.now() + milliseconds
    while (performance.now() < end) {
      const start = performance.now()
      await Promise.all(Array.from({ length: 64 }, call))
      spent += performance.now() - start
      done += 64
      await undo?.()
    }
    return (spent * 1000) / done
  }
  const { run, clear } = admission(all)
  report('redis, all dimensions, 64 at a time', await parallel(run, clear))
  report('rate-limiter-flexible on redis, 64 at a time', await parallel(() => flexible.consume('acme')))
  if (flags.json) figures.push({ name: 'ratio', micros: ratio, perSecond: 0 })
  redis.disconnect()
  await server.command('FLUSHALL')
  await store.close()
  await server.stop()
}
if (flags.json) console.log(JSON.stringify(figures, null, 2))
