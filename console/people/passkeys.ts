/** Passkeys (WebAuthn), by @simplewebauthn/server. */

import { isIP } from 'node:net'
import {
  generateAuthenticationOptions,
  generateRegistrationOptions,
  verifyAuthenticationResponse,
  verifyRegistrationResponse,
} from '@simplewebauthn/server'
import type { ConsoleConfig } from '../config.ts'
import type { Database, PasskeyTable, PersonTable } from '../db/tables.ts'
import { newChallenge, useChallenge } from './challenges.ts'

/** A passkey belongs to a host's name; an address is none. */
export function passkeysWork({ url }: ConsoleConfig): boolean {
  const { hostname } = new URL(url)
  return isIP(hostname.replace(/^\[|\]$/g, '')) === 0
}

const siteOf = ({ url, name }: ConsoleConfig) => ({ rpID: new URL(url).hostname, rpName: name, origin: url })

export const passkeysOf = (db: Database, person: string): Promise<PasskeyTable[]> =>
  db.selectFrom('passkey').selectAll().where('person', '=', person).orderBy('created').execute()

/** Options for a new passkey, and the secret by which its answer names them. */
export async function registrationOptions(db: Database, config: ConsoleConfig, person: PersonTable, now: number) {
  const known = await passkeysOf(db, person.id)
  const options = await generateRegistrationOptions({
    ...siteOf(config),
    userID: new TextEncoder().encode(person.id),
    userName: person.email,
    userDisplayName: person.name || person.email,
    excludeCredentials: known.map(({ id, transports }) => ({ id, transports: JSON.parse(transports) })),
    authenticatorSelection: { residentKey: 'required', userVerification: 'required' },
  })
  const content = { challenge: options.challenge }
  return { options, challenge: await newChallenge(db, { purpose: 'register', person: person.id, content }, now) }
}

/** Keeps a new passkey. @returns whether the answer of the authenticator is right */
export async function addPasskey(
  db: Database,
  config: ConsoleConfig,
  person: PersonTable,
  { challenge, response, label }: { challenge: string; response: any; label: string },
  now: number,
): Promise<boolean> {
  const asked = await useChallenge(db, challenge, { purpose: 'register', person: person.id }, now)
  if (!asked) return false
  const { rpID, origin } = siteOf(config)
  const { verified, registrationInfo } = await verifyRegistrationResponse({
    ...{ response, expectedChallenge: asked.challenge, expectedOrigin: origin, expectedRPID: rpID },
    requireUserVerification: true,
  }).catch(() => ({ verified: false, registrationInfo: undefined }))
  if (!verified || !registrationInfo) return false
  const { id, publicKey, counter, transports = [] } = registrationInfo.credential
  await db
    .insertInto('passkey')
    .values({
      ...{ id, person: person.id, label, counter, transports: JSON.stringify(transports), created: now, used: null },
      public_key: Buffer.from(publicKey).toString('base64url'),
    })
    .execute()
  return true
}

/** Options for signing in, or for the second factor of one person. */
export async function authenticationOptions(db: Database, config: ConsoleConfig, person: string | null, now: number) {
  const known = person === null ? [] : await passkeysOf(db, person)
  const options = await generateAuthenticationOptions({
    rpID: siteOf(config).rpID,
    userVerification: 'required',
    allowCredentials: known.map(({ id, transports }) => ({ id, transports: JSON.parse(transports) })),
  })
  const purpose = person === null ? 'sign-in' : 'second'
  const content = { challenge: options.challenge }
  return { options, challenge: await newChallenge(db, { purpose, person, content }, now) }
}

/** @returns whose passkey has signed; null when nothing is right */
export async function signedBy(
  db: Database,
  config: ConsoleConfig,
  person: string | null,
  { challenge, response }: { challenge: string; response: any },
  now: number,
): Promise<string | null> {
  const purpose = person === null ? 'sign-in' : 'second'
  const asked = await useChallenge(db, challenge, { purpose, person }, now)
  if (!asked || typeof response?.id !== 'string') return null
  const passkey = await db.selectFrom('passkey').selectAll().where('id', '=', response.id).executeTakeFirst()
  if (!passkey || (person !== null && passkey.person !== person)) return null
  const { rpID, origin } = siteOf(config)
  const { verified, authenticationInfo } = await verifyAuthenticationResponse({
    ...{ response, expectedChallenge: asked.challenge, expectedOrigin: origin, expectedRPID: rpID },
    requireUserVerification: true,
    credential: {
      id: passkey.id,
      publicKey: new Uint8Array(Buffer.from(passkey.public_key, 'base64url')),
      counter: passkey.counter,
      transports: JSON.parse(passkey.transports),
    },
  }).catch(() => ({ verified: false, authenticationInfo: undefined }))
  if (!verified || !authenticationInfo) return null
  const seen = { counter: authenticationInfo.newCounter, used: now }
  await db.updateTable('passkey').set(seen).where('id', '=', passkey.id).execute()
  return passkey.person
}
