/**
 * Receipts: rows of the ledger as the customer may see them, signed with Ed25519. What is signed is the canonical JSON
 * (RFC 8785) of an object without its member `signature`, so that anybody can check it in any language.
 */
import { createHash, createPublicKey, type JsonWebKey, type KeyObject, sign, verify } from 'node:crypto'
import { promisify } from 'node:util'
import type { LedgerRow } from '../../core/ports/store.ts'

export interface Receipt {
  object: 'receipt'
  version: 1
  request_id: string
  /** When the request came, ISO 8601. */
  time: string
  organization: string
  key: string
  surface: string
  model: string
  outcome: string
  /** Of the request's body, as it was sent, in hex; null where none was made. */
  body_sha256: string | null
  /** Absent where there are none. */
  tags?: Record<string, string>
  usage: {
    input_tokens: number
    cached_tokens: number
    cache_write_tokens: number
    output_tokens: number
    reasoning_tokens: number
    searches: number
    estimated: boolean
  }
  billing: string
  /** Null where nothing is charged. */
  price: { book: string; used: string; input_pico_usd: number; output_pico_usd: number } | null
  cost_nano_usd: number
}

export interface Signature {
  /** The key's id, its RFC 7638 thumbprint. */
  key: string
  /** Base64url. */
  value: string
}
export type Signed<T extends object> = T & { signature: Signature }

/** A public key as it is published, RFC 8037. */
export interface PublishedKey {
  kty: 'OKP'
  crv: 'Ed25519'
  x: string
  kid: string
  use: 'sig'
  alg: 'EdDSA'
}
export interface SigningKey {
  readonly id: string
  readonly key: KeyObject
}

export function receiptOf(row: LedgerRow): Receipt {
  const { price_used, price_input, price_output } = row
  return {
    object: 'receipt',
    version: 1,
    request_id: row.request_id,
    time: new Date(row.time).toISOString(),
    organization: row.organization,
    key: row.key_id,
    surface: row.surface,
    model: row.model,
    outcome: row.outcome,
    body_sha256: row.body_digest || null,
    ...(row.tags && { tags: JSON.parse(row.tags) as Record<string, string> }),
    usage: {
      input_tokens: row.input,
      cached_tokens: row.cached,
      cache_write_tokens: row.cacheWrite,
      output_tokens: row.output,
      reasoning_tokens: row.reasoning,
      searches: row.searches,
      estimated: row.estimated,
    },
    billing: row.billing,
    price:
      price_used && price_input !== undefined && price_output !== undefined
        ? { book: row.price_book, used: price_used, input_pico_usd: price_input, output_pico_usd: price_output }
        : null,
    cost_nano_usd: row.cost,
  }
}

/** The canonical JSON of a value: members sorted by UTF-16 code units, nothing between (RFC 8785). */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const members = Object.entries(value as Record<string, unknown>).filter(([, of]) => of !== undefined)
  members.sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${members.map(([name, of]) => `${JSON.stringify(name)}:${canonical(of)}`).join()}}`
}

const signAsync = promisify(sign) as (algorithm: null, data: Uint8Array, key: KeyObject) => Promise<Buffer>
const verifyAsync = promisify(verify) as (
  algorithm: null,
  data: Uint8Array,
  key: KeyObject,
  signature: Uint8Array,
) => Promise<boolean>

/** Signs an object, on a thread of Node's pool. */
export async function signed<T extends object>(object: T, { id, key }: SigningKey): Promise<Signed<T>> {
  const value = await signAsync(null, Buffer.from(canonical(object)), key)
  return { ...object, signature: { key: id, value: value.toString('base64url') } }
}

/** Whether an object is as it was signed. @returns what is wrong with it, or null */
export async function faultOf(object: object, keys: ReadonlyMap<string, KeyObject>): Promise<string | null> {
  const { signature, ...rest } = object as { signature?: Partial<Signature> }
  const { key: id, value } = typeof signature === 'object' && signature !== null ? signature : {}
  if (typeof id !== 'string' || typeof value !== 'string') return 'it has no signature'
  const key = keys.get(id)
  if (!key) return `it is signed with a key that is not among the published ones, ${id}`
  const bytes = Buffer.from(value, 'base64url')
  const fits =
    bytes.toString('base64url') === value && (await verifyAsync(null, Buffer.from(canonical(rest)), key, bytes))
  return fits ? null : 'it was changed: its signature does not fit'
}

/** The members of a public key, and its id. @throws Error when it is of another kind */
export function publishedOf(key: KeyObject): PublishedKey {
  const open = key.type === 'private' ? createPublicKey(key) : key
  if (open.asymmetricKeyType !== 'ed25519') throw new Error('it is no Ed25519 key')
  const { x } = open.export({ format: 'jwk' }) as JsonWebKey & { x: string }
  const kid = createHash('sha256')
    .update(canonical({ crv: 'Ed25519', kty: 'OKP', x }))
    .digest('base64url')
  return { kty: 'OKP', crv: 'Ed25519', x, kid, use: 'sig', alg: 'EdDSA' }
}

/** Published keys by their ids. @throws Error when they are none */
export function keysOf(published: unknown): Map<string, KeyObject> {
  const { keys } = (published ?? {}) as { keys?: unknown }
  if (!Array.isArray(keys) || keys.length === 0) throw new Error('it has no list of keys')
  return new Map(
    keys.map(jwk => {
      const key = createPublicKey({ key: jwk as JsonWebKey, format: 'jwk' })
      return [publishedOf(key).kid, key]
    }),
  )
}
