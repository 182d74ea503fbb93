/** For whom, within its key, a request is: tags of the ledger row (decision 93), and the end user who is limited. */
import { createHmac } from 'node:crypto'
import { type Exchange, request } from '../../core/plugin.ts'
import { flag, object, type Schema, text } from '../../core/tools/vocabulary.ts'
import { sessionOf } from './session.ts'
import { identity } from './slots.ts'

/** At most this many tags on a row, and this many characters of a value: longer ones are hashed. */
const MOST_TAGS = 4
const MOST_CHARACTERS = 64

/** Where a name is in a request. */
export const tag = object(
  {
    from: text(
      'Where its value stands: header.NAME; metadata.NAME of the body; user, which is safety_identifier, user or metadata.user_id of the body; or session, a header by which agents name theirs.',
      {
        pattern: '^(user|session|header\\.[A-Za-z0-9_-]{1,64}|metadata\\.[\\w.-]{1,64})$',
        examples: ['header.x-team', 'metadata.customer'],
      },
    ),
    hash: flag(false, 'Keep a hash, by which nobody can tell the value.'),
  },
  ['from'],
)
export type Tag = { from: string; hash: boolean }

/** The option `tags`. */
export const tags = {
  type: 'object',
  propertyNames: { pattern: '^[a-z][a-z0-9_]{0,31}$' },
  additionalProperties: tag,
  maxProperties: MOST_TAGS,
  default: {},
  description:
    'Tags of the ledger row, by name, at most 4: for whom within its key a request is. A request without the value has no such tag.',
} as unknown as Schema<Record<string, Tag>> & { default: unknown }

/**
 * Reads the tags of an exchange.
 * @param secret the gateway's
 * @returns JSON of the values by name, or '' for none
 */
export function tagReader(options: Record<string, Tag>, secret: Uint8Array): (x: Exchange) => string {
  const readers = Object.entries(options).map(([name, tag]) => ({ name, read: valueReader(tag, secret) }))
  return function tagsOf(x) {
    const values: Record<string, string> = {}
    let found = false
    for (const { name, read } of readers) {
      const value = read(x)
      if (value === '') continue
      found = true
      values[name] = value
    }
    return found ? JSON.stringify(values) : ''
  }
}

/** Reads one tag of an exchange, as it is kept: at most 64 characters, none a control character; '' for none. */
export function valueReader({ from, hash }: Tag, secret: Uint8Array): (x: Exchange) => string {
  const find = finder(from)
  return function read(x) {
    const value = find(x)
    if (typeof value !== 'string') return ''
    if (hash || value.length > MOST_CHARACTERS) return value === '' ? '' : hashed(x, value, secret)
    return value.toWellFormed().replace(/[\x00-\x1f\x7f]/g, '?')
  }
}

function finder(from: string): (x: Exchange) => unknown {
  if (from.startsWith('header.')) {
    const name = from.slice('header.'.length).toLowerCase()
    return x => x.incoming.headers.get(name)
  }
  if (from.startsWith('metadata.')) {
    const name = from.slice('metadata.'.length)
    return x => metadataOf(x)?.[name]
  }
  if (from === 'session') return x => sessionOf(x.incoming.headers)
  return x => {
    const body = x.peek(request)
    return body && [body['safety_identifier'], body['user'], metadataOf(x)?.['user_id']].find(value => value)
  }
}

function metadataOf(x: Exchange): Record<string, unknown> | undefined {
  const metadata = x.peek(request)?.['metadata']
  return typeof metadata === 'object' && metadata !== null ? (metadata as Record<string, unknown>) : undefined
}

/** The same value of two organizations has two hashes. */
function hashed(x: Exchange, value: string, secret: Uint8Array): string {
  const organization = x.peek(identity)?.organization.id ?? ''
  return createHmac('sha256', secret).update(`${organization}\0${value}`).digest('base64url').slice(0, 22)
}
