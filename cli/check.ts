import { parseArgs } from 'node:util'
import { StoreUnavailable } from '../core/store.ts'
import { findServer, isLocal } from '../stores/local.ts'
import { configFile } from './arguments.ts'
import { dryRun } from './dry-run.ts'
import type { Verb } from './main.ts'
import { loadOrFail, tellWarnings } from './problems.ts'
import { Failure } from './terminal.ts'

const HELP = `Usage: sluice check [FILE] [--strict]

Checks a configuration (default gateway.yaml) the way start-up does: text,
references, plugin options, chains; every plugin is created. Nothing listens
and nothing is stored. All faults are told at once, each with its place and
its cure; warnings do not fail.

  --strict   a variable that is not set is a fault, as it is for \`start\`;
             without it a warning, so that providers' keys need not be here

Exit code: 0 it would start, 1 it would not, 2 called wrongly.
`

export const check: Verb = {
  summary: 'Checks a configuration.',
  help: HELP,
  async run(args, terminal) {
    const options = { config: { type: 'string' }, strict: { type: 'boolean' } } as const
    const { values, positionals } = parseArgs({ args, options, allowPositionals: true })
    const file = configFile(values.config, positionals)
    const { config, plugins, warnings: loaded } = await loadOrFail(file, !values.strict)
    const { chains, warnings: built, close } = await dryRun(config, plugins)
    await close()
    const warnings = [...loaded, ...built]
    tellWarnings(warnings, terminal)
    if (isLocal(config.store.url)) checkServer()
    const count = (n: number, noun: string) => `${n} ${noun}${n === 1 ? '' : 's'}`
    const parts = [
      count(chains.size, 'pipeline'),
      count(config.routes.length, 'route'),
      count(Object.keys(config.models).length, 'model'),
      count(Object.keys(config.organizations).length, 'organization'),
    ]
    terminal.out(
      `${file} is good: ${parts.join(', ')}${warnings.length > 0 ? `; ${count(warnings.length, 'warning')}` : ''}.`,
    )
    return 0
  },
}

function checkServer(): void {
  try {
    findServer()
  } catch (error) {
    if (error instanceof StoreUnavailable) throw new Failure(error.message)
    throw error
  }
}
