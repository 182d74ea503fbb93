/**
 * Plans and prices that are tried before they stand in gateway.yaml (`sluice replay`). A file of them is written like
 * gateway.yaml, and is read and checked by the same code. Its sections:
 *
 *   plans           as in gateway.yaml; each takes the place of the plan of its name, or is new
 *   organizations   by id, members as in gateway.yaml; each takes the place of the organization's own
 *   prices          by model, as its `price`
 *   costs           by backend (`provider/model`), as its `cost`
 */
import { readFile } from 'node:fs/promises'
import type { CostRates, Price } from '../core/canon/money.ts'
import { modelIds, noModel, readPlans } from './accounts.ts'
import { type RawPrice, readCost, readPrice, warnOfOtherRates } from './prices.ts'
import { Report } from './report.ts'
import { backendCost, modelPrice } from './schema.ts'
import { type ConfigError, type ConfigSource, readSource } from './source.ts'
import { didYouMean } from './suggest.ts'
import type { GatewayConfig, PlanConfig } from './types.ts'

/** By the option that names the file: the sections that are taken from it. */
export const PROPOSED = { plans: ['plans', 'organizations'], prices: ['prices', 'costs'] } as const
export type ProposalPart = keyof typeof PROPOSED

export interface Proposal {
  plans: Record<string, PlanConfig>
  /** By organization: the members that take the place of its own. */
  organizations: Record<string, Record<string, unknown>>
  /** By the models' own ids. */
  prices: Record<string, Price>
  /** By backend. */
  costs: Record<string, CostRates>
}

export interface ReadProposal extends Proposal {
  errors: ConfigError[]
  warnings: ConfigError[]
  /** Reports a fault of an organization that is found only where it is kept. */
  tell(organization: string, message: string): ConfigError
}

/** Nothing is proposed: accounts and prices are as they are. */
export const NO_PROPOSAL: Proposal = { plans: {}, organizations: {}, prices: {}, costs: {} }

type Options = Parameters<typeof readSource>[1]
const onDisk = (): Options => ({
  env: process.env,
  placeholders: true,
  readFile: path => readFile(path, 'utf8'),
})

/**
 * @param file its path
 * @param part what is taken of it
 * @param config what it is a change of
 */
export async function readProposal(file: string, part: ProposalPart, config: GatewayConfig): Promise<ReadProposal> {
  const found = structuredClone(NO_PROPOSAL)
  let source: ConfigSource
  try {
    source = await readSource(file, onDisk())
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException
    const message =
      code === 'ENOENT' ? `there is no such file; --${part} names one` : `cannot be read (${code ?? String(cause)})`
    const error = { file, line: 1, column: 1, message }
    return { ...found, errors: [error], warnings: [], tell: () => error }
  }
  const report = new Report(source)
  if (source.usable) readSections(part, config, found, report)
  return {
    ...found,
    errors: report.sorted(report.errors),
    warnings: report.sorted(report.warnings),
    tell: (organization, message) => ({ ...source.position(['organizations', organization], 'key'), message }),
  }
}

function readSections(part: ProposalPart, config: GatewayConfig, found: Proposal, report: Report): void {
  const { data } = report.source
  const known = Object.values(PROPOSED).flat() as string[]
  for (const section of Object.keys(data))
    if (!known.includes(section)) {
      const cure = didYouMean(section, known) || `; this file has ${known.join(', ')}: take it out`
      report.error([section], `there is no section '${section}' here${cure}`, 'key')
    }
  const wanted = PROPOSED[part]
  if (!wanted.some(section => Object.hasOwn(data, section)))
    report.error([], `it has neither ${wanted.join(' nor ')}, and --${part} takes nothing else`)
  const ids = modelIds(config.models, Object.keys(config.models))
  const mapping = (section: string) => {
    const value = (wanted as readonly string[]).includes(section) ? data[section] : undefined
    return value !== undefined && report.mapping(value, [section]) ? value : {}
  }
  const plans = mapping('plans')
  const read = readPlans(plans, ids, report)
  for (const name of Object.keys(plans)) if (read[name]) found.plans[name] = read[name]
  const names = [...Object.keys(config.plans), ...Object.keys(plans)]
  for (const [id, members] of Object.entries(mapping('organizations')))
    if (report.mapping(members, ['organizations', id])) {
      checkMembers(id, members, names, report)
      found.organizations[id] = members
    }
  readPrices(mapping('prices'), config, ids, found.prices, report)
  readCosts(mapping('costs'), config, found.costs, report)
}

/** What no replay can tell the effect of. Everything else is checked with the organization itself. */
const KEPT = ['keys', 'status', 'name', 'metadata']

function checkMembers(id: string, members: Record<string, unknown>, plans: readonly string[], report: Report): void {
  for (const member of Object.keys(members))
    if (KEPT.includes(member))
      report.error(['organizations', id, member], `${member} of an organization stays as it is; take it out`, 'key')
  const { plan, billing } = members
  if (billing === 'prepaid')
    report.error(['organizations', id, 'billing'], 'a balance is made of credits, and none are proposed; take it out')
  if (plan === undefined || plans.includes(String(plan))) return
  const cure = didYouMean(String(plan), plans) || `; plans: ${[...new Set(plans)].join(', ')}`
  report.error(['organizations', id, 'plan'], `there is no plan '${plan}'${cure}`)
}

function readPrices(
  raw: Record<string, unknown>,
  { models }: GatewayConfig,
  ids: ReadonlyMap<string, string>,
  prices: Record<string, Price>,
  report: Report,
): void {
  for (const [id, value] of Object.entries(raw)) {
    const path = ['prices', id]
    const canonical = ids.get(id)
    const checked = report.check(modelPrice, value, path, id)
    if (canonical === undefined) report.error(path, noModel(id, ids), 'key')
    else if (Object.hasOwn(prices, canonical))
      report.error(path, `the price of ${canonical} stands here twice, under an alias too; write it once`, 'key')
    else if (checked) {
      const embeds = models[canonical]!.serves === 'embeddings'
      if (embeds && checked.output) report.error([...path, 'output'], 'a model for embeddings writes no output')
      if (!embeds && checked.output === undefined)
        report.error(path, `the price of ${id} needs 'output', in USD per million tokens`, 'key')
      const price: RawPrice = { ...checked, output: checked.output ?? 0 }
      warnOfOtherRates(price, (at, message) => report.warn([...path, ...at], message))
      prices[canonical] = readPrice(price, undefined, (at, message) => report.error([...path, ...at], message))
    }
  }
}

function readCosts(
  raw: Record<string, unknown>,
  { models }: GatewayConfig,
  costs: Record<string, CostRates>,
  report: Report,
): void {
  const backends = new Map(Object.values(models).flatMap(model => model.backends.map(({ id }) => [id, model] as const)))
  for (const [id, value] of Object.entries(raw)) {
    const path = ['costs', id]
    const model = backends.get(id)
    const checked = report.check(backendCost, value, path, id)
    if (!model) {
      const cure = didYouMean(id, backends.keys()) || `; backends: ${[...backends.keys()].join(', ') || 'none'}`
      report.error(path, `there is no backend '${id}'${cure}`, 'key')
    } else if (checked) {
      if (model.serves === 'text' && checked.output === undefined)
        report.error(path, `the cost of ${id} needs 'output', in USD per million tokens`, 'key')
      costs[id] = readCost(checked, (at, message) => report.error([...path, ...at], message))
    }
  }
}

/** The organizations of gateway.yaml as they are written there. */
export interface WrittenOrganizations {
  /** The members of one of them, and what `readOrganization` has to know of the text that they come from. */
  members(id: string): { members: Record<string, unknown>; text: Pick<ConfigSource, 'fromEnvironment' | 'written'> }
}

/** @param file of a configuration that was loaded without a fault */
export async function writtenOrganizations(file: string): Promise<WrittenOrganizations> {
  const { data, fromEnvironment, written } = await readSource(file, onDisk())
  const organizations = (data['organizations'] ?? {}) as Record<string, Record<string, unknown>>
  return {
    members: id => ({
      members: organizations[id]!,
      text: {
        fromEnvironment: at => fromEnvironment(['organizations', id, ...at]),
        written: at => written(['organizations', id, ...at]),
      },
    }),
  }
}
