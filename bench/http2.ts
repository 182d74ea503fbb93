/**
 * `npm run bench:http2`: measures what a stream over TLS costs the gateway's process with HTTP/1.1 and with HTTP/2. It
 * uses the same connection pools as `upstream`. Its result is the reason for the default of a provider's `http2` (see
 * docs/upstreams.md, Connections).
 */
import { createSecureServer } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { parseArgs } from 'node:util'
import type { ProviderConfig } from '../config/types.ts'
import { systemClock } from '../core/tools/clock.ts'
import type { ReplyHandler } from '../plugins/upstream/http1/client.ts'
import { Pools, type ProviderPool } from '../plugins/upstream/pools.ts'
import { type Certificates, makeCertificates } from '../test/faults/certificates.ts'
import { printed, startProgram, stop } from './children.ts'
import { median } from './load/percentile.ts'
import { CONTENDER, LOAD, pinning } from './machine.ts'
import { show, table } from './results.ts'
import { replies } from './upstream-replies.ts'

const CONCURRENT = 64
const PATH = '/v1/chat/completions'
/** Events in one write of the upstream: a provider under load flushes several at once. */
const GROUP = 10
const BODY = JSON.stringify({ model: 'bench', stream: true, messages: [{ role: 'user', content: 'x'.repeat(1000) }] })

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '2' },
    role: { type: 'string', default: 'main' },
    keys: { type: 'string' },
    url: { type: 'string' },
    ca: { type: 'string' },
  },
})

if (values.role === 'server') serve(JSON.parse(values.keys!))
else if (values.role === 'client') await client(values.url!, values.ca!)
else await main()

/** The upstream. It answers with streams of the benchmarks' chat reply, on the protocol that the client chooses. */
function serve(keys: { cert: string; key: string }): void {
  const { frames } = replies[PATH]!
  const pieces: Buffer[] = []
  for (let i = 0; i < frames.length; i += GROUP) pieces.push(Buffer.concat(frames.slice(i, i + GROUP)))
  const server = createSecureServer({ ...keys, allowHTTP1: true }, (request, response) => {
    request.resume()
    request.on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      let i = 0
      const next = (): void => {
        if (i === pieces.length) return void response.end()
        response.write(pieces[i++]!)
        setImmediate(next)
      }
      next()
    })
  })
  server.listen(0, '127.0.0.1', () => console.log(`listening ${(server.address() as AddressInfo).port}`))
}

interface Sample {
  streams: number
  micros: number
}

/** Measures both protocols in turns, in a process that does nothing else, and prints the result. */
async function client(url: string, ca: string): Promise<void> {
  const provider = (http2: boolean): ProviderConfig => ({
    name: http2 ? 'h2' : 'h1',
    dialect: 'openai-chat',
    base_url: url,
    headers: {},
    max_connections: 256,
    queue: { max: 1000, wait: 2000 },
    http2,
    settings: {},
    tls: { ca },
    proxy: null,
    key_header: undefined,
    auth: null,
    at: { file: '', line: 1, column: 1 },
  })
  const pools = new Pools()
  const open = {
    h1: pools.acquire(provider(false), 5000, systemClock),
    h2: pools.acquire(provider(true), 5000, systemClock),
  }
  const samples: Record<string, Sample[]> = { h1: [], h2: [] }
  const ms = Number(values.seconds) * 1000
  for (const pool of Object.values(open)) await load(pool, ms)
  for (let round = 0; round < Number(values.rounds); round++)
    for (const [name, pool] of Object.entries(open)) samples[name]!.push(await load(pool, ms))
  console.log(JSON.stringify(samples))
  process.exit(0)
}

async function load(pool: ProviderPool, ms: number): Promise<Sample> {
  const expected = replies[PATH]!.frames.reduce((sum, frame) => sum + frame.length, 0)
  const until = performance.now() + ms
  const begun = performance.now()
  const before = process.cpuUsage()
  let streams = 0
  const one = () =>
    new Promise<void>((resolve, reject) => {
      let bytes = 0
      const handler: ReplyHandler = {
        onRequestStart() {},
        onResponseStart(_, status) {
          if (status !== 200) reject(new Error(`status ${status}`))
        },
        onResponseData(_, chunk) {
          bytes += chunk.length
        },
        onResponseEnd() {
          if (bytes !== expected) return reject(new Error(`${bytes} bytes of ${expected}`))
          streams++
          resolve()
        },
        onResponseError: (_, error) => reject(error),
      }
      const headers = { 'content-type': 'application/json', 'content-length': String(BODY.length) }
      pool.dispatcher.dispatch({ origin: pool.origin, path: PATH, method: 'POST', headers, body: BODY }, handler)
    })
  const worker = async () => {
    while (performance.now() < until) await one()
  }
  await Promise.all(Array.from({ length: CONCURRENT }, worker))
  const { user, system } = process.cpuUsage(before)
  const seconds = (performance.now() - begun) / 1000
  return { streams: streams / seconds, micros: (user + system) / streams }
}

async function main(): Promise<void> {
  console.log(
    `${pinning.replace('contender', 'client').replace('load and upstream', 'upstream')}; node ${process.version}`,
  )
  const certificates: Certificates = makeCertificates()
  process.once('exit', () => certificates.remove())
  const { cert, key } = certificates.server
  const keys = JSON.stringify({ cert: String(cert), key: String(key) })
  const server = startProgram(LOAD, import.meta.filename, ['--role', 'server', '--keys', keys], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [, port] = await printed(server, /listening (\d+)/)
  const args = ['--role', 'client', '--url', `https://localhost:${port}/v1`, '--ca', certificates.ca]
  const seconds = ['--rounds', values.rounds, '--seconds', values.seconds]
  const measured = startProgram(CONTENDER, import.meta.filename, [...args, ...seconds], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [text] = await printed(measured, /^\{.*\}$/m, 120_000)
  await stop(server)
  const samples = JSON.parse(text) as Record<'h1' | 'h2', Sample[]>
  const row = (name: 'h1' | 'h2') => [
    show(median(samples[name].map(sample => sample.streams))),
    show(median(samples[name].map(sample => sample.micros))),
  ]
  console.log(
    table(
      [`TLS, ${CONCURRENT} streams of 200 events at a time`, 'streams/s', 'CPU µs/stream'],
      [
        ['HTTP/1.1', ...row('h1')],
        ['HTTP/2', ...row('h2')],
      ],
    ),
  )
}
