/** `sluice statement`: the signed statement of a month of an organization, from the ledger itself. */
import { parseArgs } from 'node:util'
import { systemClock } from '../core/tools/clock.ts'
import { configFile } from './arguments.ts'
import type { Verb } from './main.ts'
import { loadWithoutSecrets, storeFailure } from './problems.ts'
import { Progress } from './progress.ts'
import { Failure, UsageError } from './terminal.ts'
import { openLedger } from './usage-report.ts'

const HELP = `Usage: sluice statement --org ORG --month 2026-11 [--key KEY] [FILE]

Writes the signed statement of a UTC month to standard output, as
GET /v1/receipts?month=2026-11 answers it to a key of the organization: a
receipt a line. It reads the ledger of FILE's store (default gateway.yaml), and
signs with the keys of its section receipts. \`sluice verify\` checks it.

  --key KEY       of one key alone
  --config FILE   the same as FILE
`

export const statement: Verb = {
  summary: 'Writes the signed statement of a month.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: {
        org: { type: 'string' },
        month: { type: 'string' },
        key: { type: 'string' },
        config: { type: 'string' },
      },
      allowPositionals: true,
    })
    const { org, month, key } = values
    if (org === undefined) throw new UsageError('--org names the organization')
    const { monthOf, statementLines } = await import('../plugins/shared/statement.ts')
    const { ReceiptKeys } = await import('../plugins/shared/receipt-keys.ts')
    const range = month === undefined ? null : monthOf(month)
    if (month === undefined || !range) throw new UsageError('--month takes a UTC month, such as 2026-11')
    const { config } = await loadWithoutSecrets(configFile(values.config, positionals), terminal)
    const { fault, folder, keys } = config.receipts
    if (fault !== null) throw new Failure(fault)
    if (folder === null && keys.length === 0)
      throw new Failure('the store and its keys are in the memory of the gateway')
    let signing: InstanceType<typeof ReceiptKeys>['signing']
    try {
      signing = new ReceiptKeys(config.receipts, systemClock).signing
    } catch (error) {
      throw new Failure((error as Error).message)
    }
    // The reader has closed the output, as `| head` does.
    process.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
      if (code === 'EPIPE') process.exit(0)
    })
    const made_at = new Date(systemClock.now()).toISOString()
    const head = { object: 'statement', version: 1, organization: org, key: key ?? null, month, made_at } as const
    const filter = { org, ...(key !== undefined && { key }), ...range }
    const rows = openLedger(config.store.url, filter, new Progress(process.stderr, 'rows'))
    try {
      for await (const lines of statementLines(head, rows, signing)) {
        terminal.out(lines.trimEnd())
        if (process.stdout.writableNeedDrain) await new Promise(resolve => process.stdout.once('drain', resolve))
      }
    } catch (error) {
      throw storeFailure(error)
    }
    return 0
  },
}
