/** Access tokens of Microsoft Entra, from MSAL. */
import { readFile } from 'node:fs/promises'
import type { AuthenticationResult } from '@azure/msal-node'
import type { AuthHeaders } from '../../core/ports/auth.ts'
import type { Fetched } from './refreshed.ts'
import type { AzureAuth } from './settings.ts'

/**
 * Fetches a new token: for an application (with its secret, or with a federated token from a file, which is read each
 * time), else for a managed identity of this machine.
 */
export async function azureToken(auth: AzureAuth): Promise<Fetched<AuthHeaders>> {
  const result = auth.tenant_id === undefined ? await ofMachine(auth) : await ofApplication(auth, auth.tenant_id)
  if (!result?.accessToken) throw new Error('the library gave no token')
  const value = { authorization: `Bearer ${result.accessToken}` }
  return { value, expiresAt: result.expiresOn?.getTime() ?? null }
}

async function ofApplication(auth: AzureAuth, tenant: string): Promise<AuthenticationResult | null> {
  const { ConfidentialClientApplication } = await import('@azure/msal-node')
  const { token_file, client_secret } = auth
  const application = new ConfidentialClientApplication({
    auth: {
      clientId: auth.client_id!,
      authority: `${auth.authority}/${tenant}`,
      knownAuthorities: [new URL(auth.authority).host],
      ...(token_file === undefined
        ? { clientSecret: client_secret! }
        : { clientAssertion: (await readFile(token_file, 'utf8')).trim() }),
    },
  })
  return application.acquireTokenByClientCredential({ scopes: [auth.scope], skipCache: true })
}

async function ofMachine({ client_id, scope }: AzureAuth): Promise<AuthenticationResult> {
  const { ManagedIdentityApplication } = await import('@azure/msal-node')
  const identity = new ManagedIdentityApplication(
    client_id === undefined ? {} : { managedIdentityIdParams: { userAssignedClientId: client_id } },
  )
  return identity.acquireToken({ resource: scope.replace(/\/\.default$/, ''), forceRefresh: true })
}
