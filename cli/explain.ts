import { parseArgs } from 'node:util'
import type { GatewayConfig } from '../config/types.ts'
import { type Chain, idleLinks, type Phase, waived } from '../core/engine/chain.ts'
import { configFile } from './arguments.ts'
import { dryRun } from './dry-run.ts'
import type { Verb } from './main.ts'
import { loadOrFail, tellWarnings } from './problems.ts'
import { columns, Failure } from './terminal.ts'

const HELP = `Usage: sluice explain [FILE] [--pipeline NAME]

Shows each route's chain as each phase runs it: the request on its way down,
then head, events and end of the response on their way up and out, then
settlement. Beside each plugin stand the slots it needs and fills.

  --pipeline NAME   only this one
  --config FILE     the same as FILE
`

export const explain: Verb = {
  summary: 'Shows chains.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: { config: { type: 'string' }, pipeline: { type: 'string' } },
      allowPositionals: true,
    })
    const file = configFile(values.config, positionals)
    const { config, plugins, warnings } = await loadOrFail(file, true)
    const wanted = values.pipeline
    if (wanted !== undefined && !config.pipelines[wanted]) {
      throw new Failure(`${file} has no pipeline '${wanted}'; it has ${Object.keys(config.pipelines).join(', ')}`)
    }
    const { chains, warnings: built, close } = await dryRun(config, plugins)
    try {
      tellWarnings([...warnings, ...built], terminal)
      const shown = [...chains].filter(([name]) => wanted === undefined || name === wanted)
      terminal.out(shown.map(([name, chain]) => describe(name, chain, config)).join('\n\n'))
      return 0
    } finally {
      await close()
    }
  },
}

/** One chain as text; exported for tests. */
export function describe(name: string, chain: Chain, config: GatewayConfig): string {
  const parts = [`pipeline ${name}`]
  const routes = config.routes.filter(route => route.pipeline === name)
  if (routes.length > 0)
    parts.push(
      columns(routes.map(r => [`${r.method} ${r.path}`, r.surface ? `surface ${r.surface}` : 'bytes as they are'])),
    )

  const terminal = chain.links[chain.terminal]!
  const open = waived(chain).map(({ waiver, without }) => [waiver, `${terminal.id} ${without}`])
  if (open.length > 0) parts.push(columns(open, 80))

  const rows: string[][] = []
  const limits = chain.body
  for (const link of chain.links.slice(0, chain.terminal)) {
    const waits = chain.steps.some((step, i) => step.kind === 'body' && chain.steps[i + 1]?.link === link)
    if (waits)
      rows.push([
        '·',
        '(body)',
        `waits for the whole body${limits ? `, at most ${limits.maxBytes} bytes in ${limits.timeoutMs} ms` : ''}`,
      ])
    const facts = [config.pipelines[name]![link.index]?.implied ? 'implied by version 1' : '', slots(chain, link.index)]
    rows.push([String(link.index + 1), link.id, facts.filter(Boolean).join('; ')])
  }
  rows.push([
    String(terminal.index + 1),
    terminal.id,
    ['answers', slots(chain, terminal.index)].filter(Boolean).join('; '),
  ])
  parts.push('', 'request, down', columns(rows, 80, 2))

  const below = chain.links.slice(chain.terminal + 1)
  if (below.length > 0) {
    parts.push('', 'below the terminal: every reply, refusals included')
    parts.push(
      columns(
        below.map(link => [String(link.index + 1), link.id, slots(chain, link.index)]),
        80,
        2,
      ),
    )
  }

  const phase = (label: string, { links }: Phase<unknown>) => [label, links.map(link => link.id).join(' → ') || '–']
  parts.push('', 'response, up and then out')
  parts.push(
    columns([
      phase('head', chain.head),
      phase('each event', chain.events),
      ...(chain.chunks.links.length > 0 ? [phase('each chunk', chain.chunks)] : []),
      phase('end', chain.ends),
      phase('on error', chain.errors),
      phase('settled', chain.settles),
    ]),
  )
  return parts.join('\n')
}

function slots(chain: Chain, index: number): string {
  const link = chain.links[index]!
  const { plugin, skipFailures } = link
  const names = (list: readonly { name: string }[] | undefined) => list?.map(slot => slot.name).join(', ')
  const facts = [
    plugin.needs?.length ? `needs ${names(plugin.needs)}` : '',
    plugin.provides?.length ? `fills ${names(plugin.provides)}` : '',
    plugin.mayProvide?.length ? `may fill ${names(plugin.mayProvide)}` : '',
    plugin.rewrites?.length ? `rewrites ${names(plugin.rewrites)}` : '',
    plugin.needsLate?.length ? `needs late ${names(plugin.needsLate)}` : '',
    plugin.providesLate?.length ? `fills late ${names(plugin.providesLate)}` : '',
    plugin.reads?.length ? `reads ${names(plugin.reads)}` : '',
    skipFailures ? 'skipped when it fails' : '',
    idleLinks(chain).includes(link) ? 'does nothing here: none of its hooks can run' : '',
  ]
  return facts.filter(Boolean).join('; ')
}
