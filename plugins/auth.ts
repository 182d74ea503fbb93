import { hash } from 'node:crypto'
import type { GatewayConfig } from '../config/types.ts'
import { definePlugin, deny, type Reply } from '../core/plugin.ts'
import { flag, object } from '../core/vocabulary.ts'
import { type Identity, identity } from './shared/slots.ts'

/** The active keys by lower-case hex SHA-256 (AUTH-3). Staged keys work beside the ones they will replace (AUTH-5). */
function keysByDigest(config: Pick<GatewayConfig, 'organizations'>): Map<string, Identity> {
  const keys = new Map<string, Identity>()
  for (const organization of Object.values(config.organizations)) {
    for (const key of organization.keys) if (key.status !== 'revoked') keys.set(key.sha256, { organization, key })
  }
  return keys
}

/**
 * The most credentials whose identity is remembered, because hashing costs more than the rest of this hook. A reload
 * begins with none.
 */
const REMEMBERED = 10_000

const schema = object({
  x_api_key: flag(false, 'Accept x-api-key on the Messages surface when there is no Authorization header.'),
})

/** Resolves a Bearer key to its organization (AUTH-1, AUTH-2). */
export const auth = definePlugin({
  name: 'auth',
  summary: 'Resolves the Bearer key to an organization and key.',
  config: schema,
  provides: [identity],
  uses: ['organizations'],
  create({ x_api_key }, context) {
    const keys = keysByDigest(context.config)
    const remembered = new Map<string, Identity>()

    function find(credential: string): Identity | undefined {
      const known = remembered.get(credential)
      if (known) return known
      if (!isKeyText(credential)) return undefined
      const found = keys.get(hash('sha256', credential, 'hex'))
      if (found && remembered.size < REMEMBERED) remembered.set(credential, found)
      return found
    }

    return {
      onRequest(x) {
        const headers = x.incoming.headers
        const authorization = headers.get('authorization')
        let credential: string
        if (authorization === undefined) {
          const other = headers.get('x-api-key')
          if (other === undefined || !x_api_key || x.surface?.keyHeader !== 'x-api-key')
            return missing(other !== undefined)
          credential = other
        } else {
          if (!hasBearerScheme(authorization)) return wrongScheme()
          credential = authorization.slice(7).trim()
        }
        const found = find(credential)
        if (!found) return invalid(credential)
        x.set(identity, found)
        return undefined
      },
    }
  },
})

const challenge = { 'www-authenticate': 'Bearer' }

function missing(sentApiKey: boolean): Reply {
  return deny('missing_authorization', {
    message: sentApiKey
      ? 'No Authorization header. x-api-key is not accepted here: send "Authorization: Bearer <API_KEY>" (Anthropic clients: set authToken, or ANTHROPIC_AUTH_TOKEN, instead of apiKey).'
      : 'No Authorization header. Send "Authorization: Bearer <API_KEY>".',
    headers: challenge,
  })
}

function wrongScheme(): Reply {
  return deny('bearer_scheme_required', {
    message: 'The Authorization header does not use the Bearer scheme. Send "Authorization: Bearer <API_KEY>".',
    headers: challenge,
  })
}

function invalid(credential: string): Reply {
  const hint = redact(credential)
  return deny('invalid_api_key', {
    message: `The API key ${hint} is not valid. Check it, or ask whoever runs this gateway for a new one.`,
    details: { key_hint: hint },
    headers: challenge,
  })
}

/** The scheme is matched case-insensitively (RFC 9110 11.1). */
function hasBearerScheme(value: string): boolean {
  return (
    value.startsWith('Bearer ') ||
    (value.length > 6 && value.charCodeAt(6) === 0x20 && value.slice(0, 6).toLowerCase() === 'bearer')
  )
}

/**
 * Whether a credential can be a key: 1 to 256 characters of [A-Za-z0-9_.:-]. Other bytes may have been altered by the
 * listener (R5).
 */
function isKeyText(value: string): boolean {
  if (value.length === 0 || value.length > 256) return false
  for (let i = 0; i < value.length; i++) {
    const c = value.charCodeAt(i)
    const letter = (c >= 0x61 && c <= 0x7a) || (c >= 0x41 && c <= 0x5a)
    if (!letter && !(c >= 0x30 && c <= 0x3a) && c !== 0x2d && c !== 0x2e && c !== 0x5f) return false
  }
  return true
}

/** A hint by which the owner recognises a key, too short to use the key. A short key is hidden completely. */
export function redact(credential: string): string {
  if (credential.length < 12 || !isKeyText(credential)) return '***'
  return `${credential.slice(0, 3)}***${credential.slice(-4)}`
}
