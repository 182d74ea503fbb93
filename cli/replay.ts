/** `sluice replay`: the exchanges of a period against other plans and prices. */
import fs from 'node:fs'
import { parseArgs } from 'node:util'
import {
  NO_PROPOSAL,
  PROPOSED,
  type Proposal,
  type ProposalPart,
  type ReadProposal,
  readProposal,
  writtenOrganizations,
} from '../config/proposal.ts'
import type { GatewayConfig } from '../config/types.ts'
import { DAY, periodIndex, periodStart } from '../core/canon/limits.ts'
import { configFile } from './arguments.ts'
import { opened, openedIfThere } from './holders.ts'
import type { Verb } from './main.ts'
import { listing, loadWithoutSecrets, storeFailure, tellWarnings } from './problems.ts'
import { Progress } from './progress.ts'
import { Accounts } from './replay/accounts.ts'
import { Replay, type Replayed } from './replay/replay.ts'
import { asJson, asText, type Found, refusalLine } from './replay/report.ts'
import { orderedRows, type RowsFrom } from './replay/rows.ts'
import { Totals } from './replay/totals.ts'
import { Failure, type Terminal, UsageError } from './terminal.ts'
import { spanOf } from './usage-report.ts'

const HELP = `Usage: sluice replay [--plans FILE] [--prices FILE] [OPTIONS] [CONFIG]

Replays the exchanges in the ledger of CONFIG (default gateway.yaml) against
other plans and prices: revenue, cost and margin as they were and as they would
have been, and which exchanges the limiter would have refused, when, by what.
It changes nothing, and may run beside gateways.

  --plans FILE    plans and organizations, written as in gateway.yaml; each
                  takes the place of the one of its name
  --prices FILE   prices, by model, and costs, by backend (provider/model)
  --since WHEN --until WHEN   2026-11-01, 2026-11-01T12:00:00Z, or an age: 24h,
                  7d, 30m (default: the running UTC month)
  --month WHEN    a whole UTC month: 2026-11
  --rows PATH     takes the rows of a file or folder of \`sluice ledger ship\` or
                  \`sluice usage --rows\` instead of those of the store
  --refusals FILE writes each refused exchange as a line of JSON
  --json          for programs; amounts in nano-USD (1e-9 USD)
  --config FILE   the same as CONFIG
`

const TEXT = { type: 'string' } as const

export const replay: Verb = {
  summary: 'Tries other plans and prices on the exchanges of a month.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: {
        ...{ plans: TEXT, prices: TEXT, since: TEXT, until: TEXT, month: TEXT, rows: TEXT, refusals: TEXT },
        json: { type: 'boolean', default: false },
        config: TEXT,
      },
      allowPositionals: true,
    })
    const now = Date.now()
    const span = spanOf(values, now)
    const until = Math.min(span.until ?? now, now)
    if (until <= span.since) throw new UsageError('the period ends before it begins, or has not begun')
    const file = configFile(values.config, positionals)
    const { config } = await loadWithoutSecrets(file, terminal)
    const proposed = await readProposals(values, config, terminal)
    // Rows of files may be replayed where no gateway has run.
    const stored = await (values.rows === undefined ? opened : openedIfThere)(config.store.url, { readOnly: true })
    try {
      const start = startOf(span.since)
      const accounts = new Accounts({
        ...{ config, proposal: proposed.proposal, stored, start },
        written: await writtenOrganizations(file),
      })
      proposed.refuse(await accounts.faults())
      const rows: RowsFrom = values.rows === undefined ? { store: config.store.url } : { path: values.rows }
      const found = await replayed(
        rows,
        { since: span.since, until, start },
        config,
        accounts,
        proposed.proposal,
        values,
      )
      terminal.out(values.json ? JSON.stringify(asJson(found), null, 2) : asText(found))
      return 0
    } catch (error) {
      throw storeFailure(error)
    } finally {
      await stored?.close()
    }
  },
}

/**
 * From when rows fill the limits before the period begins, Unix ms: spend limits count from the first of the month, and
 * the slowest of the others are full again after a day.
 */
const startOf = (since: number): number => Math.min(periodStart('month', periodIndex('month', since)), since - DAY)

interface Proposed {
  proposal: Proposal
  /** @throws Failure with what is wrong with organizations, by id */
  refuse(faults: ReadonlyMap<string, string>): void
}

async function readProposals(
  values: { [Part in ProposalPart]?: string | undefined },
  config: GatewayConfig,
  terminal: Terminal,
): Promise<Proposed> {
  const read: { file: string; part: ProposalPart; found: ReadProposal }[] = []
  for (const part of Object.keys(PROPOSED) as ProposalPart[]) {
    const file = values[part]
    if (file !== undefined) read.push({ file, part, found: await readProposal(file, part, config) })
  }
  for (const { file, found } of read) if (found.errors.length > 0) throw new Failure(listing(file, found.errors))
  for (const { found } of read) tellWarnings(found.warnings, terminal)
  const of = (part: ProposalPart): Proposal => read.find(each => each.part === part)?.found ?? NO_PROPOSAL
  const [{ plans, organizations }, { prices, costs }] = [of('plans'), of('prices')]
  return {
    proposal: { plans, organizations, prices, costs },
    refuse(faults) {
      if (faults.size === 0) return
      const { file, found } = read.find(({ part }) => part === 'plans')!
      throw new Failure(
        listing(
          file,
          Array.from(faults, ([id, fault]) => found.tell(id, fault)),
        ),
      )
    },
  }
}

async function replayed(
  from: RowsFrom,
  { since, until, start }: { since: number; until: number; start: number },
  config: GatewayConfig,
  accounts: Accounts,
  { costs }: Proposal,
  { refusals }: { refusals?: string | undefined },
): Promise<Found> {
  const totals = new Totals()
  const lines = refusals === undefined ? undefined : new Lines(refusals)
  try {
    const replay = new Replay({
      ...{ config, accounts, costs, since },
      tell(replayed: Replayed) {
        totals.add(replayed)
        if (replayed.refusal) lines?.add(refusalLine(replayed.refusal))
      },
    })
    for await (const page of orderedRows(from, { since: start, until }, new Progress(process.stderr, 'rows'))) {
      await replay.add(page)
      lines?.write()
    }
    return { since, until, totals, untold: replay.untold }
  } finally {
    lines?.close()
  }
}

/** A file of lines, written a page at a time. */
class Lines {
  readonly #fd: number
  #text = ''

  /** @throws Failure when the file cannot be written */
  constructor(file: string) {
    try {
      this.#fd = fs.openSync(file, 'w', 0o600)
    } catch (error) {
      throw new Failure(`cannot write ${file}: ${(error as Error).message}`)
    }
  }

  add(line: string): void {
    this.#text += `${line}\n`
  }

  write(): void {
    if (this.#text !== '') fs.writeFileSync(this.#fd, this.#text)
    this.#text = ''
  }

  close(): void {
    this.write()
    fs.closeSync(this.#fd)
  }
}
