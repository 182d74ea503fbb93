/**
 * Measures accounts in the store, and reloads of accounts in the file. It runs the command line and the gateway as an
 * operator does, and prints tables. It writes nothing but temporary files, and asserts nothing.
 *
 *   npm run bench:accounts [-- --organizations 1000000 --engines sqlite,redis --reload 1,100,1000,10000]
 */
import type { ChildProcess } from 'node:child_process'
import { createHash, randomInt } from 'node:crypto'
import { createWriteStream, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { parseArgs } from 'node:util'
import { openAccounts } from '../stores/accounts.ts'
import { freePort } from '../test/ports.ts'
import { output, startProgram, stop, temporaryFolder } from './children.ts'
import { ensurePrograms } from './install.ts'
import { residentBytes } from './machine.ts'
import { startRedis } from './redis-server.ts'
import { table } from './results.ts'

const { values: flags } = parseArgs({
  options: {
    organizations: { type: 'string', default: '1000000' },
    engines: { type: 'string', default: 'sqlite,redis' },
    reload: { type: 'string', default: '1,100,1000,10000' },
  },
})
const ORGANIZATIONS = Number(flags.organizations)
const KEYS_EACH = 2
const LOOKUPS = 2000
const FLOOD_MS = 5000
const FLOODERS = 16
const STREAMS = 200
const MAIN = join(import.meta.dirname, '../cli/main.ts')

const secretOf = (organization: number, key = 0): string => `sk-bench-${organization}-${key}`
const digestOf = (secret: string): string => createHash('sha256').update(secret).digest('hex')
const MiB = (bytes: number): string => (bytes / 2 ** 20).toFixed(0)
const at = (sorted: readonly number[], share: number): string => sorted[Math.floor(sorted.length * share)]!.toFixed(2)
const ascending = (list: number[]): number[] => list.sort((a, b) => a - b)

function* lines(): Generator<string> {
  for (let i = 0; i < ORGANIZATIONS; i++) {
    const keys = Array.from({ length: KEYS_EACH }, (_, k) => ({ id: `key_${k}`, sha256: digestOf(secretOf(i, k)) }))
    yield `${JSON.stringify({ id: `customer-${i}`, plan: 'tier1', keys })}\n`
  }
}

const yamlOf = (store: string, port: number, admin: number, organizations = ''): string => `version: 2
server: { listen: "127.0.0.1:${port}", admin: "127.0.0.1:${admin}" }
store: { url: "${store}", timeout: 5s }
log: { level: error }
providers: { sim: { dialect: openai-chat, base_url: simulator } }
models:
  eb1: { context_window: 100000, max_output_tokens: 4096, price: { input: 1, output: 2 }, backends: [{ provider: sim, model: sim-large }] }
pipelines:
  completions: [auth, validation, model-access, conversation, token-estimate, web-search, media, routing, admission, translation, upstream, usage-capture, header-stamp]
  models: [auth, models]
routes:
  - { match: POST /v1/chat/completions, pipeline: completions, surface: chat }
  - { match: GET /v1/models, pipeline: models }
organizations:
  file: { plan: custom, keys: [{ id: a, sha256: ${digestOf('sk-file')} }] }
${organizations}`

interface Running {
  child: ChildProcess
  port: number
  admin: number
  file: string
  /** From the start of the process until it is ready. */
  startMs: number
}
let runs = 0
async function gateway(store: string, organizations?: string): Promise<Running> {
  const folder = join(temporaryFolder(), `gateway-${++runs}`)
  mkdirSync(folder)
  const port = await freePort(2)
  const file = join(folder, 'gateway.yaml')
  writeFileSync(file, yamlOf(store, port, port + 1, organizations))
  const begin = performance.now()
  const child = startProgram(undefined, MAIN, ['start', '--config', file], { stdio: ['ignore', 'ignore', 'inherit'] })
  const running = { child, port, admin: port + 1, file, startMs: 0 }
  while (child.exitCode === null) {
    if ((await ask(running, '/readyz', undefined, running.admin).catch(() => 0)) === 200) break
    await new Promise(resolve => setTimeout(resolve, 10))
  }
  if (child.exitCode !== null) throw new Error(`the gateway ended with ${child.exitCode}`)
  return { ...running, startMs: performance.now() - begin }
}

const agent = new Agent({ keepAlive: true, maxSockets: 64 })

/** @returns the status of a GET, once its body was read */
function ask({ port }: Pick<Running, 'port'>, path: string, key?: string, on = port): Promise<number> {
  return new Promise((resolve, reject) => {
    const headers = key === undefined ? {} : { authorization: `Bearer ${key}` }
    const asked = request({ host: '127.0.0.1', port: on, path, agent, headers }, reply => {
      reply.resume().once('end', () => resolve(reply.statusCode!))
    })
    asked.once('error', reject)
    asked.end()
  })
}

async function metric({ admin }: Running, name: string): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${admin}/metrics`)).text()
  return Number(new RegExp(`^${name.replace(/[{}"]/g, '\\$&')} (\\S+)$`, 'm').exec(text)?.[1] ?? 0)
}

/** Milliseconds of requests, one after the other, ascending. */
async function timed(running: Running, keys: readonly string[]): Promise<number[]> {
  const all: number[] = []
  for (const key of keys) {
    const begin = performance.now()
    const status = await ask(running, '/v1/models', key)
    if (status !== 200) throw new Error(`a key that was imported answers ${status}`)
    all.push(performance.now() - begin)
  }
  return ascending(all)
}

async function engine(name: string): Promise<void> {
  const redis = name === 'redis' ? await startRedis() : undefined
  const store = redis?.url ?? `sqlite:${join(temporaryFolder(), 'accounts.db')}`
  const rows: string[][] = []
  const row = (what: string, figure: string) => rows.push([what, figure])

  const empty = await gateway(store)
  const emptyBytes = residentBytes(empty.child.pid!)
  await stop(empty.child)

  const ndjson = join(temporaryFolder(), 'customers.ndjson')
  await pipeline(lines(), createWriteStream(ndjson))
  const begin = performance.now()
  const importing = startProgram(undefined, MAIN, ['org', 'import', ndjson, '--config', empty.file], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  await output(importing, 3_600_000)
  const seconds = (performance.now() - begin) / 1000
  row('import', `${seconds.toFixed(1)} s, ${Math.round((60 * ORGANIZATIONS) / seconds).toLocaleString('en')} a minute`)

  const first = await gateway(store)
  row('start, of an empty store', `${empty.startMs.toFixed(0)} ms`)
  row('start', `${first.startMs.toFixed(0)} ms`)
  row('memory at the start, of an empty store', `${MiB(emptyBytes)} MiB`)
  row('memory at the start', `${MiB(residentBytes(first.child.pid!))} MiB`)

  const { accounts, close } = await openAccounts(store)
  const some = Array.from({ length: LOOKUPS }, () => secretOf(randomInt(ORGANIZATIONS), randomInt(KEYS_EACH)))
  const alone: number[] = []
  for (const secret of some) {
    const digest = digestOf(secret)
    const began = performance.now()
    await accounts.find(digest)
    alone.push(performance.now() - began)
  }
  ascending(alone)
  row('look-up in the store, p50 / p99', `${at(alone, 0.5)} / ${at(alone, 0.99)} ms`)
  const file = await timed(
    first,
    some.map(() => 'sk-file'),
  )
  const cold = await timed(first, some)
  const warm = await timed(first, some)
  row('request with a key of the file, p50 / p99', `${at(file, 0.5)} / ${at(file, 0.99)} ms`)
  row('request with a key not seen before', `${at(cold, 0.5)} / ${at(cold, 0.99)} ms`)
  row('request with a key in memory', `${at(warm, 0.5)} / ${at(warm, 0.99)} ms`)

  const second = redis && (await gateway(store))
  const secret = secretOf(0)
  const all = second ? [first, second] : [first]
  for (const running of all) await ask(running, '/v1/models', secret)
  const before = (await accounts.read('customer-0'))!
  const keys = before.keys.map(key => ({ ...key, settings: JSON.stringify({ status: 'revoked' }) }))
  await accounts.change([{ id: 'customer-0', expected: before.version, keys }])
  const revoked = performance.now()
  const noticed = await Promise.all(
    all.map(async running => {
      while ((await ask(running, '/v1/models', secret)) !== 401) await new Promise(resolve => setTimeout(resolve, 2))
      return performance.now() - revoked
    }),
  )
  row('a revocation works after', noticed.map(ms => `${ms.toFixed(0)} ms`).join(' and '))

  const unknown = 'sluice_directory_lookups_total{result="unknown"}'
  const [looked, bytes] = [await metric(first, unknown), residentBytes(first.child.pid!)]
  const end = performance.now() + FLOOD_MS
  let tried = 0
  const flood = async () => {
    while (performance.now() < end) await ask(first, '/v1/models', `sk-wrong-${tried++}`)
  }
  await Promise.all(Array.from({ length: FLOODERS }, flood))
  const lookups = ((await metric(first, unknown)) - looked) / (FLOOD_MS / 1000)
  row('flood of keys that do not exist', `${Math.round(tried / (FLOOD_MS / 1000)).toLocaleString('en')} a second`)
  row('… look-ups that reach the store', `${Math.round(lookups)} a second`)
  row('… memory grows by', `${MiB(residentBytes(first.child.pid!) - bytes)} MiB`)

  await close()
  for (const { child } of all) await stop(child)
  await redis?.stop()
  console.log(`\n${ORGANIZATIONS.toLocaleString('en')} organizations, ${KEYS_EACH} keys each, on ${name}\n`)
  console.log(table(['', name], rows))
}

/** The longest time that the gateway answered nobody while a changed file was saved, with streams running, ms. */
async function reloaded(organizations: number): Promise<string[]> {
  const text = Array.from(
    { length: organizations },
    (_, i) => `  house-${i}: { plan: tier1, keys: [{ id: a, sha256: ${digestOf(secretOf(i))} }] }\n`,
  ).join('')
  const running = await gateway('sqlite::memory:', text)
  const streams = Array.from({ length: STREAMS }, () => {
    const body = JSON.stringify({
      model: 'eb1',
      stream: true,
      max_tokens: 4000,
      messages: [{ role: 'user', content: '[[sim: tokens 3000; pace 20ms]] x' }],
    })
    const headers = { authorization: 'Bearer sk-file', 'content-type': 'application/json' }
    const path = '/v1/chat/completions'
    const asked = request({ host: '127.0.0.1', port: running.port, path, method: 'POST', agent: false, headers })
    asked.once('response', reply => {
      if (reply.statusCode !== 200) throw new Error(`a stream answers ${reply.statusCode}`)
      reply.resume().on('error', () => {})
    })
    asked.on('error', () => {})
    asked.end(body)
    return asked
  })
  while ((await metric(running, 'sluice_open_streams')) < STREAMS) await new Promise(resolve => setTimeout(resolve, 20))
  const longest = async (ms: number, until: () => Promise<boolean> = async () => false) => {
    let most = 0
    const end = performance.now() + ms
    while (performance.now() < end) {
      const began = performance.now()
      await ask(running, '/healthz', undefined, running.admin)
      most = Math.max(most, performance.now() - began)
      if (await until()) break
    }
    return most
  }
  const quiet = await longest(2000)
  const reloads = 'sluice_config_reloads_total{result="applied"}'
  const before = await metric(running, reloads)
  writeFileSync(running.file, readFileSync(running.file, 'utf8').replace('file: { plan: custom', 'file: { plan: tier5'))
  const began = performance.now()
  let looks = 0
  const pause = await longest(60_000, async () => ++looks % 20 === 0 && (await metric(running, reloads)) > before)
  const took = performance.now() - began
  for (const asked of streams) asked.destroy()
  await stop(running.child)
  return [organizations.toLocaleString('en'), ...[running.startMs, took, quiet, pause].map(ms => `${ms.toFixed(0)} ms`)]
}

const missing = ensurePrograms(flags.engines.includes('redis') ? ['redis-server'] : [])
for (const name of flags.engines.split(',').filter(Boolean)) {
  if (name === 'redis' && missing.size > 0) console.log('redis-server could not be installed: left out')
  else await engine(name)
}
const rows: string[][] = []
for (const organizations of flags.reload.split(',').filter(Boolean)) rows.push(await reloaded(Number(organizations)))
if (rows.length > 0) {
  console.log(`\nSaving the file with ${STREAMS} streams running; the longest wait for an answer of /healthz\n`)
  console.log(table(['organizations', 'start', 'save until applied', 'wait before', 'wait while saving'], rows))
}
process.exit()
