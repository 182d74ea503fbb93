/** What `bench:growth` makes larger, one thing at a time: the gateway's configuration and the load for each size. */
import { createHash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { chat, type RequestSpec, responses, type Variant, writeLongText, writeVariants } from '../requests.ts'

export interface Dimension {
  name: string
  /** What one of it is, for tables. */
  unit: string
  sizes: readonly number[]
  /** The sizes of `--quick`. */
  quick: readonly number[]
  /** Requests of one measurement. */
  count(n: number): number
  /** Whether the gateway has work without requests, whose CPU time is subtracted. */
  busy?: boolean
  /** Changes the benchmark's configuration. */
  change?(config: any, folder: string, n: number): void
  /** Prepares the gateway. @returns the load */
  load(n: number, at: Prepared): Promise<RequestSpec>
}

/** A running gateway whose load is being prepared. */
export interface Prepared {
  port: number
  /** The path of a new file in the run's folder. */
  file(): string
  /** Opens this many streams, which get an event every four seconds until the run ends. */
  openStreams(count: number): Promise<void>
}

const KEY = (i: number): string => `sk-bench-${String(i).padStart(5, '0')}`
const sha256 = (secret: string): string => createHash('sha256').update(secret).digest('hex')
const bearer = (i: number) => ({ authorization: `Bearer ${KEY(i)}` })
const all = <T>(n: number, of: (i: number) => T): T[] => Array.from({ length: n }, (_, i) => of(i))

const DECADES = [1, 10, 100, 1000, 10_000]
const FEW = 4096

/** Requests that differ by a number below n: one after the other, so that each is in use. */
function spread(n: number, of: (i: number) => Variant): Dimension['load'] {
  return async (_, { file }) => {
    const path = file()
    writeVariants(path, Math.max(FEW, n), i => of(i % n))
    return { kind: 'short', file: path }
  }
}
const plain: Dimension['load'] = (n, at) => spread(1, () => ({ route: chat }))(n, at)

const PASSING = `import { definePlugin } from 'sluice'
export default definePlugin({
  name: 'passing',
  summary: 'Reads the request, each event of the reply and the end, and changes nothing.',
  create: () => ({
    onRequest: x => void x.incoming.method,
    onEvent: (_x, event) => void event.type,
    onSettle: (_x, settlement) => void settlement.outcome,
  }),
})
`

export const dimensions: Dimension[] = [
  {
    name: 'organizations',
    unit: 'organizations that send requests in turns',
    sizes: DECADES,
    quick: [1, 100, 10_000],
    count: n => Math.max(2000, n),
    change(config, _folder, n) {
      config.plans = { bench: { limits: config.organizations.bench.limits } }
      const organization = (i: number) => ({ plan: 'bench', keys: [{ id: 'key', sha256: sha256(KEY(i)) }] })
      config.organizations = Object.fromEntries(all(n, i => [`org-${i}`, organization(i)]))
    },
    load: (n, at) => spread(n, i => ({ route: chat, headers: bearer(i) }))(n, at),
  },
  {
    name: 'keys',
    unit: 'keys of one organization in turns',
    sizes: DECADES,
    quick: [1, 100, 10_000],
    count: n => Math.max(2000, n),
    change(config, _folder, n) {
      const [{ limits }] = config.organizations.bench.keys
      config.organizations.bench.keys = all(n, i => ({ id: `key_${i}`, sha256: sha256(KEY(i)), limits }))
    },
    load: (n, at) => spread(n, i => ({ route: chat, headers: bearer(i) }))(n, at),
  },
  {
    name: 'models',
    unit: 'models in turns',
    sizes: [1, 10, 100, 1000],
    quick: [1, 100, 1000],
    count: () => 2000,
    change(config, _folder, n) {
      const { backends: _, ...rest } = config.models['bench-chat']
      const model = (i: number) => ({ ...rest, backends: [{ provider: 'chat', model: `upstream-${i}` }] })
      config.models = Object.fromEntries(all(n, i => [`model-${i}`, model(i)]))
    },
    load: (n, at) => spread(n, i => ({ route: { ...chat, model: `model-${i}` } }))(n, at),
  },
  {
    name: 'backends',
    unit: 'backends of one model in one group, each of a provider of its own',
    sizes: [1, 10, 100, 1000],
    quick: [1, 100, 1000],
    count: () => 2000,
    change(config, _folder, n) {
      config.providers = Object.fromEntries(all(n, i => [`chat-${i}`, config.providers.chat]))
      const backends = all(n, i => ({ provider: `chat-${i}`, model: 'bench-chat', group: 'all' }))
      config.models = { 'bench-chat': { ...config.models['bench-chat'], backends } }
    },
    load: plain,
  },
  {
    name: 'plugins',
    unit: 'plugins more in the chain, each with three hooks',
    sizes: [1, 3, 10, 30, 100],
    quick: [1, 10, 100],
    count: () => 2000,
    change(config, folder, n) {
      writeFileSync(join(folder, 'passing.ts'), PASSING)
      config.plugins = ['./passing.ts']
      const chain = config.pipelines.completions as unknown[]
      chain.splice(chain.indexOf('routing'), 0, ...all(n, i => ({ plugin: 'passing', id: `passing-${i}` })))
    },
    load: plain,
  },
  {
    name: 'streams',
    unit: 'open streams beside the requests, each with an event every four seconds',
    sizes: [1, 10, 100, 1000, 5000],
    quick: [1, 100, 1000],
    busy: true,
    count: () => 2000,
    async load(n, at) {
      await at.openStreams(n)
      return plain(n, at)
    },
  },
  {
    name: 'prompt',
    unit: 'KB of prompt',
    sizes: [1, 10, 100, 1000],
    quick: [1, 10, 100],
    count: n => Math.max(20, Math.round(2000 / n)),
    async load(n, { file }) {
      const path = file()
      writeLongText(path, Math.max(1_000_000, n * 4000))
      return { kind: 'long', file: path, bytes: n * 1000, route: chat, headers: {}, seed: n }
    },
  },
  {
    name: 'history',
    unit: 'turns of a stored conversation (previous_response_id)',
    sizes: [1, 10, 100, 500],
    quick: [1, 10, 100],
    count: n => Math.max(60, Math.round(2000 / n)),
    async load(n, { port, file }) {
      let previous: string | undefined
      for (let i = 0; i < n; i++) previous = await turn(port, i, previous)
      const path = file()
      writeVariants(path, 256, () => ({ route: responses, members: { store: true, previous_response_id: previous } }))
      return { kind: 'short', file: path }
    },
  },
]

/** Adds a stored turn to a conversation. @returns the id of its response */
async function turn(port: number, i: number, previous?: string): Promise<string> {
  const reply = await fetch(`http://127.0.0.1:${port}/v1/responses`, {
    method: 'POST',
    headers: { authorization: 'Bearer sk-bench-0001', 'content-type': 'application/json' },
    body: JSON.stringify({
      model: responses.model,
      store: true,
      max_output_tokens: 512,
      input: `Question ${i}: ${'what does the quick brown fox do next? '.repeat(5)}`,
      ...(previous !== undefined && { previous_response_id: previous }),
    }),
  })
  const { id } = (await reply.json()) as { id?: string }
  if (reply.status !== 200 || id === undefined) throw new Error(`turn ${i + 1} of the conversation: ${reply.status}`)
  return id
}
