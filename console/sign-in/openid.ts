/** Signing in by an OpenID provider that the operator names: authorization code, PKCE, nonce; by openid-client. */
import * as openid from 'openid-client'
import type { ConsoleConfig } from '../config.ts'
import { isLoopback } from '../config.ts'
import type { Database } from '../db/tables.ts'
import { newChallenge, useChallenge } from '../people/challenges.ts'
import { emailOf } from '../people/email.ts'

type Provider = ConsoleConfig['openid'][number]

/** What a provider says of itself is kept so long. */
const KEPT_MS = 3_600_000
const known = new WeakMap<Provider, { at: number; found: Promise<openid.Configuration> }>()

function discovered(provider: Provider, now: number): Promise<openid.Configuration> {
  const before = known.get(provider)
  if (before && now - before.at < KEPT_MS) return before.found
  const issuer = new URL(provider.issuer)
  // A provider on this machine may be without TLS, as this console.
  const insecure = isLoopback(issuer.hostname) ? [openid.allowInsecureRequests] : []
  // Without this the signature is not looked at, since the token comes over TLS from the provider itself.
  const execute = [openid.enableNonRepudiationChecks, ...insecure]
  const found = openid.discovery(issuer, provider.client_id, provider.client_secret, undefined, { execute, timeout: 5 })
  known.set(provider, { at: now, found })
  found.catch(() => known.delete(provider))
  return found
}

const redirectOf = ({ url }: ConsoleConfig, { id }: Provider) => `${url}/sign-in/openid/${id}/callback`

/**
 * Where the browser goes. What comes back is good for this browser alone: it is bound to the token of its forms.
 * Rejects when the provider does not answer.
 */
export async function askProvider(
  db: Database,
  config: ConsoleConfig,
  provider: Provider,
  { formToken, next }: { formToken: string; next: string },
  now: number,
): Promise<URL> {
  const configuration = await discovered(provider, now)
  const verifier = openid.randomPKCECodeVerifier()
  const nonce = openid.randomNonce()
  const content = { provider: provider.id, verifier, nonce, formToken, next }
  const state = await newChallenge(db, { purpose: 'openid', person: null, content }, now)
  return openid.buildAuthorizationUrl(configuration, {
    redirect_uri: redirectOf(config, provider),
    scope: 'openid email',
    code_challenge: await openid.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    ...{ state, nonce },
  })
}

/** Whom the provider says it is: an address that it has verified; null where nothing is right. */
export async function answerOf(
  db: Database,
  config: ConsoleConfig,
  provider: Provider,
  { url, formToken }: { url: URL; formToken: string },
  now: number,
): Promise<{ email: string; next: string } | null> {
  const state = url.searchParams.get('state') ?? ''
  const asked = await useChallenge(db, state, { purpose: 'openid', person: null }, now)
  if (asked?.provider !== provider.id || asked.formToken !== formToken) return null
  // Behind a proxy the address that this process sees is another one.
  const answer = new URL(redirectOf(config, provider))
  answer.search = url.search
  try {
    const tokens = await openid.authorizationCodeGrant(await discovered(provider, now), answer, {
      ...{ expectedState: state, expectedNonce: asked.nonce, pkceCodeVerifier: asked.verifier, idTokenExpected: true },
    })
    const { email, email_verified } = tokens.claims()!
    const own = email_verified === true ? emailOf(email) : null
    return own === null ? null : { email: own, next: asked.next }
  } catch {
    return null
  }
}
