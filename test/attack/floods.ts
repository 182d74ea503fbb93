/**
 * Floods by one organization beside a victim of another one, which stays far below its limits. Both have shipped plans.
 * The victim's requests are sent at fixed times, first without and then with the flood; each kind of flood comes from
 * an organization of its own, whose limits are still full, and from a process of its own. While the victim is
 * alone, another process uses a core as a flood does, so that only what the gateway does makes a difference.
 */
import type { ChildProcess } from 'node:child_process'
import { join } from 'node:path'
import { output, printed, startProgram } from '../../bench/children.ts'
import { percentile } from '../../bench/load/percentile.ts'
import type { Random } from '../random.ts'
import { FLOOD_MIB, LOOP_MS, P99_FLOOR_MS, P99_RATIO } from './breaches.ts'
import type { Job, Kind } from './flood.ts'
import {
  bodyOf,
  finish,
  Gateway,
  keyOf,
  MIB,
  PATHS,
  type Part,
  type Result,
  send,
  sleep,
  startUpstream,
  Watch,
} from './kit.ts'

const PART = 'flood'
/** The plan of each flood. Recall needs room for what it stores first, and enums for a prompt of 180,000 tokens. */
export const KINDS: Record<Exclude<Kind, 'control'>, string> = {
  prompts: 'tier1',
  count: 'tier1',
  uploads: 'tier1',
  chunks: 'tier1',
  messages: 'tier1',
  handshakes: 'tier1',
  images: 'tier1',
  values: 'tier1',
  recall: 'benchmark',
  warmups: 'tier1',
  small: 'tier1',
  drip: 'tier1',
  digits: 'tier1',
  patterns: 'tier1',
  enums: 'benchmark',
  references: 'tier1',
  arguments: 'tier1',
  ages: 'tier1',
  strangers: 'tier1',
  masks: 'tier1',
}
/** The organization that floods when the first look at a kind was over a bound: its limits are still full. */
const secondOf = (kind: string): string => `${kind}-again`
/** The victim's requests per second. Its plan `benchmark` allows 100. */
const RATE = 40
/** One of this many of its requests has a prompt that is counted off the event loop. */
const LARGE_EVERY = 10
const LARGE_BYTES = 40_000
const VICTIM_MS = 10_000
/** The victim's model answers after this long: a model that answers at once would make every wait look large. */
const SMALL = '[[sim: delay 20ms; tokens 5]] hello'

interface Window {
  took: number[]
  served: number
  sent: number
  refused: string[]
}

/** Sends the victim's requests for so long, and waits for their answers. */
async function victim(gateway: Gateway, random: Random, ms: number): Promise<Window> {
  const window: Window = { took: [], served: 0, sent: 0, refused: [] }
  const open: Promise<void>[] = []
  const begin = performance.now()
  for (;;) {
    const due = begin + window.sent * (1000 / RATE)
    if (due > begin + ms) break
    const wait = due - performance.now()
    if (wait > 0) await sleep(wait)
    const text = window.sent++ % LARGE_EVERY === 0 ? `${SMALL} ${random.text(LARGE_BYTES)}` : SMALL
    const body = JSON.stringify(bodyOf('chat', 'a-chat', text))
    const at = performance.now()
    open.push(
      send(gateway.url, PATHS.chat, keyOf('victim'), body, {}, 'POST', VICTIM_MS).then(answer => {
        window.took.push(performance.now() - at)
        if (answer.status === 200) window.served++
        else window.refused.push(`${answer.status} ${answer.text.slice(0, 120)}`)
      }),
    )
  }
  await Promise.all(open)
  return window
}

/** Starts the process of a flood, and waits until it begins. */
async function flood(job: Job): Promise<ChildProcess> {
  const child = startProgram(undefined, join(import.meta.dirname, 'flood.ts'), [JSON.stringify(job)], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  await printed(child, /ready/)
  return child
}

export async function floods({ random, breaches, budgetMs, simulator, kinds }: Part): Promise<Result[]> {
  const second = Object.entries(KINDS).map(([kind, plan]) => [secondOf(kind), plan] as const)
  const organizations = { victim: 'benchmark', ...KINDS, ...Object.fromEntries(second) }
  // What is large and served would keep the victim's provider busy.
  const floodUpstream = await startUpstream()
  const begin = async () => {
    const gateway = await Gateway.start({ upstream: simulator, floodUpstream, organizations })
    // So that code is compiled and the meter's pool runs when the first window begins.
    await victim(gateway, random, Math.min(1500, budgetMs / 10))
    return { gateway, watch: new Watch(gateway) }
  }
  let { gateway, watch } = await begin()
  const quiet: number[] = []
  const results: Result[] = []
  const chosen = (Object.keys(KINDS) as (keyof typeof KINDS)[]).filter(kind => kinds.includes(kind))
  const each = budgetMs / chosen.length
  /** A window of the victim beside a flood by this organization. */
  const beside = async (kind: Exclude<Kind, 'control'>, organization: string, ms: number) => {
    const name = `${PART} ${kind}`
    await watch.look()
    watch.reset()
    const before = watch.resident
    const job = { kind, url: gateway.url, key: keyOf(organization), seed: random.below(2 ** 31), ms }
    const child = await flood(job)
    const flooding = output(child, job.ms + 60_000)
    const window = await victim(gateway, random, job.ms)
    const { cases, note, internal } = JSON.parse(await flooding) as { cases: number; note: string; internal: number }
    await watch.look()
    const grown = (watch.peak - before) / MIB
    if (window.served < window.sent)
      breaches.add(name, 'victim', `${window.sent - window.served} of ${window.sent} failed`, window.refused[0])
    if (internal > 0) breaches.add(name, 'internal', `${internal} of ${cases}`)
    if (grown > FLOOD_MIB) breaches.add(name, 'memory', `${Math.round(grown)} MiB more`)
    if (watch.loopMs > LOOP_MS) breaches.add(name, 'loop', `${Math.round(watch.loopMs)} ms`)
    return { cases, note, window, p99: percentile(window.took, 0.99) }
  }
  const control = await flood({ kind: 'control', url: gateway.url, key: '', seed: 0, ms: 2 ** 31 - 1 })
  for (const kind of random.shuffled(chosen)) {
    const name = `${PART} ${kind}`
    control.kill('SIGCONT')
    quiet.push(...(await victim(gateway, random, each / 3)).took)
    control.kill('SIGSTOP')
    const base = Math.max(P99_FLOOR_MS, percentile(quiet, 0.99))
    const ms = (each * 2) / 3
    let seen = await beside(kind, kind, ms)
    // One stall of the machine of a tenth of a second is the p99 of a window of 330 requests.
    if (seen.p99 / base > P99_RATIO) {
      const again = await beside(kind, secondOf(kind), ms)
      seen = { ...again, p99: Math.min(seen.p99, again.p99) }
    }
    const { cases, note, p99, window } = seen
    if (p99 / base > P99_RATIO)
      breaches.add(
        name,
        'p99',
        `${(p99 / base).toFixed(2)} times, and more in another window`,
        `${Math.round(percentile(quiet, 0.99))} ms without, ${Math.round(p99)} ms beside it`,
      )
    results.push({
      part: name,
      cases,
      note: `${KINDS[kind]}; ${note}`,
      loopMs: watch.loopMs,
      residentMib: watch.peak / MIB,
      p99Ratio: p99 / base,
      victim: [window.served, window.sent],
    })
    const after = await send(
      gateway.url,
      PATHS.chat,
      keyOf('victim'),
      bodyOf('chat', 'a-chat', SMALL),
      {},
      'POST',
      VICTIM_MS,
    )
    if (after.status !== 200 || !gateway.alive) {
      breaches.add(
        name,
        'crash',
        'the gateway does not serve after the flood',
        `${after.status} ${after.text.slice(0, 120)}`,
      )
      await watch.figures()
      await gateway.kill()
      ;({ gateway, watch } = await begin())
    }
  }
  control.kill('SIGKILL')
  await finish(PART, gateway, watch, breaches, false)
  return results
}
