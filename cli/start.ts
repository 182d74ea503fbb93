import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { DEMO_KEY_DIGEST } from '../config/accounts.ts'
import type { GatewayConfig } from '../config/types.ts'
import { isLoopback } from '../config/units.ts'
import { systemClock } from '../core/tools/clock.ts'
import { isLocal, LocalServer } from '../stores/local.ts'
import { configFile, DEFAULT_CONFIG, ownCommand } from './arguments.ts'
import { boundHeapGrowth } from './gateway/heap.ts'
import type { Gateway } from './gateway.ts'
import { type Log, openLog } from './log.ts'
import type { Verb } from './main.ts'
import { loadOrFail, storeFailure, tellWarnings } from './problems.ts'
import { Failure, type Terminal } from './terminal.ts'
import { supervise, tellListening, tellServing, usersByPrimary, watchParent, workerNumber } from './workers.ts'

const HELP = `Usage: sluice start [--config FILE]

Runs the gateway of FILE (default gateway.yaml). Where no FILE is named and
there is no gateway.yaml, it first writes the one of the quickstart: a
simulator instead of a provider, for everyone who has the key sk-demo.

  --config FILE   the configuration
  --pretty        log lines for people instead of JSON
  --no-watch      do not follow changes of the file; SIGHUP still reloads

Signals: SIGHUP reloads the configuration. SIGTERM or SIGINT stops accepting
and lets streams finish for up to server.drain; a second one ends at once.
The log goes to standard error, one JSON object a line.
`

export const start: Verb = {
  summary: 'Runs the gateway.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: { config: { type: 'string' }, pretty: { type: 'boolean' }, 'no-watch': { type: 'boolean' } },
      allowPositionals: true,
    })
    if (values.config === undefined && positionals.length === 0 && !existsSync(DEFAULT_CONFIG))
      writeQuickstart(terminal)
    const file = configFile(values.config, positionals)
    const { config, warnings } = await loadOrFail(file)
    const worker = workerNumber()
    if (config.server.workers > 1 && worker === undefined) {
      tellWarnings(warnings, terminal)
      return withServer(config.store, terminal, () => runWorkers(config, args, terminal))
    }
    const log = openLog(config.log, {
      pretty: values.pretty,
      colour: process.stderr.isTTY && !process.env['NO_COLOR'],
      // `docker run -t` has a terminal, too, and its output is kept: but nobody would reach a listener on loopback there.
      private: process.stderr.isTTY && isLoopback(config.server.listen.host),
    })
    try {
      const serve = () => run(file, { log, watch: !values['no-watch'], worker, terminal, warn: worker === undefined })
      const code = worker === undefined ? await withServer(config.store, terminal, serve) : await serve()
      // Something that a plugin left open, such as an interval, must not keep the process of a closed gateway alive.
      setTimeout(() => process.exit(code), LEFT_OPEN_MS).unref()
      return code
    } finally {
      await log.close()
    }
  },
}

/** Runs `serve` beside the server of `store: local`, which ends after it. Other stores need none. */
async function withServer(
  store: GatewayConfig['store'],
  terminal: Terminal,
  serve: () => Promise<number>,
): Promise<number> {
  if (!isLocal(store.url)) return serve()
  let server: LocalServer
  try {
    server = await LocalServer.start({ url: store.url, maxMemory: store.max_memory, tell: terminal.err })
  } catch (error) {
    throw storeFailure(error, 'cannot start: ')
  }
  try {
    return await serve()
  } finally {
    await server.stop()
  }
}

/** Runs several processes, and the admin listener of all of them. @returns the exit code */
async function runWorkers(config: GatewayConfig, args: readonly string[], terminal: Terminal): Promise<number> {
  const { AllWorkers } = await import('../admin/all-workers.ts')
  const { addressOf, startAdmin } = await import('../admin/server.ts')
  const { admin, workers: count } = config.server
  const watcher = new AllWorkers(count, admin.tokens, systemClock)
  const listener = await startAdmin({ ...admin, ...watcher.options }).catch(error => {
    throw cannotListen(error)
  })
  const adminAddress = addressOf(listener)
  try {
    return await supervise({
      count,
      args,
      terminal,
      watcher,
      onServing: ({ address }) => terminal.out(banner({ address, adminAddress, config })),
    })
  } finally {
    await listener.close()
  }
}

function cannotListen(error: NodeJS.ErrnoException): Failure {
  const { code, message } = error
  return new Failure(
    code === 'EADDRINUSE' ? `cannot listen: ${message}; another process has the address` : `cannot start: ${message}`,
  )
}

function writeQuickstart(terminal: Terminal): void {
  const text = readFileSync(join(import.meta.dirname, '..', DEFAULT_CONFIG), 'utf8')
  // The first line is for editors, and names a file of the checkout.
  writeFileSync(DEFAULT_CONFIG, text.replace(/^# yaml-language-server: .*\n/, ''), { flag: 'wx' })
  terminal.err(
    `There was no ${DEFAULT_CONFIG} here. Now there is the quickstart's, with a simulator and the key sk-demo;\n` +
      `\`${ownCommand()} init --force\` replaces it by one for your providers.`,
  )
}

/** The process ends by itself when nothing is left to do, and by force after this many milliseconds. */
const LEFT_OPEN_MS = 1000

interface RunOptions {
  log: Log
  watch: boolean
  /** From 1; undefined when this process serves alone. */
  worker: number | undefined
  terminal: Terminal
  warn: boolean
}

/** Serves until a signal says to stop. @returns the exit code */
async function run(file: string, { log, watch, worker, terminal, warn }: RunOptions): Promise<number> {
  const { buildGateway } = await import('./gateway.ts')
  const { ConfigRefused } = await import('./assembly.ts')
  // A plugin did not wait for a promise that failed. At worst that harms one exchange, so the process goes on.
  process.on('unhandledRejection', error =>
    log.error({ err: error }, 'a promise was rejected, and nobody waited for it'),
  )
  boundHeapGrowth(systemClock)
  let gateway: Gateway | undefined
  let reloadAsked = false
  const stopped = new Promise<number>(onSignals)
  try {
    gateway = await buildGateway(file, {
      log,
      configureLog: log.configure,
      watch,
      ...(worker === undefined
        ? {}
        : { worker, sharePort: true, onWorkerApi: tellListening, usersOf: usersByPrimary() }),
    })
  } catch (error) {
    if (error instanceof ConfigRefused) throw new Failure(error.message)
    throw cannotListen(error as NodeJS.ErrnoException)
  }
  if (reloadAsked) reload(gateway)
  if (warn) tellWarnings(gateway.warnings, terminal)
  if (worker === undefined) terminal.out(banner(gateway))
  tellServing()
  return stopped

  function onSignals(resolve: (code: number) => void): void {
    let stopping = 0
    const stop = (signal: NodeJS.Signals) => {
      // Ctrl-C reaches both the launcher and this process, and the launcher passes its signal on: two within 300 ms are
      // one.
      const now = performance.now()
      if (stopping > 0 && now - stopping < 300) return
      if (stopping > 0 || gateway === undefined) {
        log.flush()
        process.exit(signal === 'SIGINT' ? 130 : 143)
      }
      stopping = now
      log.info({ signal }, 'draining; once more ends at once')
      gateway.drain().then(
        () => resolve(0),
        error => {
          log.error({ err: error }, 'drain failed')
          resolve(1)
        },
      )
    }
    watchParent(() => stop('SIGTERM'))
    process.on('SIGTERM', stop)
    process.on('SIGINT', stop)
    process.on('SIGHUP', () => {
      if (gateway) reload(gateway)
      else reloadAsked = true
    })
  }

  function reload(running: Gateway): void {
    running.reload().catch(error => log.error({ err: error }, 'reload failed'))
  }
}

/** What is printed after a start: the addresses and, for the quickstart's key, a command to try. */
export function banner(gateway: Pick<Gateway, 'address' | 'adminAddress' | 'config'>): string {
  const lines = [`Sluice listens on ${gateway.address}`]
  if (gateway.adminAddress !== undefined) lines.push(`dashboard          ${gateway.adminAddress}/`)
  const demo = demoOrganization(gateway.config)
  const route = gateway.config.routes.find(r => r.surface === 'chat' && (r.method === 'POST' || r.method === 'ANY'))
  if (!demo) return lines.join('\n')
  lines.push('demo key           sk-demo')
  const model = Object.values(gateway.config.models).find(
    m => m.listed && m.price && (demo.models === 'all' || demo.models.includes(m.id)),
  )
  if (!route || !model || route.path.endsWith('*')) return lines.join('\n')
  const address = gateway.address.replace('//0.0.0.0:', '//127.0.0.1:')
  lines.push(
    '',
    'Try it:',
    `  curl -N ${address}${route.path} \\`,
    "    -H 'Authorization: Bearer sk-demo' \\",
    "    -H 'Content-Type: application/json' \\",
    `    -d '{"model":"${model.id}","stream":true,`,
    `      "messages":[{"role":"user","content":"Hello"}]}'`,
  )
  return lines.join('\n')
}

function demoOrganization(config: GatewayConfig) {
  return Object.values(config.organizations).find(o =>
    o.keys.some(k => k.sha256 === DEMO_KEY_DIGEST && k.status !== 'revoked'),
  )
}
