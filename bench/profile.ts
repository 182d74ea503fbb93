/**
 * Shows where the gateway's CPU time goes. It runs profile 1 or 3 on the gateway alone, under V8's sampling profiler
 * (the one of `--cpu-prof`). The profiler is switched on over the inspector once the gateway is warm, so that start-up
 * and cold code are not included. The profile is stored for a viewer.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startSluice } from './contenders/sluice.ts'
import { inspect } from './inspector.ts'
import { closedLoop, lane, startUpstream, verify } from './lanes.ts'
import { wrk } from './load/wrk.ts'
import { threadMicros } from './machine.ts'
import { CONVERSATIONS } from './profiles/agents.ts'
import { startRedis } from './redis-server.ts'
import type { Route } from './requests.ts'
import { show, table } from './results.ts'
import { EVENTS } from './upstream-replies.ts'

interface CpuProfile {
  nodes: { id: number; callFrame: { functionName: string; url: string; lineNumber: number }; children?: number[] }[]
  samples: number[]
  /** For each sample, the microseconds since the one before. */
  timeDeltas: number[]
}

const root = join(import.meta.dirname, '..')
const SAMPLE_MICROS = 200
/** The gateway's code is compiled after this many requests, or events of streams for `streamed`. */
const WARM_UNITS = { buffered: 40_000, streamed: 400_000, agents: 8_000 }
/** On a busy machine the warm-up ends after this many runs of two seconds. */
const WARM_RUNS = 8

export interface ProfileOptions {
  kind: keyof typeof WARM_UNITS
  store: 'sqlite' | 'redis'
  seconds: number
  route: Route
}

export async function profileGateway({ kind, store, seconds, route }: ProfileOptions): Promise<string> {
  const upstream = await startUpstream()
  const redis = store === 'redis' ? await startRedis() : undefined
  const sluice = await startSluice({
    upstream: upstream.port,
    ...(redis && { store: redis.url }),
    flags: ['--inspect=127.0.0.1:0'],
  })
  const stream = kind !== 'buffered'
  const target = lane('sluice', sluice, route, stream)
  await verify(target)
  // Returns how many requests were served, or events of streams.
  const run = async (duration: number): Promise<number> => {
    if (!stream)
      return (
        await wrk({ port: sluice.port, file: target.file, expect: target.expect, connections: 64, seconds: duration })
      ).requests
    if (kind === 'agents') return (await closedLoop(target, CONVERSATIONS, 0, duration * 1000)).answers
    const { payloadBytes } = await closedLoop(target, 64, 0, duration * 1000)
    return (payloadBytes / target.expect.payloadMax) * EVENTS
  }
  for (let i = 0, seen = 0; i < WARM_RUNS && seen < WARM_UNITS[kind]; i++) seen += await run(2)
  const inspector = await inspect(sluice.log)
  await inspector.call('Profiler.enable')
  await inspector.call('Profiler.setSamplingInterval', { interval: SAMPLE_MICROS })
  await inspector.call('Profiler.start')
  const before = threadMicros(sluice.pid)
  const units = await run(seconds)
  const after = threadMicros(sluice.pid)
  const { profile } = (await inspector.call('Profiler.stop')) as { profile: CpuProfile }
  inspector.close()
  await sluice.stop()
  await redis?.stop()
  await upstream.stop()

  const folder = join(import.meta.dirname, '.cache')
  mkdirSync(folder, { recursive: true })
  const file = join(folder, `${kind}${redis ? '-redis' : ''}.cpuprofile`)
  writeFileSync(file, JSON.stringify(profile))
  const unit = kind === 'streamed' ? 'event' : 'request'
  const rate = units / seconds
  return [
    `${kind}, ${route.name}, ${store}: ${show(rate)} ${unit}s/s under the profiler; microseconds of CPU time per ${unit}`,
    threads(sluice.pid, before, after, units),
    'The main thread, scaled to its CPU time: waiting for the core is not counted.',
    ...tables(profile, units, after.get(sluice.pid)!.micros - before.get(sluice.pid)!.micros),
    `kept as ${relative(root, file)}`,
  ].join('\n\n')
}

/** The CPU time of all threads of the process. The profiler shows only the main thread. */
function threads(
  pid: number,
  before: ReturnType<typeof threadMicros>,
  after: ReturnType<typeof threadMicros>,
  units: number,
): string {
  const rows = [...after]
    .map(([id, { name, micros }]) => ({
      name: id === pid ? 'main' : `${name} ${id}`,
      micros: micros - (before.get(id)?.micros ?? 0),
    }))
    .filter(({ micros }) => micros > 0)
    .sort((a, b) => b.micros - a.micros)
  const total = rows.reduce((sum, { micros }) => sum + micros, 0)
  return table(
    ['thread', 'µs'],
    [...rows.map(({ name, micros }) => [name, show(micros / units)]), ['all threads', show(total / units)]],
  )
}

/** To which step of the chain the time of a file belongs. The first match counts. */
const STEPS: [step: string, files: RegExp][] = [
  ['parse and check (surface)', /^surfaces\/|^plugins\/validation|node_modules\/(ajv|fast-)/],
  ['digest and key (auth)', /^plugins\/auth|crypto/],
  ['count (meter)', /^meter\/|^plugins\/(token-estimate|count-tokens)/],
  ['admit (limits)', /^plugins\/admission|^stores\/limits/],
  ['translate and decode (providers)', /^providers\/|^plugins\/translation/],
  ['dispatch (upstream, undici)', /^plugins\/upstream|node_modules\/undici|node:(net|internal\/stream)/],
  ['ledger and store', /^stores\/|^plugins\/usage-capture/],
  ['listener', /^http\/|uws/],
  ['log', /node_modules\/(pino|sonic-boom|thread-stream|quick-format)|^cli\/log/],
  ['metrics', /node_modules\/prom-client|^admin\//],
  ['other plugins', /^plugins\//],
  ['core', /^core\/|^config\/|^cli\//],
  ['other packages', /^node_modules\//],
  ['node', /^node:/],
]

function tables(profile: CpuProfile, units: number, cpuMicros: number): string[] {
  const nodes = new Map(profile.nodes.map(node => [node.id, node]))
  const parents = new Map(profile.nodes.flatMap(node => node.children?.map(child => [child, node.id] as const) ?? []))
  const self = new Map<number, number>()
  profile.samples.forEach((id, i) => {
    self.set(id, (self.get(id) ?? 0) + Math.max(0, profile.timeDeltas[i]!))
  })
  const idle = new Set(profile.nodes.filter(node => node.callFrame.functionName === '(idle)').map(node => node.id))
  const busy = [...self].reduce((sum, [id, micros]) => sum + (idle.has(id) ? 0 : micros), 0)
  const scale = Math.min(1, cpuMicros / busy)
  const steps = new Map<string, number>()
  const files = new Map<string, number>()
  const functions = new Map<string, number>()
  const add = (to: Map<string, number>, key: string, micros: number) => to.set(key, (to.get(key) ?? 0) + micros)
  for (const [id, sampled] of self) {
    const micros = sampled * scale
    const { callFrame } = nodes.get(id)!
    const { functionName, url } = callFrame
    if (idle.has(id)) continue
    if (functionName.startsWith('(')) {
      // Here are `(garbage collector)`, and `(program)`: native code and system calls that no JavaScript function
      // called.
      for (const map of [steps, files, functions]) add(map, functionName, micros)
      continue
    }
    // A builtin (JSON.parse, a socket write) has no file, so its time belongs to the file that called it.
    let owner = id
    while (nodes.get(owner)!.callFrame.url === '' && parents.has(owner)) owner = parents.get(owner)!
    const file = shortName(nodes.get(owner)!.callFrame.url)
    add(steps, STEPS.find(([, pattern]) => pattern.test(file))?.[0] ?? 'native', micros)
    add(files, file, micros)
    const name = functionName === '' ? '(anonymous)' : functionName
    add(functions, url === '' ? `${name} (native), for ${file}` : `${name} ${file}:${callFrame.lineNumber + 1}`, micros)
  }
  const top = (title: string, map: Map<string, number>, n: number) => {
    const rows = [...map].sort(([, a], [, b]) => b - a).slice(0, n)
    const total = [...map.values()].reduce((sum, micros) => sum + micros, 0)
    const share = (micros: number) => `${((100 * micros) / total).toFixed(1)} %`
    return table(
      [title, 'µs', 'share'],
      [
        ...rows.map(([name, micros]) => [name.slice(0, 100), show(micros / units), share(micros)]),
        ['all', show(total / units), ''],
      ],
    )
  }
  return [top('step', steps, 30), top('file (self time, builtins with it)', files, 30), top('function', functions, 45)]
}

function shortName(url: string): string {
  if (!url.startsWith('file:')) return url === '' ? '(native)' : url
  return relative(root, fileURLToPath(url)).replace(/^(node_modules\/(?:@[^/]+\/)?[^/]+).*?([^/]+)$/, '$1/…/$2')
}
