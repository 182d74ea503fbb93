import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { organization as organizationSchema } from '../config/schema.ts'
import { readSource } from '../config/source.ts'
import {
  applied,
  balanceOf,
  checkStored,
  createStored,
  DELETE_GRACE,
  giveCredit,
  ID_RULE,
  membersOf,
  newSecret,
  ORGANIZATION_ID,
  type Value,
} from '../config/stored.ts'
import type { GatewayConfig, OrganizationConfig } from '../config/types.ts'
import { parseDuration, parseUsd } from '../config/units.ts'
import { formatUsd } from '../core/canon/money.ts'
import type { AccountStore } from '../core/ports/accounts.ts'
import { ModelAccess } from '../plugins/model-access/access.ts'
import { configFile } from './arguments.ts'
import { cliAuthor, Holders } from './holders.ts'
import { asWritten, limitRows, memberOf, shownOnce, table } from './key.ts'
import type { Verb } from './main.ts'
import { importOrganizations } from './org-import.ts'
import { loadWithoutSecrets } from './problems.ts'
import { columns, Failure, type Terminal, UsageError } from './terminal.ts'

const HELP = `Usage: sluice org ACTION [OPTIONS]

  org create ORG plan=PLAN [NAME=VALUE …] [--key]
      Makes an organization in the store; with --key also a first key, whose
      secret is shown once.
  org list [--after ID] [--most N]
      Lists organizations, those of the file first: N of them (default 100),
      or the next ones behind ID.
  org show ORG
      What it may use: plan, limits, models, keys.
  org set ORG NAME=VALUE …
      Changes members as in gateway.yaml: plan=tier2, models=[a, b],
      requests_per_minute=100. NAME= takes the member away.
  org credit ORG AMOUNT [--back] [--id ID] [--note TEXT]
      Adds USD to the balance of an organization with billing=prepaid; with
      --back takes some back. A second one with the same id changes nothing.
  org credits ORG
      Its credits, the latest first, and what is left of them.
  org disable ORG, org enable ORG
      No key of it works; its keys work again.
  org delete ORG [--grace 30d]
      Disables it at once. After the grace period it is removed for good, with
      its keys, levels and retained data; ledger rows and audit stay, and its
      id is not given again. Until then org enable takes it back.
  org import FILE [--csv] [--atomic] [--replace] [--plain-keys]
      Reads organizations with their keys into the store. FILE has one JSON
      object a line, or CSV (--csv, or a name that ends in .csv); - is standard
      input. Import it again to resume: what is there already is passed over.
        --atomic      nothing is written when a line is broken
        --replace     changes organizations that are there with other settings
        --plain-keys  accepts secrets; without it only their digests
  org export [--file]
      Writes the organizations of the store, or those of the file, as import
      takes them.

  --config FILE   the configuration (default gateway.yaml)
  --json          for programs

An organization stands in the configuration or in its store, never in both.
Running gateways notice a change within a second; nothing is restarted.
`

const ACTIONS = [
  'create',
  'list',
  'show',
  'set',
  'credit',
  'credits',
  'disable',
  'enable',
  'delete',
  'import',
  'export',
]
/** An export reads this many organizations at once. */
const PAGE = 500

export const org: Verb = {
  summary: 'Manages organizations.',
  help: HELP,
  async run(args, terminal) {
    const flag = { type: 'boolean', default: false } as const
    const { values, positionals } = parseArgs({
      args,
      options: {
        config: { type: 'string' },
        after: { type: 'string', default: '' },
        most: { type: 'string', default: '100' },
        back: flag,
        id: { type: 'string' },
        note: { type: 'string', default: '' },
        grace: { type: 'string', default: DELETE_GRACE },
        key: flag,
        json: flag,
        csv: flag,
        file: flag,
        atomic: flag,
        replace: flag,
        'plain-keys': flag,
      },
      allowPositionals: true,
    })
    const [action, name, ...rest] = positionals
    if (action === undefined || !ACTIONS.includes(action))
      throw new UsageError(action === undefined ? `${ACTIONS.join(', ')}?` : `there is no 'org ${action}'`)
    const most = Number(values.most)
    if (!Number.isSafeInteger(most) || most < 1) throw new UsageError('--most takes a whole number')
    const named = action !== 'list' && action !== 'export'
    if (named && name === undefined)
      throw new UsageError(`org ${action} needs ${action === 'import' ? 'a file' : 'an organization'}`)
    const extra = named ? rest : positionals.slice(1)
    if (extra.length > (action === 'credit' ? 1 : 0) && action !== 'create' && action !== 'set')
      throw new UsageError(`what is '${extra.at(-1)}'?`)
    const file = configFile(values.config)
    const { config } = await loadWithoutSecrets(file, terminal)
    const holders = new Holders(file, config)
    const tell = (text: string, json: object) => terminal.out(values.json ? JSON.stringify(json) : text)
    try {
      switch (action) {
        case 'create':
          await create(name!, rest.map(memberOf(organizationSchema)))
          return 0
        case 'list':
          await list(config, await holders.store(), { after: values.after, most, json: values.json }, terminal)
          return 0
        case 'export':
          await write(values.file ? await rawOrganizations(file) : stored(await holders.store()))
          return 0
        case 'import': {
          const { csv, atomic, replace, json } = values
          const options = {
            file: name!,
            csv: csv || name!.endsWith('.csv'),
            atomic,
            replace,
            plainKeys: values['plain-keys'],
            json,
          }
          return await importOrganizations(await holders.newStore(), config, options, terminal)
        }
      }
      if (action === 'credit') {
        await credit(name!, rest[0])
        return 0
      }
      const holder = await holders.find(name!)
      if (!holder) throw new Failure(`there is no organization '${name}', in ${file} or in its store`)
      const { organization, place, faults } = holder
      const balance = await shownBalance(organization)
      if (action === 'credits') {
        const credits = (await (await holders.store())?.credits(organization.id)) ?? []
        const rows = credits.map(({ id, amount, time, by, note }) => [
          new Date(time).toISOString().slice(0, 19) + 'Z',
          formatUsd(amount),
          id,
          by,
          note,
        ])
        terminal.out(
          values.json
            ? JSON.stringify(
                { credits: credits.map(({ amount, ...credit }) => ({ ...credit, amount_nano_usd: amount })), balance },
                null,
                2,
              )
            : [
                ...(rows.length > 0 ? [columns([['time', 'USD', 'id', 'by', 'note'], ...rows], 80, 0)] : []),
                leftOf(balance),
              ].join('\n'),
        )
        return 0
      }
      if (action === 'show') {
        for (const fault of faults) terminal.err(`warning: ${fault}`)
        terminal.out(
          values.json
            ? JSON.stringify({ place, ...organization, ...(balance && { balance }) }, asWritten, 2)
            : shown(organization, place, balance, unbounded(organization)),
        )
        return 0
      }
      if (action === 'delete') {
        const grace = parseDuration(values.grace)
        if (grace === null) throw new UsageError(`--grace takes a duration such as 30d, not ${values.grace}`)
        const leaves = Date.now() + grace
        await holder.change({ members: [['status', 'disabled']], leaves }, 'organization.delete')
        const at = new Date(leaves).toISOString()
        tell(`${name} is disabled, and removed after ${at}. Until then \`org enable\` takes it back.`, {
          ...{ organization: name, status: 'disabled', leaves: at },
        })
        return 0
      }
      const status = action === 'enable' ? 'active' : 'disabled'
      const members = action === 'set' ? rest.map(memberOf(organizationSchema)) : [['status', status] as const]
      if (members.length === 0) throw new UsageError('set what? NAME=VALUE')
      await holder.change({ members }, 'organization.change')
      tell(action === 'set' ? `${name} is changed.` : `${name} is ${status}.`, {
        organization: name,
        ...Object.fromEntries(members),
      })
      if (action === 'set') await warnOfUnbounded(name!)
      return 0
    } finally {
      await holders.close()
    }

    async function create(id: string, members: [string, Value][]): Promise<void> {
      if (!ORGANIZATION_ID.test(id)) throw new Failure(`'${id}' is no name: ${ID_RULE}`)
      if (Object.hasOwn(config.organizations, id)) throw new Failure(`${id} stands in ${file} already`)
      const author = cliAuthor()
      const { secret, made } = newSecret(author)
      const added = values.key ? [{ id: 'key_1', status: 'active' as const, ...made }] : []
      const act = { members, added, author, operation: 'organization.create' }
      // Before a database file is made.
      const { leaves: _, ...fresh } = applied({ settings: '{}', keys: [] }, act)
      checkStored({ id, version: 0, ...fresh }, config)
      await createStored(await holders.newStore(), config, id, act)
      const { plan } = Object.fromEntries(members)
      tell(`${id} is in the store, on plan ${plan}.`, {
        organization: id,
        plan,
        ...(values.key && { key: 'key_1', secret }),
      })
      if (values.key && !values.json) shownOnce(terminal, secret, 'key_1', id, 'store')
      await warnOfUnbounded(id)
    }

    function unbounded(organization: OrganizationConfig): string[] {
      return new ModelAccess(config).unbounded(organization).map(model => model.id)
    }

    /** Of a prepaid organization: names the models of which nobody knows what a request can cost. */
    async function warnOfUnbounded(id: string): Promise<void> {
      const holder = await holders.find(id)
      const models = holder ? unbounded(holder.organization) : []
      if (models.length > 0) terminal.err(`warning: ${unboundedWords(models)}`)
    }

    async function credit(id: string, text: string | undefined): Promise<void> {
      const usd = text === undefined ? null : parseUsd(text)
      if (usd === null) throw new UsageError('org credit needs an amount in USD, such as 25.00')
      const amount = values.back ? -usd : usd
      const store = await holders.newStore()
      const given = { id: values.id ?? `cli-${randomUUID()}`, amount, note: values.note }
      const { credit, created } = await giveCredit(store, config, id, { credit: given, author: cliAuthor() })
      const organization = (await holders.find(id))!.organization
      const balance = await shownBalance(organization)
      const done = created
        ? `${id} has a credit of ${formatUsd(amount)} USD, ${credit.id}.`
        : `${credit.id} was given before.`
      tell(`${done}\n${leftOf(balance)}`, { organization: id, id: credit.id, created, balance })
      await warnOfUnbounded(id)
    }

    /** Undefined for an organization of the file. */
    async function shownBalance({ id, billing, credited = 0 }: OrganizationConfig): Promise<Balance | undefined> {
      if (billing !== 'prepaid' && credited === 0) return undefined
      const billed = (await (await holders.store())?.billed(id)) ?? 0
      return balanceOf(credited, billed)
    }

    async function write(
      all: AsyncIterable<Record<string, unknown>> | Iterable<Record<string, unknown>>,
    ): Promise<void> {
      for await (const organization of all) terminal.out(JSON.stringify(organization))
    }
  },
}

async function* stored(store: AccountStore | null): AsyncGenerator<Record<string, unknown>> {
  let after = ''
  for (;;) {
    const page = (await store?.page(after, PAGE)) ?? []
    for (const organization of page) yield { id: organization.id, ...membersOf(organization) }
    if (page.length < PAGE) return
    after = page.at(-1)!.id
  }
}

/** The organizations of the file as they are written there. */
async function rawOrganizations(file: string): Promise<Record<string, unknown>[]> {
  const { data } = await readSource(file, {
    env: process.env,
    placeholders: true,
    readFile: path => readFile(path, 'utf8'),
  })
  const organizations = (data['organizations'] ?? {}) as Record<string, object>
  return Object.entries(organizations).map(([id, members]) => ({ id, ...members }))
}

interface Row {
  organization: string
  plan: unknown
  status: unknown
  keys: number
  place: 'file' | 'store'
}

async function list(
  { organizations }: GatewayConfig,
  store: AccountStore | null,
  { after, most, json }: { after: string; most: number; json: boolean },
  terminal: Terminal,
): Promise<void> {
  const live = (keys: readonly { status: string }[]) => keys.filter(({ status }) => status !== 'revoked').length
  const ofFile = Object.values(organizations)
  const last = ofFile.findIndex(({ id }) => id === after)
  const nextOfFile = after === '' || last !== -1 ? ofFile.slice(last + 1) : []
  const rows: Row[] = nextOfFile
    .slice(0, most)
    .map(({ id, plan, status, keys }) => ({ organization: id, plan, status, keys: live(keys), place: 'file' }))
  const left = most - rows.length
  const ofStore = store && left > 0 ? await store.page(last === -1 ? after : '', left) : []
  for (const { id, settings, keys } of ofStore) {
    const { plan, status = 'active' } = JSON.parse(settings)
    const all = keys.map(key => ({ status: 'active', ...JSON.parse(key.settings) }))
    rows.push({ organization: id, plan, status, keys: live(all), place: 'store' })
  }
  if (json) return terminal.out(JSON.stringify(rows, null, 2))
  const cells = rows.map(row => [row.organization, String(row.plan), String(row.status), String(row.keys), row.place])
  terminal.out(
    cells.length > 0
      ? columns([['organization', 'plan', 'status', 'keys', 'in the'], ...cells], 80, 0)
      : 'no organizations',
  )
  if (rows.length < most) return
  const stored = (await store?.count()) ?? 0
  if (nextOfFile.length > most || stored > 0)
    terminal.err(
      `The file has ${ofFile.length.toLocaleString('en')} and the store ${stored.toLocaleString('en')} in all. Go on: --after ${rows.at(-1)!.organization}`,
    )
}

type Balance = ReturnType<typeof balanceOf>

const leftOf = (balance: Balance | undefined): string =>
  balance
    ? `${formatUsd(balance.left_nano_usd)} of ${formatUsd(balance.credited_nano_usd)} USD are left.`
    : 'It has no balance: billing is not prepaid.'

/** Why a prepaid organization cannot use these models, and what to do; `sluice trace` says it, too. */
export function unboundedWords(models: readonly string[]): string {
  const [have, them] = models.length === 1 ? ['has', 'it'] : ['have', 'them']
  const names = models.join(', ')
  return `${names} ${have} no max_output_tokens, so a prepaid organization cannot use ${them}: set it in gateway.yaml`
}

/** @param unbounded models that it has by its rights, and that nobody bounds for its balance */
function shown(
  organization: OrganizationConfig,
  place: 'file' | 'store',
  balance: Balance | undefined,
  unbounded: readonly string[],
): string {
  const text = (value: unknown) => (Array.isArray(value) ? value.join(', ') : String(value))
  const { id, plan, status, billing, models, capabilities, streaming, name, metadata } = organization
  const without = unbounded.length > 0 ? ` but ${unbounded.join(', ')} (no max_output_tokens)` : ''
  const usable = `${text(models)}${without}`
  const rows = [
    ['organization', `${id}, in the ${place}`],
    ...(name === undefined ? [] : [['name', name]]),
    ...Object.entries(metadata ?? {}).map(([name, value]) => [`metadata.${name}`, value]),
    ...Object.entries({ plan, status, billing, models: usable, capabilities, streaming }).map(([k, v]) => [k, text(v)]),
    ...(balance ? [['balance', leftOf(balance)]] : []),
    ...limitRows(organization.limits),
    ...limitRows(organization.model_limits),
    ...limitRows(organization.user_limits ?? {}, 'each user: '),
    ...(organization.raises ?? [])
      .filter(({ until }) => until > Date.now())
      .flatMap(({ until, limits, model_limits }) =>
        limitRows({ ...limits, ...model_limits }, `until ${new Date(until).toISOString().slice(0, 19)}Z: `),
      ),
  ]
  return `${columns(rows, 80, 0)}\n\n${table([organization])}`
}
