/** `sluice usage`: finds the store in the configuration; cli/usage-report.ts does the rest. */

import { configFile } from './arguments.ts'
import type { Verb } from './main.ts'
import { loadWithoutSecrets } from './problems.ts'
import { UsageError } from './terminal.ts'
import { runUsage } from './usage-report.ts'

export const usage: Verb = {
  summary: 'Sums the ledger: who used what, and what it cost.',
  async run(args, terminal) {
    const named = args.some(arg => arg === '--store' || arg.startsWith('--store='))
    if (named || args.includes('--help') || args.includes('-h')) return runUsage(args)
    const { config, rest } = withoutConfig(args)
    const loaded = await loadWithoutSecrets(configFile(config), terminal)
    return runUsage([...rest, '--store', loaded.config.store.url])
  },
}

/** Takes `--config FILE` or `--config=FILE` out of the arguments. */
function withoutConfig(args: readonly string[]): { config: string | undefined; rest: string[] } {
  const rest: string[] = []
  let config: string | undefined
  for (let i = 0; i < args.length; i++) {
    const arg = args[i]!
    if (arg.startsWith('--config=')) config = arg.slice('--config='.length)
    else if (arg === '--config') {
      config = args[++i]
      if (config === undefined) throw new UsageError('--config needs a file')
    } else rest.push(arg)
  }
  return { config, rest }
}
