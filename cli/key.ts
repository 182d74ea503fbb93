import { createHash, randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { DEMO_KEY_DIGEST } from '../config/accounts.ts'
import type { GatewayConfig, KeyConfig, OrganizationConfig } from '../config/types.ts'
import { configFile, DEFAULT_CONFIG, ownCommand, shellWord } from './arguments.ts'
import { addKey, setKeyStatus } from './edit-keys.ts'
import type { Verb } from './main.ts'
import { listing, loadEdited, loadWithoutSecrets, replaceFile } from './problems.ts'
import { columns, Failure, UsageError } from './terminal.ts'

const HELP = `Usage: sluice key new|list|stage|activate|revoke [OPTIONS]

  key new ORGANIZATION [--id ID] [--staged]
      Makes a key and adds its digest to the file. The secret is shown once
      and kept nowhere.
  key list [ORGANIZATION]
      Lists keys; digests in short.
  key stage ORGANIZATION ID
      Makes a replacement for ID: both work until ID is revoked.
  key activate ORGANIZATION ID
      A staged key becomes the active one.
  key revoke ORGANIZATION ID
      The key stops working; a running gateway notices by itself.

  --config FILE   the configuration (default gateway.yaml)

The YAML file that holds the organization is edited in place: comments and
layout stay. An edit that would not load is not written.
`

export const key: Verb = {
  summary: 'Manages API keys.',
  help: HELP,
  async run(args, terminal) {
    const { values, positionals } = parseArgs({
      args,
      options: { config: { type: 'string' }, id: { type: 'string' }, staged: { type: 'boolean' } },
      allowPositionals: true,
    })
    const [action, organizationId, keyId, ...more] = positionals
    if (more.length > 0) throw new UsageError(`what is '${more[0]}'?`)
    const file = configFile(values.config)
    const { config } = await loadWithoutSecrets(file, terminal)
    if (action === 'list') {
      terminal.out(table(config, organizationId))
      return 0
    }
    if (action === undefined || !['new', 'stage', 'activate', 'revoke'].includes(action)) {
      throw new UsageError(
        action === undefined ? 'new, list, stage, activate or revoke?' : `there is no 'key ${action}'`,
      )
    }
    if (organizationId === undefined)
      throw new UsageError(`key ${action} needs an organization: ${Object.keys(config.organizations).join(', ')}`)
    const organization = find(config, organizationId)

    if (action === 'new') {
      if (keyId !== undefined) throw new UsageError('name the key with --id')
      const id = values.id ?? freshId(organization)
      const secret = await create(file, config, organization, id, values.staged ? 'staged' : 'active')
      tellSecret(secret, id)
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
    if (action === 'stage') {
      if (existing.status === 'revoked') throw new Failure(`${keyId} is revoked; make a new key instead`)
      const id = values.id ?? freshId(organization, `${keyId.replace(/_\d+$/, '')}`)
      const secret = await create(file, config, organization, id, 'staged')
      tellSecret(secret, id)
      const command = `${ownCommand()} key`
      const where = file === DEFAULT_CONFIG ? '' : ` --config ${shellWord(file)}`
      terminal.err(
        `When clients use it: ${command} revoke ${organizationId} ${keyId}${where}, then ${command} activate ${organizationId} ${id}${where}`,
      )
      return 0
    }
    const status = action === 'revoke' ? 'revoked' : 'active'
    if (existing.status === status) throw new Failure(`${keyId} is already ${status}`)
    if (existing.status === 'revoked') throw new Failure(`${keyId} is revoked, and stays so; make a new key instead`)
    await edit(file, config, organizationId, (text, within) =>
      setKeyStatus(text, within, organizationId, keyId, status),
    )
    terminal.out(`${keyId} of ${organizationId} is ${status}.`)
    return 0

    function tellSecret(secret: string, id: string): void {
      terminal.out(secret)
      terminal.err(`Key ${id} of ${organizationId} is in the file. Its secret is shown once, above: keep it now.`)
    }
  },
}

function find(config: GatewayConfig, id: string): OrganizationConfig {
  const organization = Object.hasOwn(config.organizations, id) ? config.organizations[id] : undefined
  if (!organization)
    throw new Failure(
      `there is no organization '${id}'; there is ${Object.keys(config.organizations).join(', ') || 'none'}`,
    )
  return organization
}

/**
 * Makes a key and adds it to the file.
 * @returns the secret
 */
async function create(
  file: string,
  config: GatewayConfig,
  organization: OrganizationConfig,
  id: string,
  status: KeyConfig['status'],
): Promise<string> {
  const secret = `sk-${randomBytes(32).toString('base64url')}`
  const sha256 = createHash('sha256').update(secret).digest('hex')
  await edit(file, config, organization.id, (text, within) =>
    addKey(text, within, organization.id, { id, sha256, status }),
  )
  return secret
}

/** A key id that is not taken: `key_1`, or `base` with the first number that is free. */
function freshId(organization: OrganizationConfig, base = 'key'): string {
  const taken = new Set(organization.keys.map(k => k.id))
  for (let n = base === 'key' ? 1 : 2; ; n++) if (!taken.has(`${base}_${n}`)) return `${base}_${n}`
}

/** Edits the file that holds the organization, checks the result as a whole, and only then replaces the file. */
async function edit(
  file: string,
  config: GatewayConfig,
  organization: string,
  change: (text: string, within: readonly string[]) => string | null,
): Promise<void> {
  for (const path of config.files) {
    const text = readFileSync(path, 'utf8')
    // The main file has the key `organizations:`; an included file is that mapping itself.
    const edited = change(text, path === config.files[0] ? ['organizations'] : [])
    if (edited === null) continue
    const loaded = await loadEdited(file, path, edited)
    if (loaded.errors) throw new Failure(`${listing(file, loaded.errors)}\nNothing was changed.`)
    replaceFile(path, edited)
    return
  }
  throw new Failure(`cannot find where ${organization} stands in ${config.files.join(', ')}; edit the file by hand`)
}

function table(config: GatewayConfig, organization: string | undefined): string {
  const organizations = organization === undefined ? Object.values(config.organizations) : [find(config, organization)]
  const rows = organizations.flatMap(o =>
    o.keys.map(k => [
      o.id,
      k.id,
      k.status,
      `${k.sha256.slice(0, 8)}…`,
      [k.models === 'all' ? '' : k.models.join(', '), k.sha256 === DEMO_KEY_DIGEST ? 'sk-demo' : '']
        .filter(Boolean)
        .join('; '),
    ]),
  )
  return rows.length > 0
    ? columns([['organization', 'key', 'status', 'sha256', 'only for'], ...rows], 80, 0)
    : 'no keys'
}
