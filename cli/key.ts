import { parseArgs } from 'node:util'
import { parse } from 'yaml'
import { DEMO_KEY_DIGEST } from '../config/accounts.ts'
import { key as keySchema, LIMITS, type organization as organizationSchema } from '../config/schema.ts'
import { type Edit, handedOn, MADE_WITH_KEY, newSecret, rotation, setMember, type Value } from '../config/stored.ts'
import { didYouMean } from '../config/suggest.ts'
import type { GatewayConfig, KeyConfig, OrganizationConfig } from '../config/types.ts'
import { parseDuration } from '../config/units.ts'
import { isUsd } from '../core/canon/limits.ts'
import { AccountFault } from '../core/ports/accounts.ts'
import { LAST_USE_BACK_MS } from '../core/ports/store.ts'
import { configFile, DEFAULT_CONFIG, ownCommand, shellWord } from './arguments.ts'
import { cliAuthor, type Holder, Holders } from './holders.ts'
import type { Verb } from './main.ts'
import { loadWithoutSecrets } from './problems.ts'
import { columns, Failure, type Terminal, UsageError } from './terminal.ts'

const HELP = `Usage: sluice key ACTION [OPTIONS]

  key new ORGANIZATION [NAME=VALUE …] [--id ID] [--staged]
      Makes a key and keeps its digest. The secret is shown once and kept
      nowhere.
  key list [ORGANIZATION]
      Lists keys. Without an organization: those of the file.
  key show ORGANIZATION ID
      What it may use, who made it, and when it was last used.
  key set ORGANIZATION ID NAME=VALUE …
      Changes members as in gateway.yaml: label="CI", models=[a, b],
      requests_per_minute=10, expires=2027-01-31T00:00:00Z. NAME= takes the
      member away.
  key rotate ORGANIZATION ID [--grace 24h] [--id NEW]
      Makes a replacement for ID with its label, rights and limits, and lets ID
      end after the grace period.
  key stage ORGANIZATION ID
      Makes such a replacement for ID: both work until ID is revoked.
  key activate ORGANIZATION ID
      A staged key becomes the active one.
  key revoke ORGANIZATION ID
      The key stops working; running gateways notice by themselves.
  key delete ORGANIZATION ID
      Revokes the key and takes it out of all lists, for good. The store gives
      its id to no other key.

  --config FILE   the configuration (default gateway.yaml)
  --json          for programs

An organization stands in the configuration or in its store, and its keys
stand beside it. The YAML file is edited in place: comments and layout stay.
An edit that would not load is not written.
`

const ACTIONS = ['new', 'list', 'show', 'set', 'rotate', 'stage', 'activate', 'revoke', 'delete']

export const key: Verb = {
  summary: 'Manages API keys.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: {
        config: { type: 'string' },
        id: { type: 'string' },
        grace: { type: 'string', default: '24h' },
        staged: { type: 'boolean' },
        json: { type: 'boolean' },
      },
      allowPositionals: true,
    })
    const [action, organizationId, ...rest] = positionals
    const keyId = action === 'new' || action === 'list' ? undefined : rest.shift()
    if (action === 'new' && rest[0] !== undefined && !rest[0].includes('='))
      throw new UsageError('name the key with --id')
    if (rest.length > 0 && action !== 'new' && action !== 'set') throw new UsageError(`what is '${rest[0]}'?`)
    const file = configFile(values.config)
    const { config } = await loadWithoutSecrets(file, terminal)
    const holders = new Holders(file, config)
    try {
      return await run()
    } finally {
      await holders.close()
    }

    async function run(): Promise<number> {
      if (action === undefined || !ACTIONS.includes(action)) {
        const all = `${ACTIONS.slice(0, -1).join(', ')} or ${ACTIONS.at(-1)}`
        throw new UsageError(action === undefined ? `${all}?` : `there is no 'key ${action}'`)
      }
      if (action === 'list') {
        const found = organizationId === undefined ? undefined : await find(holders, config, organizationId)
        const organizations = found ? [found.organization] : Object.values(config.organizations)
        terminal.out(values.json ? JSON.stringify(organizations.flatMap(rowsOf), asWritten, 2) : table(organizations))
        return 0
      }
      if (organizationId === undefined)
        throw new UsageError(`key ${action} needs an organization: ${Object.keys(config.organizations).join(', ')}`)
      const grace = parseDuration(values.grace)
      if (grace === null) throw new UsageError(`--grace takes a duration such as 24h, not ${values.grace}`)
      const holder = await find(holders, config, organizationId)
      const { organization } = holder

      if (action === 'new') {
        const status = values.staged ? 'staged' : 'active'
        const own = unwritten(rest.map(memberOf(keySchema)))
        const { id, secret } = await addSecret(holder, values.id, 'key', { ...own, status }, 'key.create')
        tellSecret(secret, id, holder)
        return 0
      }
      if (keyId === undefined)
        throw new UsageError(
          `key ${action} needs a key: ${organization.keys.map(k => k.id).join(', ') || 'there is none'}`,
        )
      const existing = organization.keys.find(k => k.id === keyId)
      if (!existing)
        throw new Failure(
          `${organizationId} has no key '${keyId}'; it has ${organization.keys.map(k => k.id).join(', ') || 'none'}`,
        )
      if (action === 'show') {
        const last = (await holders.lastUses(organizationId, [keyId])).get(keyId)
        const row = { ...rowsOf({ ...organization, keys: [existing] })[0]!, last_used: last ?? null }
        terminal.out(values.json ? JSON.stringify(row, asWritten, 2) : shown(row))
        return 0
      }
      if (action === 'stage' || action === 'rotate') {
        if (existing.status === 'revoked') throw new Failure(`${keyId} is revoked; make a new key instead`)
        const base = keyId.replace(/_\d+$/, '')
        const own = handedOn(holder.written(keyId))
        if (action === 'stage') {
          const { id, secret } = await addSecret(holder, values.id, base, { ...own, status: 'staged' }, 'key.stage')
          tellSecret(secret, id, holder)
          const command = `${ownCommand()} key`
          const where = file === DEFAULT_CONFIG ? '' : ` --config ${shellWord(file)}`
          terminal.err(
            `When clients use it: ${command} revoke ${organizationId} ${keyId}${where}, then ${command} activate ${organizationId} ${id}${where}`,
          )
          return 0
        }
        const { expires, keys } = rotation(organization.keys, keyId, grace)
        const status = 'active' as const
        const { id, secret } = await addSecret(holder, values.id, base, { ...own, status }, 'key.rotate', keys)
        tellSecret(secret, id, holder, { replaces: keyId, expires })
        if (!values.json) terminal.err(`${keyId} works until ${expires}.`)
        return 0
      }
      const tell = (words: string, json: object) =>
        terminal.out(values.json ? JSON.stringify({ organization: organizationId, key: keyId, ...json }) : words)
      if (action === 'set') {
        const members = rest.map(memberOf(keySchema))
        if (members.length === 0) throw new UsageError('set what? NAME=VALUE')
        unwritten(members)
        await holder.change({ keys: [{ id: keyId, members }] }, 'key.change', keyId)
        tell(`${keyId} of ${organizationId} is changed.`, Object.fromEntries(members))
        return 0
      }
      if (action === 'delete') {
        await holder.change({ removed: [keyId] }, 'key.delete', keyId)
        tell(`${keyId} of ${organizationId} is deleted.`, { deleted: true })
        return 0
      }
      const status = action === 'revoke' ? 'revoked' : 'active'
      if (existing.status === status) throw new Failure(`${keyId} is already ${status}`)
      if (existing.status === 'revoked') throw new Failure(`${keyId} is revoked, and stays so; make a new key instead`)
      await holder.change({ keys: [{ id: keyId, members: [['status', status]] }] }, `key.${action}`, keyId)
      tell(`${keyId} of ${organizationId} is ${status}.`, { status })
      return 0
    }

    function tellSecret(secret: string, id: string, { place, organization }: Holder, more: object = {}): void {
      if (values.json) terminal.out(JSON.stringify({ organization: organization.id, key: id, secret, ...more }))
      else shownOnce(terminal, secret, id, organization.id, place)
    }
  },
}

/**
 * Reads `NAME=VALUE` as a member of an organization or of a key, and its value; the name of a limit stands for itself.
 * @returns a function that throws a Failure for a name of neither a member nor a limit
 */
export const memberOf =
  ({ properties }: typeof organizationSchema | typeof keySchema) =>
  (text: string): [string, Value] => {
    const [, name, value] = /^([\w.:/-]+)=(.*)$/s.exec(text) ?? []
    if (name === undefined) throw new UsageError(`${text} is not NAME=VALUE`)
    const [first = ''] = name.split('.')
    const members = Object.keys(properties as object)
    if (!members.includes(first) && !Object.hasOwn(LIMITS, name)) {
      const limits = Object.keys(LIMITS)
      const known = members.filter(one => one !== 'limits')
      const cure =
        didYouMean(name, [...known, ...limits]) || `; it takes ${known.join(', ')}, and the limits ${limits.join(', ')}`
      throw new Failure(`unknown key '${name}'${cure}\nNothing was changed.`)
    }
    return [Object.hasOwn(LIMITS, name) ? `limits.${name}` : name, parse(value!) ?? null]
  }

/**
 * The members of a key as a mapping.
 * @throws UsageError for a member that has a command of its own, or that is made with the key
 */
function unwritten(members: readonly [string, Value][]): Record<string, unknown> {
  for (const [name] of members) {
    if (name === 'status') throw new UsageError('status is changed by key activate and key revoke')
    if (MADE_WITH_KEY.some(made => made === name)) throw new UsageError(`${name} is made with the key, and stays`)
  }
  const own: Record<string, any> = {}
  for (const [name, value] of members) setMember(own, name, value)
  return own
}

/** Shows a new secret: alone on standard output, so that a script can take it. */
export function shownOnce(terminal: Terminal, secret: string, id: string, of: string, place: Holder['place']): void {
  terminal.out(secret)
  terminal.err(`Key ${id} of ${of} is in the ${place}. Its secret is shown once, above: keep it now.`)
}

async function find(holders: Holders, config: GatewayConfig, id: string): Promise<Holder> {
  const holder = await holders.find(id)
  if (!holder)
    throw new Failure(
      `there is no organization '${id}'; there is ${Object.keys(config.organizations).join(', ') || 'none'}`,
    )
  return holder
}

/**
 * Makes a key, adds it to its organization, and changes others in the same step.
 * @param wanted its id; undefined: the first that is free and was never given: `key_1`, or `base` with a number
 */
async function addSecret(
  holder: Holder,
  wanted: string | undefined,
  base: string,
  key: { status: KeyConfig['status'] } & Record<string, unknown>,
  operation: string,
  keys: Edit['keys'] = [],
): Promise<{ id: string; secret: string }> {
  const taken = new Set(holder.organization.keys.map(({ id }) => id))
  if (wanted !== undefined && taken.has(wanted))
    throw new Failure(`${holder.organization.id} has a key ${wanted} already; name another with --id`)
  const { secret, made } = newSecret(cliAuthor())
  for (let n = base === 'key' ? 1 : 2; ; n++) {
    const id = wanted ?? `${base}_${n}`
    if (wanted === undefined && taken.has(id)) continue
    try {
      await holder.change({ added: [{ id, ...made, ...key }], keys }, operation, id)
      return { id, secret }
    } catch (error) {
      // It was deleted. More than a few in a row are not looked for one by one.
      const next = wanted === undefined && n < MOST_TRIED && error instanceof AccountFault && error.why === 'gone'
      if (!next) throw error
    }
  }
}
const MOST_TRIED = 200

function rowsOf({ id: organization, keys }: OrganizationConfig) {
  return keys.map(({ id, ...key }) => ({ organization, key: id, ...key }))
}

/** For JSON: amounts and times as in gateway.yaml, instead of as they are computed with. */
export function asWritten(name: string, value: unknown): unknown {
  if (typeof value !== 'number') return value
  return isUsd(name) ? value / 1e9 : TIMES.includes(name) ? new Date(value).toISOString() : value
}
const TIMES = ['expires', 'created', 'last_used', 'until']

/** Limits as rows of a table, those of single models with the model in front. */
export function limitRows(all: object, base = ''): string[][] {
  return Object.entries(all).flatMap(([name, value]) => {
    if (value === null) return []
    if (typeof value === 'object') return limitRows(value, `${base}${name}: `)
    return [[`${base}${name}`, isUsd(name) ? (value / 1e9).toFixed(2) : String(value)]]
  })
}

const listed = (value: unknown) => (Array.isArray(value) ? value.join(', ') || 'none' : String(value))

function shown(row: ReturnType<typeof rowsOf>[number] & { last_used: number | null }): string {
  const { organization, key, sha256, hint, limits, model_limits, user_limits, last_used, expires, created, ...rest } =
    row
  const young = created !== undefined && created > Date.now() - LAST_USE_BACK_MS
  const hour = last_used !== null && `in the hour from ${new Date(last_used).toISOString().slice(0, 16)}Z`
  const rows = [
    ['key', `${key} of ${organization}`],
    ['secret', hint === undefined ? 'not known' : `ends in ${hint}`],
    ['sha256', sha256],
    ...Object.entries(rest).map(([name, value]) => [name, listed(value)]),
    ...Object.entries({ created, expires }).flatMap(([name, time]) =>
      time == null ? [] : [[name, new Date(time).toISOString()]],
    ),
    ['last used', hour || (young ? 'never' : 'not within 400 days')],
    ...limitRows(limits),
    ...limitRows(model_limits),
    ...limitRows(user_limits ?? {}, 'each user: '),
  ]
  return columns(rows, 80, 0)
}

export function table(organizations: readonly OrganizationConfig[]): string {
  const rows = organizations
    .flatMap(rowsOf)
    .map(row => [
      row.organization,
      row.key,
      row.status,
      row.hint === undefined ? `${row.sha256.slice(0, 8)}…` : `…${row.hint}`,
      [
        row.label ?? '',
        row.models === 'all' ? '' : row.models.join(', '),
        row.sha256 === DEMO_KEY_DIGEST ? 'sk-demo' : '',
        row.expires === null ? '' : `until ${new Date(row.expires).toISOString()}`,
      ]
        .filter(Boolean)
        .join('; '),
    ])
  return rows.length > 0 ? columns([['organization', 'key', 'status', 'secret', 'for'], ...rows], 80, 0) : 'no keys'
}
