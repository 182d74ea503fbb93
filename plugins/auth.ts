import { definePlugin, deny, type Reply } from '../core/plugin.ts'
import { flag, object } from '../core/tools/vocabulary.ts'
import { accountsOf, isKeyText } from './shared/directory.ts'
import { type Identity, identity } from './shared/slots.ts'

const schema = object({
  x_api_key: flag(
    false,
    'Accept x-api-key when there is no Authorization header, for requests of Anthropic clients: on Messages, and on routes without a surface such as GET /v1/models.',
  ),
})

/**
 * Resolves a Bearer key to its organization (AUTH-1, AUTH-2). Only digests are kept (AUTH-3). Staged keys work beside
 * the ones they will replace (AUTH-5).
 */
export const auth = definePlugin({
  name: 'auth',
  summary: 'Resolves the Bearer key to an organization and key.',
  config: schema,
  provides: [identity],
  aboveTerminal: true,
  uses: ['organizations', 'plans', 'models'],
  create({ x_api_key }, context) {
    const accounts = accountsOf(context.shared, context.config)

    return {
      onRequest(x) {
        const headers = x.incoming.headers
        const authorization = headers.get('authorization')
        let credential: string
        if (authorization === undefined) {
          const other = headers.get('x-api-key')
          const taken = x_api_key && (x.surface === undefined || x.surface.keyHeader === 'x-api-key')
          if (other === undefined || !taken) return missing(other !== undefined)
          credential = other
        } else {
          if (!hasBearerScheme(authorization)) return wrongScheme()
          credential = authorization.slice(7).trim()
        }
        const decide = (found: Identity | null): undefined | Reply => {
          if (!found) return invalid(credential)
          x.set(identity, found)
          return undefined
        }
        const found = accounts.find(credential, x.incoming, x.startedAt)
        return found instanceof Promise ? found.then(decide) : decide(found)
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
  if (credential === '')
    return deny('invalid_api_key', {
      message:
        'The Authorization header has no API key behind "Bearer". Is the variable that holds the key empty? Send "Authorization: Bearer <API_KEY>".',
      details: { key_hint: hint },
      headers: challenge,
    })
  return deny('invalid_api_key', {
    message: `The API key ${hint} is not valid. Check it, or ask whoever runs this gateway for a new one.`,
    details: { key_hint: hint },
    headers: challenge,
  })
}

/**
 * The scheme is matched case-insensitively (RFC 9110 11.1). The scheme alone counts too: HTTP takes the space behind it
 * away when an empty key follows.
 */
function hasBearerScheme(value: string): boolean {
  return (
    value.startsWith('Bearer ') ||
    ((value.length === 6 || value.charCodeAt(6) === 0x20) && value.slice(0, 6).toLowerCase() === 'bearer')
  )
}

/** A hint by which the owner recognises a key, too short to use the key. A short key is hidden completely. */
export function redact(credential: string): string {
  if (credential.length < 12 || !isKeyText(credential)) return '***'
  return `${credential.slice(0, 3)}***${credential.slice(-4)}`
}
