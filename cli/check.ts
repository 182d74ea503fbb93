import { parseArgs } from 'node:util'
import { configFile } from './arguments.ts'
import { dryRun } from './dry-run.ts'
import type { Verb } from './main.ts'
import { loadOrFail, tellWarnings } from './problems.ts'

const HELP = `Usage: sluice check [FILE]

Checks a configuration (default gateway.yaml) the way start-up does: text,
references, plugin options, chains; every plugin is created. Nothing listens
and nothing is stored. All faults are told at once, each with its place and
its cure; warnings do not fail.

Exit code: 0 it would start, 1 it would not, 2 called wrongly.
`

export const check: Verb = {
  summary: 'Checks a configuration.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({ args, options: { config: { type: 'string' } }, allowPositionals: true })
    const file = configFile(values.config, positionals)
    const { config, plugins, warnings } = await loadOrFail(file)
    const { chains, close } = await dryRun(config, plugins)
    await close()
    tellWarnings(warnings, terminal)
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
