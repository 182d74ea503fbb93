/** Time-based one-time passwords (RFC 6238) and recovery codes: forty lines over node:crypto need no package. */
import { createHmac, randomBytes } from 'node:crypto'
import type { Database, PersonTable } from '../db/tables.ts'
import { digestOf } from './secrets.ts'

const STEP_MS = 30_000
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'

/** 160 bits in base32, as authenticator apps take them. */
export function newTotpSecret(): string {
  const bits = [...randomBytes(20)].map(byte => byte.toString(2).padStart(8, '0')).join('')
  return bits.replace(/.{5}/g, five => ALPHABET[Number.parseInt(five, 2)]!)
}

function bytesOf(base32: string): Buffer {
  const bits = [...base32].map(letter => ALPHABET.indexOf(letter).toString(2).padStart(5, '0')).join('')
  return Buffer.from((bits.match(/.{8}/g) ?? []).map(byte => Number.parseInt(byte, 2)))
}

/** The code of a step of 30 seconds since 1970. */
export function codeOf(secret: string, step: number): string {
  const counter = Buffer.alloc(8)
  counter.writeBigUInt64BE(BigInt(step))
  const mac = createHmac('sha1', bytesOf(secret)).update(counter).digest()
  const at = mac[19]! & 15
  return String((mac.readUInt32BE(at) & 0x7fffffff) % 1_000_000).padStart(6, '0')
}

export const stepOf = (now: number): number => Math.floor(now / STEP_MS)

/** The step whose code this is: of now, the one before or the one after, since clocks differ. Null for a wrong code. */
export function matchedStep(secret: string, code: string, now: number): number | null {
  const here = stepOf(now)
  return [here, here - 1, here + 1].find(step => codeOf(secret, step) === code.replaceAll(' ', '')) ?? null
}

/** Whether a code of the app is right. Each works once. */
export async function takeCode(db: Database, person: PersonTable, code: string, now: number): Promise<boolean> {
  const step = person.totp === null ? null : matchedStep(person.totp, code, now)
  if (step === null) return false
  const taken = await db
    .updateTable('person')
    .set({ totp_step: step })
    .where('id', '=', person.id)
    .where('totp_step', '<', step)
    .executeTakeFirst()
  return taken.numUpdatedRows === 1n
}

const plain = (code: string) => code.toLowerCase().replace(/[^a-z0-9]/g, '')

/** Whether a recovery code is right. Each works once. */
export async function takeRecoveryCode(db: Database, { id }: PersonTable, code: string): Promise<boolean> {
  const digest = digestOf(plain(code))
  const taken = await db
    .deleteFrom('recovery_code')
    .where('person', '=', id)
    .where('digest', '=', digest)
    .executeTakeFirst()
  return taken.numDeletedRows === 1n
}

/** Ten codes of 50 bits in place of those before. @returns them, for the only time */
export function newRecoveryCodes(db: Database, person: string): Promise<string[]> {
  const codes = Array.from({ length: 10 }, () => {
    const letters = [...randomBytes(10)].map(byte => ALPHABET[byte & 31]!.toLowerCase()).join('')
    return `${letters.slice(0, 5)}-${letters.slice(5)}`
  })
  return db.transaction().execute(async step => {
    await step.deleteFrom('recovery_code').where('person', '=', person).execute()
    const rows = codes.map(code => ({ person, digest: digestOf(plain(code)) }))
    await step.insertInto('recovery_code').values(rows).execute()
    return codes
  })
}

/** What an app reads from the QR code. */
export function otpauth(secret: string, email: string, issuer: string): string {
  const query = `secret=${secret}&issuer=${encodeURIComponent(issuer)}`
  return `otpauth://totp/${encodeURIComponent(`${issuer}:${email}`)}?${query}`
}
