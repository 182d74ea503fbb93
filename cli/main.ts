/** `sluice VERB …`: runs the verb and gives its exit code: 0 success, 1 failure, 2 wrong arguments. */
import { AccountFault } from '../core/ports/accounts.ts'
import { Failure, fold, type Terminal, terminal, UsageError } from './terminal.ts'

export interface Verb {
  /** One line for the list of verbs. */
  summary: string
  /** What `--help` prints; the first line is the usage. Undefined: the verb answers --help itself. */
  help?: string
  /** @returns the exit code */
  run(args: string[], terminal: Terminal): Promise<number>
}

// A verb is imported when it is called: `sluice --help` must not load a gateway.
export const VERBS: Record<string, { summary: string; load(): Promise<Verb> }> = {
  start: { summary: 'Runs the gateway.', load: async () => (await import('./start.ts')).start },
  init: {
    summary: 'Writes a gateway.yaml for the providers you have.',
    load: async () => (await import('./init.ts')).init,
  },
  check: {
    summary: 'Checks a configuration: all of start-up, without listening.',
    load: async () => (await import('./check.ts')).check,
  },
  explain: {
    summary: "Shows each route's chain as each phase runs it, with slots.",
    load: async () => (await import('./explain.ts')).explain,
  },
  route: {
    summary: 'Shows what would become of a request, without sending it.',
    load: async () => (await import('./route.ts')).route,
  },
  list: { summary: 'Lists plugins, dialects and built-in plans.', load: async () => (await import('./list.ts')).list },
  try: {
    summary: 'Sends one request per surface to a running gateway.',
    load: async () => (await import('./try.ts')).tryGateway,
  },
  usage: {
    summary: 'Sums the ledger: who used what, and what it cost.',
    load: async () => (await import('./usage.ts')).usage,
  },
  statement: {
    summary: 'Writes the signed statement of a month.',
    load: async () => (await import('./statement.ts')).statement,
  },
  verify: {
    summary: 'Checks receipts and statements offline.',
    load: async () => (await import('./verify.ts')).verify,
  },
  receipts: {
    summary: 'Gives receipts a new key: `receipts rotate`.',
    load: async () => (await import('./receipts.ts')).receipts,
  },
  ledger: {
    summary: 'Ships the ledger to PostgreSQL or files: `ledger ship`.',
    load: async () => (await import('./ledger.ts')).ledger,
  },
  replay: {
    summary: 'Tries other plans and prices on the exchanges of a month.',
    load: async () => (await import('./replay.ts')).replay,
  },
  store: {
    summary: 'Makes a backup of the store, restores one, or moves all to another store: `store backup`.',
    load: async () => (await import('./store.ts')).store,
  },
  trace: {
    summary: 'Shows what became of one request, by its x-request-id.',
    load: async () => (await import('./trace.ts')).trace,
  },
  org: {
    summary: 'Makes, changes and imports organizations.',
    load: async () => (await import('./org.ts')).org,
  },
  models: {
    summary: 'Adds models from a catalogue, and says what moved since.',
    load: async () => (await import('./models.ts')).models,
  },
  key: { summary: 'Makes, lists, stages and revokes API keys.', load: async () => (await import('./key.ts')).key },
  audit: {
    summary: 'Shows who changed which account.',
    load: async () => (await import('./audit.ts')).audit,
  },
  'admin-token': {
    summary: 'Makes a token for the admin API.',
    load: async () => (await import('./admin-token.ts')).adminToken,
  },
  plugin: {
    summary: 'Starts a plugin of your own: `plugin new NAME`.',
    load: async () => (await import('./plugin-new.ts')).plugin,
  },
  simulate: {
    summary: 'Runs the built-in upstream alone.',
    load: async () => ({
      summary: '',
      run: async args => (await import('../providers/simulator/cli.ts')).runSimulate(args),
    }),
  },
  tokens: {
    summary: 'Counts o200k_base tokens of text or files.',
    load: async () => ({ summary: '', run: async args => (await import('../meter/cli.ts')).runTokens(args) }),
  },
}

const HELP = `Usage: sluice VERB [OPTIONS]

${Object.entries(VERBS)
  .map(([name, { summary }]) => `  ${name.padEnd(12)}${summary}`)
  .join('\n')}

  sluice VERB --help   tells more about one
`

export async function main(args: readonly string[], out: Terminal = terminal): Promise<number> {
  const [name, ...rest] = args
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    const verb = name === 'help' && rest[0] !== undefined ? rest[0] : undefined
    if (verb !== undefined) return main([verb, '--help'], out)
    out.out(HELP.trimEnd())
    return name === undefined ? 2 : 0
  }
  const entry = Object.hasOwn(VERBS, name) ? VERBS[name] : undefined
  if (!entry) {
    const { didYouMean } = await import('../config/suggest.ts')
    const near = didYouMean(name, Object.keys(VERBS)) || '.'
    out.err(`sluice: there is no verb '${name}'${near} \`sluice --help\` lists them.`)
    return 2
  }
  const verb = await entry.load()
  if (verb.help !== undefined && (rest.includes('--help') || rest.includes('-h'))) {
    out.out(verb.help.trimEnd())
    return 0
  }
  try {
    return await verb.run(rest, out)
  } catch (error) {
    // `parseArgs` of node:util reports unknown options with these codes.
    const misused =
      error instanceof UsageError || String((error as NodeJS.ErrnoException).code).startsWith('ERR_PARSE_ARGS')
    if (misused) {
      out.err(
        `sluice ${name}: ${await inOwnWords(error as NodeJS.ErrnoException, name, verb)}\n${verb.help?.split('\n', 1)[0] ?? ''}`.trimEnd(),
      )
      return 2
    }
    if (!(error instanceof Failure || error instanceof AccountFault)) throw error
    for (const line of error.message.split('\n')) out.err(out.columns === undefined ? line : fold(line, out.columns))
    return 1
  }
}

/** Node's message of an option that there is not advises how to pass it as a name, which nobody meant. */
async function inOwnWords(
  { code, message }: NodeJS.ErrnoException,
  name: string,
  { help = '' }: Verb,
): Promise<string> {
  const [, option] = (code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION' && /'(-[^']*)'/.exec(message)) || []
  if (option === undefined) return message
  const { didYouMean } = await import('../config/suggest.ts')
  const near = didYouMean(option, new Set(help.match(/--[a-z][a-z-]*/g)))
  return `there is no option '${option}'${near || `; \`sluice ${name} --help\` lists them`}`
}

if (process.argv[1] === import.meta.filename) {
  // The reader of the output has closed it, as `| head` does. That needs no stack trace, and a gateway must not stop
  // for it.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
  })
  process.exitCode = await main(process.argv.slice(2))
}
