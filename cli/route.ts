import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { type Dimension, isMoney } from '../core/canon/limits.ts'
import { configFile } from './arguments.ts'
import { Holders } from './holders.ts'
import type { Verb } from './main.ts'
import { loadOrFail, tellWarnings } from './problems.ts'
import { type RouteReport, routeReport, withModel } from './route-report.ts'
import { columns, Failure, UsageError } from './terminal.ts'

const HELP = `Usage: sluice route [FILE] --body BODY [--model M] [--surface S]

Shows what would become of a request, and sends nothing: which backend is
chosen and why others were passed, the request that would go upstream (secrets
redacted), the estimate, and the limits that would apply. Plugins that do not
declare that they may run dry are left out, and named. Health is a running
gateway's: here every backend counts as well; its admin listener knows better
(POST /route).

  --body BODY      file with the request's JSON body; - is standard input
  --model M        takes the place of the body's model
  --surface S      chat (default), responses or messages
  --org ID         whose request it is; default: the first with a key
  --key ID         which of its keys
  --json           the report as JSON
  --config FILE    the same as FILE
`

export const route: Verb = {
  summary: 'Shows what would become of a request.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: {
        config: { type: 'string' },
        body: { type: 'string' },
        model: { type: 'string' },
        surface: { type: 'string', default: 'chat' },
        org: { type: 'string' },
        key: { type: 'string' },
        json: { type: 'boolean', default: false },
      },
      allowPositionals: true,
    })
    if (values.body === undefined) throw new UsageError('name the request with --body FILE')
    const { surfaces } = await import('../surfaces/index.ts')
    if (!Object.hasOwn(surfaces, values.surface)) throw new UsageError(`there is no surface '${values.surface}'`)
    const file = configFile(values.config, positionals)
    const { config, plugins, warnings } = await loadOrFail(file, true)
    tellWarnings(warnings, terminal)
    if (values.org !== undefined && !Object.hasOwn(config.organizations, values.org)) {
      const holders = new Holders(file, config)
      const holder = await holders.find(values.org).finally(() => holders.close())
      if (holder) config.organizations[values.org] = holder.organization
    }
    const report = await routeReport(config, plugins, file, {
      surface: values.surface,
      body: bodyOf(values.body, values.model),
      organization: values.org,
      key: values.key,
    })
    terminal.out(values.json ? JSON.stringify(report, null, 2) : inWords(report))
    return report.refused ? 1 : 0
  },
}

function bodyOf(file: string, model: string | undefined): string {
  let text: string
  try {
    text = readFileSync(file === '-' ? 0 : file, 'utf8')
  } catch (error) {
    throw new Failure(`${file} can't be read: ${(error as NodeJS.ErrnoException).code}`)
  }
  return model === undefined ? text : withModel(text, model, file)
}

/** The report as text; exported for tests. */
export function inWords(report: RouteReport): string {
  const rows: string[][] = [['caller', `${report.organization}, key ${report.key}`]]
  if (report.model !== undefined) rows.push(['model', report.model])
  for (const [i, backend] of report.candidates.entries())
    rows.push([i === 0 ? 'chosen' : i === 1 ? 'then' : '', backend])
  for (const [i, { backend, because }] of report.passed.entries())
    rows.push([i === 0 ? 'passed' : '', `${backend}: ${because}`])
  if (report.estimate) {
    const { input, output, cost } = report.estimate
    rows.push(['estimate', `${input} tokens in, ${output} reserved for output, at most $${(cost / 1e9).toFixed(6)}`])
  }
  for (const [i, limit] of report.limits.entries()) {
    const amount = isMoney(limit.dimension as Dimension)
      ? `$${(limit.capacity / 1e9).toFixed(2)}`
      : String(limit.capacity)
    const per = limit.per === undefined ? '' : ` per ${limit.per}`
    rows.push([i === 0 ? 'limits' : '', `${limit.scope}: ${amount} ${limit.dimension}${per}`])
  }
  for (const [i, id] of (report.left_out ?? []).entries())
    rows.push([
      i === 0 ? 'left out' : '',
      `${id} did not look at the request: it does not declare that it sends nothing`,
    ])
  const parts = [columns(rows, 80, 0)]
  if (report.refused)
    parts.push('', `refused with ${report.refused.status}`, JSON.stringify(report.refused.body, null, 2))
  if (report.request) {
    const { url, headers, body } = report.request
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
    parts.push('', `POST ${url}`, ...lines, '', JSON.stringify(body, null, 2))
  }
  return parts.join('\n')
}
