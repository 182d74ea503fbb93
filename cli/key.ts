import { parseArgs } from 'node:util'
import { DEMO_KEY_DIGEST } from '../config/accounts.ts'
import { type Edit, newSecret, rotation } from '../config/stored.ts'
import type { GatewayConfig, KeyConfig, OrganizationConfig } from '../config/types.ts'
import { parseDuration } from '../config/units.ts'
import { configFile, DEFAULT_CONFIG, ownCommand, shellWord } from './arguments.ts'
import { type Holder, Holders } from './holders.ts'
import type { Verb } from './main.ts'
import { loadWithoutSecrets } from './problems.ts'
import { columns, Failure, type Terminal, UsageError } from './terminal.ts'

const HELP = `Usage: sluice key new|list|rotate|stage|activate|revoke [OPTIONS]

  key new ORGANIZATION [--id ID] [--staged]
      Makes a key and keeps its digest. The secret is shown once and kept
      nowhere.
  key list [ORGANIZATION]
      Lists keys; digests in short. Without an organization: those of the file.
  key rotate ORGANIZATION ID [--grace 24h] [--id NEW]
      Makes a replacement for ID, and lets ID end after the grace period.
  key stage ORGANIZATION ID
      Makes a replacement for ID: both work until ID is revoked.
  key activate ORGANIZATION ID
      A staged key becomes the active one.
  key revoke ORGANIZATION ID
      The key stops working; running gateways notice by themselves.

  --config FILE   the configuration (default gateway.yaml)
  --json          for programs

An organization stands in the configuration or in its store, and its keys
stand beside it. The YAML file is edited in place: comments and layout stay.
An edit that would not load is not written.
`

const ACTIONS = ['new', 'rotate', 'stage', 'activate', 'revoke']

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
    const [action, organizationId, keyId, ...more] = positionals
    if (more.length > 0) throw new UsageError(`what is '${more[0]}'?`)
    const file = configFile(values.config)
    const { config } = await loadWithoutSecrets(file, terminal)
    const holders = new Holders(file, config)
    try {
      return await run()
    } finally {
      await holders.close()
    }

    async function run(): Promise<number> {
      if (action === 'list') {
        const found = organizationId === undefined ? undefined : await find(holders, config, organizationId)
        const organizations = found ? [found.organization] : Object.values(config.organizations)
        terminal.out(values.json ? JSON.stringify(organizations.flatMap(rowsOf), null, 2) : table(organizations))
        return 0
      }
      if (action === undefined || !ACTIONS.includes(action)) {
        throw new UsageError(
          action === undefined ? 'new, list, rotate, stage, activate or revoke?' : `there is no 'key ${action}'`,
        )
      }
      if (organizationId === undefined)
        throw new UsageError(`key ${action} needs an organization: ${Object.keys(config.organizations).join(', ')}`)
      const grace = parseDuration(values.grace)
      if (grace === null) throw new UsageError(`--grace takes a duration such as 24h, not ${values.grace}`)
      const holder = await find(holders, config, organizationId)
      const { organization } = holder

      if (action === 'new') {
        if (keyId !== undefined) throw new UsageError('name the key with --id')
        const id = values.id ?? freshId(organization)
        tellSecret(await addSecret(holder, id, values.staged ? 'staged' : 'active', 'key.create'), id, holder)
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
      if (action === 'stage' || action === 'rotate') {
        if (existing.status === 'revoked') throw new Failure(`${keyId} is revoked; make a new key instead`)
        const id = values.id ?? freshId(organization, `${keyId.replace(/_\d+$/, '')}`)
        if (action === 'stage') {
          tellSecret(await addSecret(holder, id, 'staged', 'key.stage'), id, holder)
          const command = `${ownCommand()} key`
          const where = file === DEFAULT_CONFIG ? '' : ` --config ${shellWord(file)}`
          terminal.err(
            `When clients use it: ${command} revoke ${organizationId} ${keyId}${where}, then ${command} activate ${organizationId} ${id}${where}`,
          )
          return 0
        }
        const { expires, keys } = rotation(organization.keys, keyId, grace)
        const secret = await addSecret(holder, id, 'active', 'key.rotate', keys)
        tellSecret(secret, id, holder, { replaces: keyId, expires })
        if (!values.json) terminal.err(`${keyId} works until ${expires}.`)
        return 0
      }
      const status = action === 'revoke' ? 'revoked' : 'active'
      if (existing.status === status) throw new Failure(`${keyId} is already ${status}`)
      if (existing.status === 'revoked') throw new Failure(`${keyId} is revoked, and stays so; make a new key instead`)
      await holder.change({ keys: [{ id: keyId, member: 'status', value: status }] }, `key.${action}`, keyId)
      if (values.json) terminal.out(JSON.stringify({ organization: organizationId, key: keyId, status }))
      else terminal.out(`${keyId} of ${organizationId} is ${status}.`)
      return 0
    }

    function tellSecret(secret: string, id: string, { place, organization }: Holder, more: object = {}): void {
      if (values.json) terminal.out(JSON.stringify({ organization: organization.id, key: id, secret, ...more }))
      else shownOnce(terminal, secret, id, organization.id, place)
    }
  },
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
 * @returns the secret
 */
async function addSecret(
  holder: Holder,
  id: string,
  status: KeyConfig['status'],
  operation: string,
  keys: Edit['keys'] = [],
): Promise<string> {
  if (holder.organization.keys.some(key => key.id === id))
    throw new Failure(`${holder.organization.id} has a key ${id} already; name another with --id`)
  const { secret, sha256 } = newSecret()
  await holder.change({ added: [{ id, sha256, status }], keys }, operation, id)
  return secret
}

/** A key id that is not taken: `key_1`, or `base` with the first number that is free. */
function freshId(organization: OrganizationConfig, base = 'key'): string {
  const taken = new Set(organization.keys.map(k => k.id))
  for (let n = base === 'key' ? 1 : 2; ; n++) if (!taken.has(`${base}_${n}`)) return `${base}_${n}`
}

function rowsOf({ id, keys }: OrganizationConfig) {
  return keys.map(key => ({
    organization: id,
    key: key.id,
    status: key.status,
    expires: key.expires === null ? null : new Date(key.expires).toISOString(),
    sha256: key.sha256,
    models: key.models,
  }))
}

export function table(organizations: readonly OrganizationConfig[]): string {
  const rows = organizations
    .flatMap(rowsOf)
    .map(row => [
      row.organization,
      row.key,
      row.status,
      `${row.sha256.slice(0, 8)}…`,
      [
        row.models === 'all' ? '' : row.models.join(', '),
        row.sha256 === DEMO_KEY_DIGEST ? 'sk-demo' : '',
        row.expires === null ? '' : `until ${row.expires}`,
      ]
        .filter(Boolean)
        .join('; '),
    ])
  return rows.length > 0
    ? columns([['organization', 'key', 'status', 'sha256', 'only for'], ...rows], 80, 0)
    : 'no keys'
}
