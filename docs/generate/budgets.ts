/** The table of bounds in docs/security.md, from the registry of budgets (cli/budgets.ts). */
import { budgets } from '../../cli/budgets.ts'
import { SECTIONS } from '../../config/schema.ts'
import { type Amount, type Budget, type Refusal, refusal, type Setting } from '../../core/engine/budget.ts'
import type { Plugin } from '../../core/plugin.ts'

type AnySchema = Record<string, any>

/** @throws Error that names a setting which no schema has */
export function budgetTable(plugins: Iterable<Plugin>): string {
  const options = new Map([...plugins].map(({ name, config }) => [name, config as AnySchema | undefined]))

  function defaultOf({ setting, plugin }: Setting): unknown {
    const [section, ...path] = setting.split('.') as [string, ...string[]]
    let schema = plugin === undefined ? (SECTIONS[section] as AnySchema) : options.get(plugin)
    for (const member of plugin === undefined ? path : [setting]) schema = schema?.['properties']?.[member]
    if (schema?.['default'] === undefined) throw new Error(`no schema has a default for ${plugin ?? ''} ${setting}`)
    return schema['default']
  }

  function shown(amount: Amount): string {
    if (typeof amount === 'string') return amount
    if (typeof amount === 'number') return figure(amount)
    const of = amount.plugin === undefined ? '' : ` of \`${amount.plugin}\``
    return `\`${amount.setting}\`${of}: ${figure(defaultOf(amount))}`
  }
  const cell = (amounts: Budget['each']): string => ([amounts ?? []].flat() as Amount[]).map(shown).join(', ')

  /** `429 \`a_code\``. */
  const refused = (of: Refusal, where = ''): string => `${refusal(of).status} \`${of.code}\`${where}`

  const rows = budgets.map(({ name, bound, owner, each, all, refused: by, over, seen, figures }) => {
    const both = by?.each ? ', where all is full and it has its share' : ''
    const ends = [...(by?.each ? [refused(by.each)] : []), ...(by?.all ? [refused(by.all, both)] : []), over ?? []]
    const own = `\`sluice_budget_…{budget="${name}"}\``
    const metrics = [...(seen === undefined ? [] : [seen]), ...(figures ? [own] : [])]
    return `| ${bound} | ${[OWNERS[owner], cell(each)].filter(Boolean).join(': ')} | ${cell(all)} | ${ends.flat().join('; ')} | ${metrics.join('; ')} |`
  })
  return [
    '| bound | of each | of all together | who is over it gets | seen in |',
    '| --- | --- | --- | --- | --- |',
    ...rows,
    '',
  ].join('\n')
}

const OWNERS: Record<Budget['owner'], string> = {
  tenant: 'tenant',
  connection: 'connection',
  request: 'request',
  process: '',
}

/** `8,000`, `256 MiB`. */
function figure(value: unknown): string {
  if (typeof value === 'number') return value.toLocaleString('en-US')
  return String(value).replace(/^(\d+)([KMG]iB)$/, '$1 $2')
}
