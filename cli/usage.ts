/** `sluice usage`: finds the store in the configuration; cli/usage-report.ts does the rest. */

import { configFile } from './arguments.ts'
import type { Verb } from './main.ts'
import { loadWithoutSecrets } from './problems.ts'
import { runUsage } from './usage-report.ts'

export const usage: Verb = {
  summary: 'Sums the ledger: who used what, and what it cost.',
  run(args, terminal) {
    // The reader has closed the output, as `| head` does: the rest of the ledger need not be read.
    process.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
      if (code === 'EPIPE') process.exit(0)
    })
    return runUsage(args, undefined, async (option, positionals) => {
      const { config } = await loadWithoutSecrets(configFile(option, positionals), terminal)
      return config.store.url
    })
  },
}
