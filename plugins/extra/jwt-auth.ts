/**
 * Resolves the Bearer token of an OIDC issuer to an organization and key of this gateway, in the place of `auth`. The
 * keys of the issuer come from its JWKS. The package `jose` checks the tokens.
 *
 *   - jwt-auth:
 *       issuer: https://login.example.com
 *       audience: sluice
 *       jwks: https://login.example.com/.well-known/jwks.json
 *       organization: org_id     # the claim that names the organization
 *   - validation
 */
import { definePlugin, deny, type Reply, slot } from 'sluice'

interface Options {
  issuer: string
  audience: string
  jwks: string
  algorithms: string[]
  organization: string
  key: string
  default_key: string
  clock_skew: number
  cache: number
  timeout: number
}

/** Who calls, as `auth` fills it. */
const identity = slot<{ organization: { id: string }; key: { id: string } }>('identity')

/** A longer token is refused before anything is computed. */
const TOKEN_LENGTH = 8192
/** A key set is read up to this many bytes; those of large issuers have about ten thousand. */
const KEY_SET_BYTES = 262_144
/** After the set was read, a key that it does not have is looked for again at most once in this time, ms. */
const COOLDOWN_MS = 30_000
const ALGORITHMS = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA']

export default definePlugin<Options>({
  name: 'jwt-auth',
  summary: 'Resolves the Bearer token of an OIDC issuer to an organization and key, in the place of auth.',
  config: {
    type: 'object',
    additionalProperties: false,
    required: ['issuer', 'audience', 'jwks'],
    properties: {
      issuer: { type: 'string', minLength: 1, description: 'The claim iss, exactly as tokens have it.' },
      audience: { type: 'string', minLength: 1, description: 'What the claim aud must be or hold.' },
      jwks: { type: 'string', pattern: '^https?://', description: 'Where the issuer publishes its keys (jwks_uri).' },
      algorithms: {
        type: 'array',
        minItems: 1,
        items: { type: 'string', enum: ALGORITHMS },
        default: ['RS256', 'ES256'],
        description: 'The signatures that are accepted.',
      },
      organization: {
        type: 'string',
        minLength: 1,
        default: 'org_id',
        description: 'The claim with the organization.',
      },
      key: { type: 'string', default: '', description: 'The claim with the id of the key; empty: always default_key.' },
      default_key: { type: 'string', default: 'jwt', description: 'The key of tokens that name none.' },
      clock_skew: { type: 'string', format: 'duration', default: '30s', description: 'How far clocks may differ.' },
      cache: { type: 'string', format: 'duration', default: '10m', description: 'How long the key set is believed.' },
      timeout: { type: 'string', format: 'duration', default: '5s', description: 'How long the issuer may take.' },
    },
  },
  provides: [identity],
  aboveTerminal: true,
  check({ jwks }) {
    if (!URL.canParse(jwks)) return [`${jwks} is no URL`]
    const { protocol, hostname } = new URL(jwks)
    if (protocol === 'https:' || /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname)) return []
    return [`whoever stands between could replace the keys of ${jwks}; write https://`]
  },
  async create(options, { accounts, log, clock }) {
    const jose = await import('jose').catch(cause => {
      throw new Error('it needs the package jose: npm install jose@6.2.17', { cause })
    })
    const keys = jose.createRemoteJWKSet(new URL(options.jwks), {
      cacheMaxAge: options.cache,
      cooldownDuration: COOLDOWN_MS,
      timeoutDuration: options.timeout,
      [jose.customFetch]: boundedFetch,
    })
    const { issuer, audience, algorithms } = options

    return {
      async onRequest(x): Promise<undefined | Reply> {
        const authorization = x.incoming.headers.get('authorization')
        if (authorization === undefined) {
          const message = 'No Authorization header. Send "Authorization: Bearer <TOKEN>".'
          return deny('missing_authorization', { message, headers: challenge() })
        }
        const token = /^bearer +([\w-]+\.[\w-]+\.[\w-]+)$/i.exec(authorization)?.[1]
        if (token === undefined || token.length > TOKEN_LENGTH) return invalid('it is no signed JSON Web Token')
        let claims: Record<string, unknown>
        try {
          const checks = { issuer, audience, algorithms, clockTolerance: options.clock_skew / 1000 }
          const currentDate = new Date(clock.now())
          const required = { requiredClaims: ['exp'], currentDate }
          claims = (await jose.jwtVerify(token, keys, { ...checks, ...required })).payload
        } catch (error) {
          const why = tokenFault(error)
          if (why !== null) return invalid(why)
          log.warn({ request_id: x.id, err: error }, 'jwt-auth: no key set')
          const message = 'The keys of the token issuer could not be read, so the token was not checked. Retry shortly.'
          return deny('route_unavailable', { message })
        }
        const organization = claims[options.organization]
        const key = options.key === '' ? options.default_key : (claims[options.key] ?? options.default_key)
        if (typeof organization !== 'string' || typeof key !== 'string')
          return invalid(`its claim ${typeof key === 'string' ? options.organization : options.key} is no text`)
        const found = await accounts.find(organization, key, x.incoming, x.startedAt)
        if (!found) return invalid('it names no organization and key that may be used here')
        x.set(identity, found)
        return undefined
      },
    }

    /** What is wrong with the token, in words that quote none of it; null when it is not the token's fault. */
    function tokenFault(error: unknown): string | null {
      const { JWTExpired, JWTClaimValidationFailed, JWKSNoMatchingKey, JWKSMultipleMatchingKeys } = jose.errors
      if (error instanceof JWTExpired) return 'it has expired'
      if (error instanceof JWTClaimValidationFailed) return `its claim ${error.claim} does not fit`
      if (error instanceof JWKSNoMatchingKey || error instanceof JWKSMultipleMatchingKeys)
        return 'no key of the issuer fits it'
      if (error instanceof jose.errors.JWSSignatureVerificationFailed) return 'its signature is wrong'
      if (error instanceof jose.errors.JOSEAlgNotAllowed) return 'its algorithm is not accepted'
      const { JWSInvalid, JWTInvalid, JOSENotSupported } = jose.errors
      if (error instanceof JWSInvalid || error instanceof JWTInvalid || error instanceof JOSENotSupported)
        return 'it is malformed'
      return null
    }
  },
})

function challenge(error = ''): Record<string, string> {
  return { 'www-authenticate': `Bearer${error}` }
}

function invalid(why: string): Reply {
  const message = `The token is not valid: ${why}. Ask its issuer for a new one.`
  return deny('invalid_api_key', { message, headers: challenge(' error="invalid_token"') })
}

/** `fetch` of a key set, whose answer is read up to a bound. @throws Error when it is longer */
async function boundedFetch(url: string, init: RequestInit): Promise<Response> {
  const response = await fetch(url, init)
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length
    if (bytes > KEY_SET_BYTES) throw new Error(`the key set is longer than ${KEY_SET_BYTES} bytes`)
    chunks.push(chunk)
  }
  return new Response(Buffer.concat(chunks), { status: response.status === 200 ? 200 : 502 })
}
