/** The contenders. Each is started on the contenders' core, and forwards to the upstream's port. */
import type { ChildProcess } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import net from 'node:net'
import { join } from 'node:path'
import { findProgram } from '../../test/ensure-deps.ts'
import { freePort } from '../../test/ports.ts'
import { printed, start, startProgram, stop, temporaryFolder } from '../children.ts'
import { ensureLitellm, ensureLitellmRs, ensurePortkey, ensurePrograms, type Program } from '../install.ts'
import { CONTENDER } from '../machine.ts'
import { startSluice } from './sluice.ts'

export interface Running {
  port: number
  pid: number
  stop(): Promise<void>
  /** How many exchanges it has recorded; to be called after `stop`. */
  recorded?(): { ledger: number; log: number }
}

/** How the upstream is reached with TLS. */
export interface Secure {
  /** PEM file of the authority that signed its certificate. */
  ca: string
  /** The ports of its HTTP/1.1 and its HTTP/2. */
  http1: number
  http2: number
}

export interface StartOptions {
  /** The port of the upstream. */
  upstream: number
  /** Whether content must be forwarded as it arrives. */
  streaming: boolean
  /** Use the upstream's TLS. */
  secure?: Secure
}

export interface Contender {
  name: string
  needs?: Program
  /** Installs what apt-get does not have. @returns undefined when it can't be installed */
  install?(): string | undefined
  /** Additional headers of its requests. */
  headers?(upstream: number): Record<string, string>
  /**
   * A measurement of its streams lasts this many times as long, because otherwise none of them would come to its end.
   */
  times?: number
  start(options: StartOptions): Promise<Running>
}

export const contenders: Record<string, Contender> = {}
const add = (contender: Contender) => (contenders[contender.name] = contender)

add({ name: 'sluice', start: options => startSluice(options) })
add({ name: 'sluice-node', start: options => startSluice({ ...options, listener: 'node' }) })
add({ name: 'sluice-undici', start: options => startSluice({ ...options, client: 'undici' }) })
add({ name: 'sluice-http2', start: options => startSluice({ ...options, http2: true }) })
add({
  name: 'uws-undici',
  start: ({ upstream, secure }) =>
    secure ? nodeProgram('uws-undici.ts', secure.http1, secure.ca) : nodeProgram('uws-undici.ts', upstream),
})
add({
  name: 'uws-undici-http2',
  start: ({ secure }) => nodeProgram('uws-undici.ts', secure!.http2, secure!.ca, 'http2'),
})
add({ name: 'nginx', needs: 'nginx', start: startNginx })
add({ name: 'haproxy', needs: 'haproxy', start: startHaproxy })
add({ name: 'http-proxy-3', start: ({ upstream }) => nodeProgram('http-proxy.ts', upstream) })
add({
  name: 'portkey',
  headers: upstream => ({
    'x-portkey-provider': 'openai',
    'x-portkey-custom-host': `http://127.0.0.1:${upstream}/v1`,
  }),
  install: ensurePortkey,
  start: startPortkey,
})
add({ name: 'litellm', times: 10, install: ensureLitellm, start: startLitellm })

add({ name: 'litellm-rs', install: ensureLitellmRs, start: startLitellmRs })

/** The contenders of profiles 1 and 3. */
export const ALL = ['sluice', 'sluice-node', 'uws-undici', 'nginx', 'haproxy', 'http-proxy-3', 'portkey', 'litellm']

/** Installs what these contenders need. @returns those that can run here; the others are named on stderr */
export function available(names: readonly string[]): Contender[] {
  const wanted = names.map(name => contenders[name]!)
  const missing = ensurePrograms(new Set(wanted.flatMap(contender => contender.needs ?? [])))
  return wanted.filter(contender => {
    const can = contender.install ? contender.install() !== undefined : !missing.has(contender.needs!)
    if (!can) console.error(`! ${contender.name} is left out`)
    return can
  })
}

async function nodeProgram(file: string, upstream: number, ...more: string[]): Promise<Running> {
  const child = startProgram(CONTENDER, join(import.meta.dirname, file), [String(upstream), ...more], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [, port] = await printed(child, /listening (\d+)/)
  return { port: Number(port), pid: child.pid!, stop: () => stop(child) }
}

async function startNginx({ upstream, streaming, secure }: StartOptions): Promise<Running> {
  const folder = join(temporaryFolder(), `nginx-${streaming ? 'streaming' : 'buffered'}-${await freePort()}`)
  const port = await freePort()
  mkdirSync(folder)
  const file = join(folder, 'nginx.conf')
  // One process. Connections stay open on both sides (by default, nginx closes one after 1,000 requests).
  writeFileSync(
    file,
    `daemon off;
master_process off;
pid ${folder}/nginx.pid;
error_log stderr crit;
events { worker_connections 18000; }
http {
  access_log off;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  keepalive_requests 1000000000;
  upstream bench { server 127.0.0.1:${secure?.http1 ?? upstream}; keepalive 256; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    client_max_body_size 64m;
    client_body_buffer_size 2m;
    location / {
      ${secure ? `proxy_pass https://bench; ${verified(secure.ca)}` : 'proxy_pass http://bench;'}
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering ${streaming ? 'off' : 'on'};
      proxy_read_timeout 600s;
    }
  }
}
`,
  )
  const program = findProgram(['nginx'])!
  return onPort(start(CONTENDER, program, ['-c', file, '-p', folder], { stdio: ['ignore', 'ignore', 'inherit'] }), port)
}

/** nginx checks nothing by default. */
function verified(ca: string): string {
  return `proxy_ssl_verify on; proxy_ssl_trusted_certificate ${ca}; proxy_ssl_name localhost; proxy_ssl_server_name on;`
}

async function startHaproxy({ upstream }: StartOptions): Promise<Running> {
  const port = await freePort()
  const file = join(temporaryFolder(), `haproxy-${port}.cfg`)
  writeFileSync(
    file,
    `global
  nbthread 1
  maxconn 9000
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  option http-no-delay
  http-reuse always
frontend bench
  bind 127.0.0.1:${port} backlog 4096
  default_backend upstream
backend upstream
  server one 127.0.0.1:${upstream}
`,
  )
  const program = findProgram(['haproxy'])!
  return onPort(start(CONTENDER, program, ['-db', '-f', file], { stdio: ['ignore', 'ignore', 'inherit'] }), port)
}

async function startPortkey(): Promise<Running> {
  const port = await freePort()
  const child = start(CONTENDER, process.execPath, [ensurePortkey()!, '--headless', `--port=${port}`], {
    // Its address guard refuses loopback addresses unless they are named here.
    env: { ...process.env, NODE_ENV: 'production', TRUSTED_CUSTOM_HOSTS: '127.0.0.1' },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  return onPort(child, port)
}

/** LiteLLM's proxy: one process, without keys, budgets, callbacks or a database, which are all off by default. */
async function startLitellm({ upstream }: StartOptions): Promise<Running> {
  const port = await freePort()
  const file = join(temporaryFolder(), `litellm-${port}.yaml`)
  const backend = `{ model: openai/bench-chat, api_base: "http://127.0.0.1:${upstream}/v1", api_key: sk-upstream }`
  writeFileSync(file, `model_list:\n  - { model_name: bench-chat, litellm_params: ${backend} }\n`)
  const args = ['--config', file, '--host', '127.0.0.1', '--port', String(port), '--num_workers', '1']
  const env = {
    ...process.env,
    // It refuses to start without a key otherwise. Checking one would only make it slower.
    LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY: 'true',
    // It would fetch its table of prices otherwise, and write debug lines.
    LITELLM_LOCAL_MODEL_COST_MAP: 'True',
    LITELLM_MODE: 'PRODUCTION',
    LITELLM_LOG: 'ERROR',
  }
  const child = start(CONTENDER, ensureLitellm()!, args, { env, stdio: 'ignore' })
  // It takes ten seconds of CPU time to load its modules.
  return onPort(child, port, 60_000)
}

/** One worker, without keys, limits, a database or a check of contents. */
async function startLitellmRs({ upstream }: StartOptions): Promise<Running> {
  const port = await freePort()
  const file = join(temporaryFolder(), `litellm-rs-${port}.yaml`)
  const models = ['bench-chat', 'agents-chat']
  const identity = { capability_catalog_model: 'gpt-4o', pricing_model: 'gpt-4o' }
  const config = {
    schema_version: '1.0',
    server: { host: '127.0.0.1', port, workers: 1, max_connections: 4096, dev_mode: true, max_body_size: 64 << 20 },
    providers: [
      {
        name: 'bench',
        provider_type: 'openai',
        api_key: 'sk-upstream',
        base_url: `http://127.0.0.1:${upstream}/v1`,
        endpoint_access: 'private_network',
        max_concurrent_requests: 4096,
        rpm: 1_000_000_000,
        tpm: 1_000_000_000,
        settings: { model_identity_mappings: Object.fromEntries(models.map(model => [model, identity])) },
        models,
        enabled: true,
      },
    ],
    router: { strategy: 'round_robin', circuit_breaker: {}, load_balancer: { health_check_enabled: false } },
    storage: {
      database: { url: 'sqlite::memory:', enabled: false },
      redis: { url: 'redis://127.0.0.1:1', enabled: false },
    },
    auth: {
      enable_jwt: false,
      enable_api_key: false,
      allow_anonymous: true,
      jwt_secret: '',
      jwt_expiration: 86_400,
      api_key_header: 'Authorization',
      rbac: { enabled: false, default_role: 'user', admin_roles: ['admin'] },
    },
    guardrails: { enabled: false },
    monitoring: {
      metrics: { enabled: false, port: 9090, path: '/metrics', interval_seconds: 15 },
      tracing: { enabled: false, service_name: 'bench', sampling_rate: 0 },
      health: { path: '/health', detailed: false },
    },
  }
  // JSON is YAML, too.
  writeFileSync(file, JSON.stringify(config))
  const child = start(CONTENDER, ensureLitellmRs()!, ['--config', file], { stdio: ['ignore', 'ignore', 'inherit'] })
  return onPort(child, port)
}

/** Waits for a program that does not print when it is ready. */
async function onPort(child: ChildProcess, port: number, patienceMs?: number): Promise<Running> {
  await listens(child, port, patienceMs)
  return { port, pid: child.pid!, stop: () => stop(child) }
}

/** Waits until a program accepts connections. If it does not within `patienceMs`, ends the program and rejects. */
export async function listens(child: ChildProcess, port: number, patienceMs = 10_000): Promise<void> {
  for (let i = 0; i < patienceMs / 25 && child.exitCode === null; i++) {
    if (await connects(port)) return
    await new Promise(resolve => setTimeout(resolve, 25))
  }
  await stop(child)
  throw new Error(`${child.spawnargs.join(' ')} does not listen on port ${port}`)
}

function connects(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const socket = net.connect(port, '127.0.0.1')
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}
