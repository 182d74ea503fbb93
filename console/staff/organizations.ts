/** Organizations come to be and end at the gateway first: what the console alone knew would serve nobody. */
import { randomInt } from 'node:crypto'
import type { ConsoleConfig } from '../config.ts'
import type { Database, PersonTable } from '../db/tables.ts'
import { GatewayDown, GatewayRefused } from '../gateway.ts'
import { note } from '../people/events.ts'
import { addMember } from '../people/memberships.ts'
import { StaffGateway } from './gateway.ts'

const LETTERS = 'abcdefghijkmnpqrstuvwxyz23456789'

/** An id of an organization's name, such as `acme-7kx3p2`. An id is never given twice, so part of it is random. */
export function newOrganizationId(name: string): string {
  const word = name
    .normalize('NFKD')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 24)
    .replace(/-+$/, '')
  const random = Array.from({ length: 6 }, () => LETTERS[randomInt(LETTERS.length)]).join('')
  return `${word || 'org'}-${random}`
}

interface NewOrganization {
  id: string
  name: string
  plan: string
}

/** Makes the organization that the configuration names, if the gateway does not have it yet. */
export async function ensureFirst(config: ConsoleConfig, { id, name, plan }: NewOrganization): Promise<void> {
  try {
    await new StaffGateway(config, 'console').create(id, { plan, name })
  } catch (error) {
    // Somebody has changed it since; it is the operator's word that it is this one.
    if (!(error instanceof GatewayRefused && error.code === 'exists')) throw error
  }
}

/** Whether the gateway has what the quickstart has: the organization `demo`, and its key `sk-demo`. */
export async function hasDemo(config: ConsoleConfig): Promise<boolean> {
  try {
    const { organization } = await new StaffGateway(config, 'console').organization('demo')
    return organization.place === 'file' && organization.keys.some(({ id }) => id === 'key_demo')
  } catch (error) {
    if (error instanceof GatewayRefused || error instanceof GatewayDown) return false
    throw error
  }
}

/** Makes an organization, and a person its owner. */
export async function openOrganization(
  db: Database,
  config: ConsoleConfig,
  { owner, ...made }: NewOrganization & { owner: PersonTable },
  address: string,
  now: number,
): Promise<void> {
  const { id, plan, name } = made
  const prepaid = config.billing === 'prepaid' && { billing: 'prepaid' }
  await new StaffGateway(config, `user:${owner.id}`).create(id, { plan, name, ...prepaid })
  await takeOver(db, { ...made, owner }, address, now)
}

/** Makes a person the owner of an organization that the gateway has. */
export async function takeOver(
  db: Database,
  { id, name, plan, owner }: NewOrganization & { owner: PersonTable },
  address: string,
  now: number,
): Promise<void> {
  await db.transaction().execute(async step => {
    await step
      .insertInto('organization')
      .values({ id, name, created: now, creator: owner.id, deleted: null })
      .onConflict(conflict => conflict.column('id').doNothing())
      .execute()
    await addMember(step, id, owner.id, 'owner', now)
    const happened = { organization: id, person: owner.id, action: 'organization.create' }
    await note(step, { ...happened, detail: `${name}, plan ${plan}`, address, now })
  })
}

/** Ends an organization: its keys stop at once, and in 30 days it is gone from the gateway. */
export async function closeOrganization(
  db: Database,
  config: ConsoleConfig,
  { id, person }: { id: string; person: string },
  address: string,
  now: number,
): Promise<void> {
  await new StaffGateway(config, `user:${person}`, id).delete(id)
  await db.transaction().execute(async step => {
    await step.updateTable('organization').set({ deleted: now }).where('id', '=', id).execute()
    await note(step, { organization: id, person, action: 'organization.delete', address, now })
  })
}

/** Gives an organization another name, here and at the gateway. */
export async function renameOrganization(
  db: Database,
  config: ConsoleConfig,
  { id, name, person }: { id: string; name: string; person: string },
  address: string,
  now: number,
): Promise<void> {
  await new StaffGateway(config, `user:${person}`, id).change(id, () => ({ name }))
  await db.transaction().execute(async step => {
    await step.updateTable('organization').set({ name }).where('id', '=', id).execute()
    await note(step, { organization: id, person, action: 'organization.rename', detail: name, address, now })
  })
}
