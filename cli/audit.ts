import { parseArgs } from 'node:util'
import type { AuditEntry } from '../core/ports/accounts.ts'
import { configFile } from './arguments.ts'
import { Holders } from './holders.ts'
import type { Verb } from './main.ts'
import { loadWithoutSecrets } from './problems.ts'
import { columns, UsageError } from './terminal.ts'

const HELP = `Usage: sluice audit [--org ORG] [--most N] [--before ID] [OPTIONS]

Who changed which organization or key of the store, the latest first
(default 100 entries).

  --before ID     goes on after the entry where an answer ended
  --config FILE   the configuration (default gateway.yaml)
  --json          for programs: with every member as it was and as it is
`

/** One page of the store has at most this many entries. */
const MOST = 1000

export const audit: Verb = {
  summary: 'Shows who changed which account.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: {
        config: { type: 'string' },
        org: { type: 'string' },
        most: { type: 'string', default: '100' },
        before: { type: 'string', default: '' },
        json: { type: 'boolean', default: false },
      },
      allowPositionals: true,
    })
    if (positionals.length > 0) throw new UsageError(`what is '${positionals[0]}'?`)
    const most = Number(values.most)
    if (!Number.isSafeInteger(most) || most < 1 || most > MOST)
      throw new UsageError(`--most takes a whole number up to ${MOST}`)
    if (!/^(\d{1,15}(-\d{1,15})?)?$/.test(values.before)) throw new UsageError('--before takes the id of an entry')
    const file = configFile(values.config)
    const { config } = await loadWithoutSecrets(file, terminal)
    const holders = new Holders(file, config)
    try {
      const store = await holders.store()
      const entries: AuditEntry[] = []
      let next: string | null = store ? values.before : null
      while (store && next !== null && entries.length < most) {
        const page = await store.audit({ organization: values.org, before: next, most: most - entries.length })
        entries.push(...page.entries)
        next = page.next
      }
      if (values.json) terminal.out(JSON.stringify({ entries, next }, null, 2))
      else if (entries.length === 0) terminal.out('no entries')
      else terminal.out(columns([['time', 'who', 'what', 'organization'], ...entries.map(row)], 80, 0))
      if (!values.json && next !== null) terminal.err(`Go on: --before ${next}`)
      return 0
    } finally {
      await holders.close()
    }
  },
}

const row = ({ time, by, address, operation, organization, key }: AuditEntry): string[] => [
  `${new Date(time).toISOString().slice(0, 19)}Z`,
  address === '' ? by : `${by} ${address}`,
  operation,
  key === '' ? organization : `${organization} ${key}`,
]
