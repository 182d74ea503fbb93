/**
 * Soak: runs the gateway in its own process under streams, faults, clients that disconnect or read slowly, and reloads.
 * At the end, memory and resources must be back at their level before, and ledger and limits must agree. Otherwise the
 * exit code is 1.
 *
 *   npm run soak -- --minutes 10 --streams 500
 *   npm run soak -- --idle-streams 5000 --minutes 2      streams at one event a second: memory of each
 */
import { type ChildProcess, fork } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { Progress } from '../../cli/progress.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { random } from '../random.ts'
import type { Measure, Weight } from './gateway.ts'

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '1' },
    streams: { type: 'string', default: '500' },
    'idle-streams': { type: 'string' },
    seed: { type: 'string', default: '1' },
  },
})
const MINUTES = Number(values.minutes)
const RELOAD_MS = Math.min(30_000, (MINUTES * 60_000) / 3)
/** The part of the requests that meets a fault, disconnects, or reads slowly. */
const FAULTS = 0.05
const LEAVERS = 0.05
const SLOW = 0.05
/**
 * Each reload starts this many clients that read nothing for a while, of streams that are larger than the kernel's
 * buffers.
 */
const STALLERS = 3
const STALL_MS = 5000
/**
 * The same load runs this long before, so that code is compiled, and pools, caches and the heap have their final size.
 */
const WARM_MS = Math.min(60_000, MINUTES * 12_000)
/**
 * Resident memory may grow by this many bytes after the warm-up, by fragmentation and caches that were not full yet.
 */
const RSS_SLACK = 48 * 1024 * 1024
const HEAP_SLACK = 8 * 1024 * 1024
const ENTRIES_SLACK = 2000
/** This many timers, exchanges or attempts may be left, because some end late. A leak would leave thousands. */
const ALIVE_SLACK = 16
const OPENED_AT_ONCE = 50
/** The goal for the memory of a stream with one event a second. */
const KIB_PER_STREAM = 40

/**
 * No fault asks for a pause (Retry-After), because the gateway would then send no other request to that backend either.
 */
const FAULT_DIRECTIVES = [
  'status 500',
  'status 503',
  'status 429',
  'status 502 html',
  'cut 0',
  'cut 4',
  'cut byte 300',
  'close 3',
  'end 4',
  'error server after 3',
  'error overloaded after 0',
  'malformed json after 4',
  'malformed utf8 after 4',
  'quirk gzip',
]

const BODIES = [
  (text: string, stream: boolean) => [
    '/v1/chat/completions',
    { model: 'eb1-preview', stream, messages: [{ role: 'user', content: text }] },
  ],
  (text: string, stream: boolean) => [
    '/v1/responses',
    { model: 'eb1-efficient-preview', stream, input: text, store: false },
  ],
  (text: string, stream: boolean) => [
    '/v1/messages',
    { model: 'eb1-fast-preview', stream, max_tokens: 4000, messages: [{ role: 'user', content: text }] },
  ],
] as const

const chance = random(Number(values.seed))
const sleep = (ms: number) => new Promise<void>(resolve => setTimeout(resolve, ms))

const folder = mkdtempSync(join(tmpdir(), 'sluice-soak-'))
const simulator = await startSimulator({ port: 0, keep: 1 })
const file = join(folder, 'gateway.yaml')
const backend = (provider: string) =>
  `{ context_window: 400000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: ${provider}, model: sim-soak }] }`
const provider = (dialect: string) =>
  `{ dialect: ${dialect}, base_url: "${simulator.url}", api_key: k, max_connections: 20000 }`
writeFileSync(
  file,
  `version: 2
server: { listen: 127.0.0.1:0, admin: 127.0.0.1:0 }
store: "sqlite:${join(folder, 'soak.db')}"
pipelines:
  completions: [auth, validation, idempotency, model-access, conversation, compaction, token-estimate, web-search, media, routing, admission, translation, { upstream: { breaker: { failures: 1000000, error_rate: 1, open_for: 1ms } } }, usage-capture, header-stamp]
routes:
  - { match: POST /v1/responses, surface: responses, pipeline: completions }
  - { match: POST /v1/chat/completions, surface: chat, pipeline: completions }
  - { match: POST /v1/messages, surface: messages, pipeline: completions }
providers:
  chat: ${provider('openai-chat')}
  responses: ${provider('openai-responses')}
  messages: ${provider('anthropic-messages')}
models:
  eb1-preview: ${backend('chat')}
  eb1-efficient-preview: ${backend('responses')}
  eb1-fast-preview: ${backend('messages')}
platform: { max_concurrent_requests: 20000, scale_limits_above: 1 }
price_book: soak
organizations:
  demo: { plan: custom, limits: { concurrent_requests: 1000000, monthly_spend_usd: 1000000.00 }, keys: [{ id: key_demo, sha256: "f77894fdfa58e447c57e077eaa9708e8e009c84dc6aba2db80461275e9b85be7", status: active }] }
`,
)

const child = fork(join(import.meta.dirname, 'gateway.ts'), [file], {
  execArgv: ['--disable-warning=ExperimentalWarning', '--expose-gc'],
})
const stop = () => {
  child.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
}
process.on('exit', stop)
for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const)
  process.once(signal, () => process.exit(code))
let closing = false
child.once('exit', code => {
  if (closing) return
  console.error(`the gateway ended with ${code}`)
  process.exit(1)
})

/** The last message to the gateway's process. Only one is outstanding at a time, so answers need no ids. */
let queue: Promise<unknown> = Promise.resolve()
function told<T>(process: ChildProcess, question?: 'weigh' | 'measure' | 'reload'): Promise<T> {
  const next = queue.then(
    () =>
      new Promise<T>(resolve => {
        process.once('message', resolve as (message: unknown) => void)
        if (question) process.send(question)
      }),
  )
  queue = next
  return next
}
const { url } = await told<{ url: string }>(child)

const tally = { requests: 0, served: 0, failed: 0, framed: 0, cut: 0, left: 0, broken: [] as string[] }
const agent = new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY })

type Manner = 'plain' | 'leaves' | 'slow' | 'stalls'

/** Sends one request and reads its answer in the given manner. Resolves whether it succeeds or fails. */
function exchange(text: string, stream: boolean, manner: Manner, healthy: boolean): Promise<void> {
  const [path, body] = BODIES[Math.floor(chance() * BODIES.length)]!(text, stream)
  tally.requests++
  const leaveAfter = 1 + Math.floor(chance() * 6)
  const begun = performance.now()
  let heard = begun
  return new Promise(resolve => {
    const req = request(
      url + path,
      { method: 'POST', agent, headers: { authorization: 'Bearer sk-demo', 'content-type': 'application/json' } },
      res => {
        let seen = ''
        let pieces = 0
        let whole = !stream
        let framed = false
        res.setEncoding('utf8')
        if (manner === 'stalls') {
          res.pause()
          setTimeout(() => res.resume(), STALL_MS)
        }
        res.on('data', (piece: string) => {
          // The last event of a Responses stream repeats the whole text, so its name is far from the end.
          const near = seen.slice(-60) + piece
          whole ||= /\[DONE\]|response\.completed|response\.incomplete|message_stop/.test(near)
          framed ||= stream && /"code":"/.test(near)
          seen = (seen + piece).slice(-400)
          heard = performance.now()
          pieces++
          if (manner === 'leaves' && pieces >= leaveAfter) {
            tally.left++
            req.destroy()
            return
          }
          if (manner === 'slow') {
            res.pause()
            setTimeout(() => res.resume(), 30)
          }
        })
        res.on('end', () => {
          if (res.statusCode === 200 && whole && !framed) tally.served++
          else if (res.statusCode === 200 && framed) tally.framed++
          else tally.failed++
          // Even after a fault of the upstream, a stream must end with a proper last event or an error; it must not
          // just stop.
          const honest = res.statusCode !== 200 || whole !== framed
          if (!honest || (healthy && (res.statusCode !== 200 || framed)))
            tally.broken.push(`${path} ${res.statusCode}: ${seen.slice(-200)}`)
          resolve()
        })
        res.on('error', () => {
          if (manner === 'leaves') return resolve()
          tally.cut++
          const now = performance.now()
          tally.broken.push(
            `${path}, ${manner}, cut at ${new Date().toISOString()}, ${Math.round(now - begun)} ms after its request and ${Math.round(now - heard)} ms after its last bytes: ${seen.slice(-200)}`,
          )
          resolve()
        })
        res.on('close', resolve)
      },
    )
    req.on('error', (error: NodeJS.ErrnoException) => {
      // A kept-alive connection was closed while the request was being sent. Every client retries then. If the request
      // had been admitted, the comparison of ledger and requests would show it.
      if (req.reusedSocket && error.code === 'ECONNRESET' && heard === begun) {
        tally.requests--
        return resolve(exchange(text, stream, manner, healthy))
      }
      if (manner !== 'leaves') tally.broken.push(`${path}: ${error.message}`)
      resolve()
    })
    req.end(JSON.stringify(body))
  })
}

async function worker(until: number): Promise<void> {
  await sleep(chance() * 200)
  while (performance.now() < until) {
    const r = chance()
    const stream = chance() < 0.8
    if (r < FAULTS) {
      const fault = FAULT_DIRECTIVES[Math.floor(chance() * FAULT_DIRECTIVES.length)]!
      await exchange(`[[sim: tokens 30; ${fault}]] soak`, stream, 'plain', fault === 'quirk gzip')
    } else {
      const manner: Manner = r < FAULTS + LEAVERS ? 'leaves' : r < FAULTS + LEAVERS + SLOW ? 'slow' : 'plain'
      const tokens = 20 + Math.floor(chance() * 100)
      await exchange(`[[sim: tokens ${tokens}; pace ${stream ? 60 : 1}ms]] soak`, stream, manner, manner !== 'leaves')
    }
  }
}

/** Shows a count and the progress of the run on a terminal, each second. */
function watch(begun: number, count: () => number, unit: string): { stop(): void } {
  const progress = new Progress(process.stderr, unit)
  const timer = setInterval(() => progress.show(count(), (performance.now() - begun) / (MINUTES * 60_000)), 1000)
  return {
    stop() {
      clearInterval(timer)
      progress.clear()
    },
  }
}

const mib = (bytes: number) => `${(bytes / 1048576).toFixed(1)} MiB`
const faults: string[] = []
const expect = (good: boolean, what: string) => {
  if (!good) faults.push(what)
}

/** Resolves when no exchange runs and idle connections are closed, or after ten seconds. */
async function settled(): Promise<Weight> {
  let now = await told<Weight>(child, 'weigh')
  for (let i = 0; i < 20 && (now.running > 0 || sockets(now) > 0); i++) {
    await sleep(500)
    now = await told<Weight>(child, 'weigh')
  }
  return now
}
const sockets = ({ resources }: Weight) => (resources['TCPSocketWrap'] ?? 0) + (resources['TCPWRAP'] ?? 0)

async function load(streams: number, ms: number): Promise<void> {
  const until = performance.now() + ms
  await Promise.all(Array.from({ length: streams }, () => worker(until)))
}

async function soak(streams: number): Promise<void> {
  await load(streams, WARM_MS)
  agent.destroy()
  await settled()
  const base = await told<Measure>(child, 'measure')
  const warm = tally.requests
  const begun = performance.now()
  let reloads = 0
  const stallers: Promise<void>[] = []
  const watching = watch(begun, () => tally.requests - warm, 'requests')
  const reloading = setInterval(async () => {
    for (let i = 0; i < STALLERS; i++) stallers.push(exchange('[[sim: tokens 30000]] soak', true, 'stalls', true))
    const { applied } = await told<{ applied: boolean }>(child, 'reload')
    expect(applied, 'a reload was not applied')
    reloads++
  }, RELOAD_MS)
  await load(streams, MINUTES * 60_000)
  watching.stop()
  clearInterval(reloading)
  await Promise.all(stallers)
  agent.destroy()
  await settled()
  const end = await told<Measure>(child, 'measure')
  const rows = Object.values(end.outcomes).reduce((sum, n) => sum + n, 0)

  expect(end.unhandled === 0, `${end.unhandled} unhandled rejections`)
  expect(end.running === 0, `${end.running} exchanges still run`)
  expect(end.connections === 0, `${end.connections} client connections are open`)
  expect(sockets(end) === 0, `${sockets(end)} sockets are open`)
  for (const kind of ['timers', 'exchanges', 'attempts'] as const)
    expect(
      end.alive[kind] <= base.alive[kind] + ALIVE_SLACK,
      `${kind}: ${base.alive[kind]} before, ${end.alive[kind]} after`,
    )
  expect(
    end.entries <= base.entries + ENTRIES_SLACK,
    `entries of maps: ${base.entries} before, ${end.entries} after; the largest: ${end.largest.join(', ')}`,
  )
  const grown = end.heap + end.buffers - base.heap - base.buffers
  expect(grown <= HEAP_SLACK, `heap grew by ${mib(grown)}`)
  expect(end.rss - base.rss <= RSS_SLACK, `RSS grew by ${mib(end.rss - base.rss)}`)
  expect(rows === end.admitted, `${end.admitted} admitted, ${rows} ledger rows`)
  expect(!end.outcomes['lost'], `${end.outcomes['lost']} rows are lost`)
  expect(end.slots === 0, `${end.slots} concurrency slots are taken`)
  // Limits follow what was consumed, bills what was delivered (decision 49): a client that left is in the difference.
  expect(end.spent >= end.billed, `the rows sum to ${end.billed} nano-USD, the limiter says ${end.spent}`)
  expect(
    tally.broken.length === 0,
    `${tally.broken.length} healthy requests failed: ${tally.broken.slice(0, 3).join('\n')}`,
  )
  expect(end.errors.length === 0, `errors in the log: ${end.errors.join('\n')}`)
  expect(reloads > 0, 'no reload was made')

  const { broken: _, ...counts } = tally
  console.log(
    JSON.stringify(
      {
        minutes: MINUTES,
        streams,
        reloads,
        ...counts,
        outcomes: end.outcomes,
        admitted: end.admitted,
        billed_usd: [end.billed / 1e9, end.spent / 1e9],
        rss: [mib(base.rss), mib(end.rss)],
        heap: [mib(base.heap), mib(end.heap)],
        buffers: [mib(base.buffers), mib(end.buffers)],
        sockets: [sockets(base), sockets(end)],
        timers: [base.alive.timers, end.alive.timers],
        exchanges: [base.alive.exchanges, end.alive.exchanges],
        map_entries: [base.entries, end.entries],
        largest_maps: end.largest,
        unhandled: end.unhandled,
      },
      null,
      2,
    ),
  )
}

/** Opens this many streams, each with one event a second, and checks their memory. */
async function idle(streams: number): Promise<void> {
  const seconds = Math.round(MINUTES * 60)
  for (let i = 0; i < 10; i++)
    await Promise.all(Array.from({ length: 50 }, () => exchange('[[sim: tokens 30]] soak', true, 'plain', true)))
  agent.destroy()
  const base = await settled()
  let events = 0
  let counting = false
  const seen = new Uint32Array(streams)
  let ended = 0
  const open: ReturnType<typeof request>[] = []
  const opening: Promise<void>[] = []
  for (let i = 0; i < streams; i++) {
    const body = {
      model: 'eb1-preview',
      stream: true,
      messages: [{ role: 'user', content: `[[sim: tokens ${seconds + 180}; pace 1s]] ${i}` }],
    }
    const req = request(`${url}/v1/chat/completions`, {
      method: 'POST',
      agent: false,
      headers: { authorization: 'Bearer sk-demo', 'content-type': 'application/json' },
    })
    const { promise: answered, resolve } = Promise.withResolvers<void>()
    req.on('response', res => {
      resolve()
      if (res.statusCode !== 200) tally.broken.push(`status ${res.statusCode}`)
      res.on('data', () => {
        if (!counting) return
        events++
        seen[i]!++
      })
      res.on('end', () => ended++)
      res.on('error', () => {})
    })
    req.on('error', error => {
      resolve()
      tally.broken.push(error.message)
    })
    req.end(JSON.stringify(body))
    open.push(req)
    opening.push(answered)
    // New streams are opened as fast as earlier ones are answered. Clients and upstream share this process, which could
    // not serve all of them at once.
    if (opening.length === OPENED_AT_ONCE) await Promise.all(opening.splice(0))
  }
  await Promise.all(opening)
  counting = true
  const watching = watch(performance.now(), () => events, 'events')
  await sleep(seconds * 1000)
  watching.stop()
  const full = await told<Weight>(child, 'weigh')
  expect(full.running === streams, `${full.running} of ${streams} streams run`)
  expect(
    ended === 0 && tally.broken.length === 0,
    `${ended} ended early, ${tally.broken.length} failed: ${tally.broken[0]}`,
  )
  for (const req of open) {
    req.removeAllListeners('error')
    req.on('error', () => {})
    req.destroy()
  }
  await sleep(1000)
  const end = await settled()
  expect(end.running === 0, `${end.running} exchanges still run`)
  const each = (full.rss - base.rss) / streams / 1024
  const fewest = seen.reduce((least, n) => Math.min(least, n))
  // The simulator's timers are late when its process gets too little CPU time.
  expect(fewest >= seconds * 0.8, `a stream has had ${fewest} events in ${seconds} s`)
  // With only a few streams, the noise of the process would be larger than their memory.
  if (streams >= 1000)
    expect(
      full.rss > base.rss && each <= KIB_PER_STREAM,
      `${each.toFixed(1)} KiB a stream; the goal is ${KIB_PER_STREAM}`,
    )
  console.log(
    JSON.stringify(
      {
        streams,
        seconds,
        events,
        fewest_on_a_stream: fewest,
        errors: tally.broken.length + ended,
        rss: [mib(base.rss), mib(full.rss), mib(end.rss)],
        heap: [mib(base.heap), mib(full.heap), mib(end.heap)],
        kib_per_stream: Math.round(each * 10) / 10,
      },
      null,
      2,
    ),
  )
}

const idleStreams = values['idle-streams']
if (idleStreams !== undefined) await idle(Number(idleStreams))
else await soak(Number(values.streams))
closing = true
child.send('close')
await new Promise(resolve => child.once('exit', resolve))
await simulator.close()
for (const fault of faults) console.error(`FAILED: ${fault}`)
process.exit(faults.length > 0 ? 1 : 0)
