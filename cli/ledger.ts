/** `sluice ledger ship`: copies the ledger to PostgreSQL or to files, beside a running gateway or without one. */
import { randomUUID } from 'node:crypto'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { parseDuration } from '../config/units.ts'
import type { Logger } from '../core/plugin.ts'
import { systemClock } from '../core/tools/clock.ts'
import { drainOf, holdsDrained } from '../stores/redis/drained.ts'
import { checkTarget, Follower, nameOfTarget, openSource, openTarget, ShipError, shipAll } from '../stores/ship/ship.ts'
import { configFile } from './arguments.ts'
import type { Verb } from './main.ts'
import { loadWithoutSecrets, storeFailure } from './problems.ts'
import { Progress } from './progress.ts'
import { Failure, type Terminal, UsageError } from './terminal.ts'

const HELP = `Usage: sluice ledger ship [OPTIONS]

Copies ledger rows to a target outside, each row once. The target keeps the
position, so that every run goes on where the last one ended.

  --to TARGET       postgres://USER@HOST:PORT/DATABASE, or file:FOLDER with one
                    NDJSON file a day (default: ledger.ship.to)
  --once            ends when all rows are shipped (default)
  --follow          goes on with new rows until it is stopped
  --interval TIME   of --follow: time between two looks (default 10s)
  --config FILE     the configuration (default gateway.yaml)
  --store URL       the store itself, without a configuration

The password of PostgreSQL may stand in the URL, in PGPASSWORD or in ~/.pgpass.
`

export const ledger: Verb = {
  summary: 'Ships the ledger to PostgreSQL or files: `ledger ship`.',
  help: HELP,
  async run(args, terminal) {
    const text = { type: 'string' } as const
    const flag = { type: 'boolean', default: false } as const
    const { values, positionals } = parseArgs({
      args,
      options: { to: text, once: flag, follow: flag, interval: text, config: text, store: text },
      allowPositionals: true,
    })
    const [action, ...files] = positionals
    if (action !== 'ship') throw new UsageError(action === undefined ? 'ship?' : `there is no 'ledger ${action}'`)
    if (values.once && values.follow) throw new UsageError('--once or --follow, not both')
    const interval = parseDuration(values.interval ?? '10s')
    if (interval === null || interval < 1000)
      throw new UsageError(`--interval takes a time of at least 1s, not ${values.interval}`)
    if (values.store !== undefined && (values.config !== undefined || files.length > 0))
      throw new UsageError('name the store or the configuration, not both')
    let { store, to } = values
    if (store === undefined || to === undefined) {
      if (store !== undefined) throw new UsageError('--store needs --to TARGET')
      const { config } = await loadWithoutSecrets(configFile(values.config, files), terminal)
      store = config.store.url
      to ??= config.ledger.ship?.to
      if (to === undefined) throw new UsageError('name the target: --to TARGET, or ledger.ship.to in the configuration')
    }
    if (to.startsWith('file:')) to = `file:${path.resolve(to.slice('file:'.length))}`
    const drained = drainOf(store)
    if (drained !== null && to !== `file:${drained}` && holdsDrained(drained))
      terminal.err(`rows that have left the store's memory are in ${drained}, and are not shipped; copy these files`)
    try {
      await checkTarget(to)
      if (!values.follow) return await once(store, to, terminal)
      return await follow({ store, to, interval }, terminal)
    } catch (error) {
      throw error instanceof ShipError ? new Failure(error.message) : storeFailure(error)
    }
  },
}

async function once(store: string, to: string, terminal: Terminal): Promise<number> {
  const log = logTo(terminal)
  const progress = new Progress(process.stderr, 'rows')
  const source = await openSource(store, randomUUID())
  let shipped = 0
  try {
    const target = await openTarget(to)
    try {
      const each = (rows: number) => {
        shipped += rows
        progress.show(shipped)
      }
      await shipAll(source, target, { name: nameOfTarget(to), log, each })
    } finally {
      progress.clear()
      await target.close()
    }
  } finally {
    await source.close()
  }
  terminal.out(`shipped ${shipped} ${shipped === 1 ? 'row' : 'rows'} to ${nameOfTarget(to)}`)
  return 0
}

/** Ships until SIGTERM or SIGINT. A failure is reported, and tried again. */
async function follow(work: { store: string; to: string; interval: number }, terminal: Terminal): Promise<number> {
  const stopped = new Promise<void>(resolve => {
    process.once('SIGTERM', () => resolve())
    process.once('SIGINT', () => resolve())
  })
  // The follower's own timers do not keep the process alive.
  const alive = setInterval(() => {}, 2 ** 30)
  terminal.out(`following the ledger for ${nameOfTarget(work.to)}; Ctrl-C or SIGTERM ends it`)
  let shipped = 0
  const follower = new Follower({
    ...work,
    holder: randomUUID(),
    clock: systemClock,
    log: logTo(terminal),
    onStatus(status) {
      if (status.shipped > shipped) terminal.out(`shipped ${status.shipped} rows to ${nameOfTarget(work.to)}`)
      shipped = status.shipped
    },
  })
  await stopped
  await follower.stop()
  clearInterval(alive)
  return 0
}

function logTo(terminal: Terminal): Logger {
  const tell = (fields: object, message: string) =>
    terminal.err([message, ...Object.entries(fields).map(([name, value]) => `${name}: ${value}`)].join('\n  '))
  return { debug() {}, info: tell, warn: tell, error: tell }
}
