/** Access tokens of Google Cloud, from google-auth-library. */
import type { AuthHeaders } from '../../core/ports/auth.ts'
import type { Fetched } from './refreshed.ts'
import type { GoogleAuth } from './settings.ts'

/**
 * Fetches a new token: of the credentials file (service account, or workload identity federation), or of Application
 * Default Credentials (the file of GOOGLE_APPLICATION_CREDENTIALS or of gcloud, or the metadata server). The file is
 * read each time, so that a replaced key is used without a restart.
 */
export async function googleToken({ credentials, scopes }: GoogleAuth): Promise<Fetched<AuthHeaders>> {
  const { GoogleAuth } = await import('google-auth-library')
  const auth = new GoogleAuth({ scopes: [...scopes], ...(credentials !== undefined && { keyFilename: credentials }) })
  const client = await auth.getClient()
  const sent = await client.getRequestHeaders()
  const authorization = sent.get('authorization')
  if (!authorization) throw new Error('the library gave no token')
  // Says which project is billed; only some kinds of credentials name one.
  const project = sent.get('x-goog-user-project')
  const value = { authorization, ...(project && { 'x-goog-user-project': project }) }
  return { value, expiresAt: client.credentials.expiry_date ?? null }
}
