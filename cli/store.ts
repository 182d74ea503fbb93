/** `sluice store`: carries everything to another store, makes backups, and restores them. */
import { existsSync } from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import type { Logger } from '../core/plugin.ts'
import { backup, type Copied, type Moments, restore } from '../stores/move/backup.ts'
import { cancelMove, type Moved, moveStore, NAMES, type Name, type Tally } from '../stores/move/move.ts'
import { configFile } from './arguments.ts'
import type { Verb } from './main.ts'
import { loadWithoutSecrets, storeFailure } from './problems.ts'
import { Progress } from './progress.ts'
import { columns, type Terminal, UsageError } from './terminal.ts'

const HELP = `Usage: sluice store backup TO [OPTIONS]
       sluice store restore FROM [OPTIONS]
       sluice store move --from STORE [--cancel] [OPTIONS]

backup writes the store of the configuration into the file TO: organizations
and keys, spend, levels of rate limits, the ledger with its sums, retained
responses, replies of idempotency keys, the audit and the secret. Gateways may
run meanwhile. Whoever has the file has all of that: keep it as safe as the
store. It is read again before it gets its name.

restore fills the store of the configuration, which must be empty, from such a
file, and reads it again. Stop all gateways before. Any engine takes the backup
of any other, and of an earlier release.

move carries everything from another store into that of the configuration.
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

const ACTIONS = ['backup', 'restore', 'move'] as const
type Action = (typeof ACTIONS)[number]

export const store: Verb = {
  summary: 'Makes a backup of the store, restores one, or moves all to another store: `store backup`.',
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
    const [given, ...files] = positionals
    const action = ACTIONS.find(each => each === given)
    if (action === undefined)
      throw new UsageError(given === undefined ? 'backup, restore or move?' : `there is no 'store ${given}'`)
    const file = action === 'move' ? undefined : fileNamed(action, files.shift())
    if (action === 'move' && values.from === undefined) throw new UsageError('--from names the store to leave')
    if (action !== 'move' && (values.from !== undefined || values.cancel))
      throw new UsageError(`--from and --cancel are options of 'store move'`)
    const from = values.from === undefined ? '' : storeOf(values.from)
    const { config } = await loadWithoutSecrets(configFile(values.config, files), terminal)
    const { url, max_memory: maxMemory } = config.store
    const progress = new Progress(process.stderr, 'rows')
    const stop = new AbortController()
    const onSignal = () => stop.abort()
    for (const signal of SIGNALS) process.once(signal, onSignal)
    const shared = {
      ...{ maxMemory, signal: stop.signal },
      tell: (text: string) => terminal.err(text),
      progress: (count: number) => progress.show(count),
    }
    try {
      if (file !== undefined) {
        const copied = await (action === 'backup' ? backup : restore)({ ...shared, store: url, file })
        progress.clear()
        tellCopied(action, copied, terminal)
      } else {
        const options = { ...shared, from, to: url, log: logTo(terminal) }
        if (values.cancel) for (const line of await cancelMove(options)) terminal.out(line)
        else tellMoved(await moveStore(options), terminal)
      }
      return 0
    } catch (error) {
      throw storeFailure(error)
    } finally {
      progress.clear()
      for (const signal of SIGNALS) process.off(signal, onSignal)
    }
  },
}

function fileNamed(action: Action, file: string | undefined): string {
  if (file !== undefined) return file
  throw new UsageError(`'store ${action}' needs the file ${action === 'backup' ? 'to write' : 'of the backup'}`)
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
  spend: 'counters of spend (day, month)',
  levels: 'levels of rate limits',
  sums: 'sums of the ledger by hour',
  tagged: 'sums of the values of tags by hour',
  ledger: 'rows of the ledger',
  credits: 'credits',
  billed: 'balances that rows were billed to',
  notices: 'notices of spend',
  idempotency: 'replies of idempotency keys',
  records: 'retained responses and their data',
}
/** What has no meaning in another store, and is never carried. */
const NEVER = [
  'slots, leases and reservations of running requests',
  'positions of `ledger ship`: its next run leaves out what its target has',
  'consumer groups of the stream sluice:ledger',
]

function tellCopied(action: Action, { store, file, content, read }: Copied, terminal: Terminal): void {
  const [what, from, to] = action === 'backup' ? ['Copied', store, file] : ['Restored', file, store]
  terminal.out(`${what} from ${from} to ${to}, and read again there:`)
  terminal.out(contentTable(content))
  if (read) terminal.out(momentOf(read))
  if (action === 'restore') terminal.out('Start the gateways.')
}

function momentOf({ first, last }: Moments): string {
  const time = (ms: number) => new Date(ms).toISOString()
  if (first === last) return `It is the state of ${time(first)}.`
  return `It was read from ${time(first)} to ${time(last)}; its table 'copied' says when each organization was.`
}

/** What of each kind there is, by count and sum; what there is nothing of is left out. */
function contentTable(content: Record<Name, Tally>): string {
  const rows = (Object.keys(NAMES) as Name[])
    .filter(name => content[name].count > 0)
    .map(name => [WORDS[name], String(content[name].count), sumOf(name, content[name])])
  return rows.length === 0 ? '  nothing but the secret' : columns(rows)
}

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
