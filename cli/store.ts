/** `sluice store move`: carries everything from one store to another, such as from SQLite to Redis. */
import { existsSync } from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import type { Logger } from '../core/plugin.ts'
import { cancelMove, type Moved, moveStore, NAMES, type Name, type Tally } from '../stores/move/move.ts'
import { configFile } from './arguments.ts'
import type { Verb } from './main.ts'
import { loadWithoutSecrets, storeFailure } from './problems.ts'
import { Progress } from './progress.ts'
import { columns, type Terminal, UsageError } from './terminal.ts'

const HELP = `Usage: sluice store move --from STORE [--cancel] [OPTIONS]

Carries everything from another store into the store of the configuration:
organizations and keys, spend, levels of rate limits, the ledger with its sums,
retained responses, replies of idempotency keys, the audit and the secret.

Stop all gateways, set 'store' in gateway.yaml to the new store, run this, and
start the gateways again. The new store must be empty. What was carried is read
again and compared before the old store is marked as moved; no gateway starts
on it after that. A move that was interrupted goes on when it is run again.

  --from STORE    the store to leave, as 'store' in gateway.yaml has it:
                  sqlite:FILE, local, local:FOLDER or a redis URL. \${NAME} is
                  taken from the environment, where it stands in quotes
  --cancel        takes back a move that was interrupted
  --config FILE   the configuration (default gateway.yaml)
`

export const store: Verb = {
  summary: 'Moves everything to another store: `store move`.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: {
        from: { type: 'string' },
        config: { type: 'string' },
        cancel: { type: 'boolean', default: false },
      },
      allowPositionals: true,
    })
    const [action, ...files] = positionals
    if (action !== 'move') throw new UsageError(action === undefined ? 'move?' : `there is no 'store ${action}'`)
    if (values.from === undefined) throw new UsageError('--from names the store to leave')
    const from = storeOf(values.from)
    const { config } = await loadWithoutSecrets(configFile(values.config, files), terminal)
    const { url: to, max_memory: maxMemory } = config.store
    const progress = new Progress(process.stderr, 'rows')
    const stop = new AbortController()
    const onSignal = () => stop.abort()
    for (const signal of SIGNALS) process.once(signal, onSignal)
    const options = {
      ...{ from, to, maxMemory, log: logTo(terminal), signal: stop.signal },
      tell: (text: string) => terminal.err(text),
      progress: (count: number) => progress.show(count),
    }
    try {
      if (values.cancel) for (const line of await cancelMove(options)) terminal.out(line)
      else tellMoved(await moveStore(options), terminal)
      return 0
    } catch (error) {
      throw storeFailure(error)
    } finally {
      progress.clear()
      for (const signal of SIGNALS) process.off(signal, onSignal)
    }
  },
}

const SIGNALS = ['SIGINT', 'SIGTERM'] as const

/** A store as gateway.yaml names it, as its URL. @throws UsageError */
function storeOf(text: string): string {
  const url = text.replace(/\$\{(\w+)\}/g, (_, name: string) => {
    const value = process.env[name]
    if (value === undefined) throw new UsageError(`the variable ${name} of --from is not set`)
    return value
  })
  if (url === 'local' || url.startsWith('local:'))
    return `local:${path.resolve(url.slice('local:'.length) || './data')}`
  if (/^(sqlite|rediss?(\+(sentinel|cluster))?):/.test(url)) return url
  const hint = existsSync(url) ? `; is it sqlite:${url}?` : ''
  throw new UsageError(`--from takes sqlite:FILE, local, local:FOLDER or a redis URL${hint}`)
}

const WORDS: Record<Name, string> = {
  organizations: 'organizations',
  gone: 'ids of what was deleted',
  audit: 'entries of the audit',
  spend: 'spend of the present day or month',
  levels: 'levels of rate limits',
  sums: 'sums of the ledger by hour',
  tagged: 'sums of the values of tags by hour',
  ledger: 'rows of the ledger',
  credits: 'credits',
  billed: 'balances that rows were billed to',
  idempotency: 'replies of idempotency keys',
  records: 'retained responses and their data',
}
/** What has no meaning in another store, and is never carried. */
const NEVER = [
  'slots, leases and reservations of running requests',
  'positions of `ledger ship`: its next run leaves out what its target has',
  'consumer groups of the stream sluice:ledger',
]

function tellMoved({ from, to, carried, dropped }: Moved, terminal: Terminal): void {
  if (carried === null) {
    terminal.out(`Everything had been carried from ${from} to ${to} before. ${to} is in use now.`)
    return
  }
  const rows = (Object.keys(NAMES) as Name[]).map(name => [
    WORDS[name],
    String(carried[name].count),
    sumOf(name, carried[name]),
  ])
  terminal.out(`Carried from ${from} to ${to}, and read again there:`)
  terminal.out(columns(rows))
  terminal.out('Left behind:')
  for (const what of NEVER) terminal.out(`  ${what}`)
  for (const [what, count] of dropped) terminal.out(`  ${what} (${count})`)
  terminal.out(`No gateway starts on ${from} any more. Start them on ${to}.`)
}

function sumOf(name: Name, { sum }: Tally): string {
  const unit = NAMES[name]
  if (unit === 'nano-USD') {
    const digits = String(sum).padStart(10, '0')
    return `${digits.slice(0, -9)}.${digits.slice(-9)} USD`
  }
  return unit === '' ? '' : `${sum} ${unit}`
}

/** Only what an operator has to know about is said: a journal that was damaged, one that is not recovered. */
function logTo(terminal: Terminal): Logger {
  const tell = (fields: object, message: string) =>
    terminal.err([message, ...Object.entries(fields).map(([name, value]) => `${name}: ${value}`)].join('\n  '))
  return { debug() {}, info() {}, warn: tell, error: tell }
}
