/** `sluice receipts rotate`: a new key for receipts. */
import { parseArgs } from 'node:util'
import { configFile } from './arguments.ts'
import type { Verb } from './main.ts'
import { loadWithoutSecrets } from './problems.ts'
import { Failure, UsageError } from './terminal.ts'

const HELP = `Usage: sluice receipts rotate [FILE]

Adds a key to the folder of receipt keys of FILE (default gateway.yaml). A
gateway that runs publishes it within a minute, and signs with it five minutes
later. What was signed before stays verifiable: the public halves of all keys
stay published.

  --config FILE   the same as FILE
`

export const receipts: Verb = {
  summary: 'Gives receipts a new key: `receipts rotate`.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: { config: { type: 'string' } },
      allowPositionals: true,
    })
    const [action, ...files] = positionals
    if (action !== 'rotate') throw new UsageError(action === undefined ? 'rotate?' : `there is no 'receipts ${action}'`)
    const { config } = await loadWithoutSecrets(configFile(values.config, files), terminal)
    const { folder, keys } = config.receipts
    if (folder === null)
      throw new Failure(
        keys.length > 0
          ? 'receipts.keys lists the keys: put a new one at its top (openssl genpkey -algorithm ed25519), and the public half of the former one behind it'
          : (config.receipts.fault ?? 'the store is in memory, and so are the keys: name a folder in receipts.folder'),
      )
    const { rotate } = await import('../plugins/shared/receipt-keys.ts')
    let made: ReturnType<typeof rotate>
    try {
      made = rotate(folder)
    } catch (error) {
      throw new Failure((error as Error).message)
    }
    terminal.out(`${made.added} is published within a minute, and signs five minutes later`)
    for (const id of made.retired)
      terminal.out(`${id} signs no more; its private key is gone, and its public key stays`)
    return 0
  },
}
