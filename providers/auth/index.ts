/**
 * Authenticates requests to providers with the vendors' own libraries. They are optional packages, loaded for the first
 * request to a provider that is configured so.
 */
import type { Authenticator, AuthHeaders } from '../../core/ports/auth.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { awsAuthenticator } from './aws.ts'
import { azureToken } from './azure.ts'
import { googleToken } from './google.ts'
import { Refreshed } from './refreshed.ts'
import type { ProviderAuth } from './settings.ts'

/** @param clock for the expiry of credentials, for the pause after a failure, and for the time in signatures */
export function authenticator(auth: ProviderAuth, clock: Clock): Authenticator {
  if (auth.kind === 'aws') return awsAuthenticator(auth, clock)
  const fetch = auth.kind === 'google' ? () => googleToken(auth) : () => azureToken(auth)
  const secret = auth.kind === 'azure' ? auth.client_secret : undefined
  const token = new Refreshed<AuthHeaders>(`the ${auth.kind} token`, [secret], clock, fetch)
  return { headers: () => token.get(), refused: () => token.refused() }
}
