/**
 * The authentication port: how requests to a provider are authenticated where a key in a header is not enough. The
 * settings are those of `auth` in gateway.yaml after loading. The implementations are in `providers/auth/`.
 */

/** AWS Signature Version 4. Without keys of its own, the vendor's chain of credentials is searched. */
export interface AwsAuth {
  kind: 'aws'
  region: string
  /** The signing name of the service, e.g. `bedrock`. */
  service: string
  /** A profile of the shared configuration files. */
  profile?: string
  access_key_id?: string
  secret_access_key?: string
  session_token?: string
}

/** An access token of Google Cloud. */
export interface GoogleAuth {
  kind: 'google'
  /** Absolute path of a credentials file; absent: Application Default Credentials. */
  credentials?: string
  scopes: readonly string[]
}

/** An access token of Microsoft Entra. */
export interface AzureAuth {
  kind: 'azure'
  /** With `client_id` and a secret or a token file: an application. Otherwise: a managed identity. */
  tenant_id?: string
  /** The application, or the user-assigned managed identity. */
  client_id?: string
  client_secret?: string
  /** Absolute path of a file with a federated token, which stands in for the secret. */
  token_file?: string
  scope: string
  /** Base URL of the login service, without a trailing slash. */
  authority: string
}

export type ProviderAuth = AwsAuth | GoogleAuth | AzureAuth

/** The vendor's packages that each way needs. They are optional: an operator installs those of the ways in use. */
export const AUTH_PACKAGES: Readonly<Record<ProviderAuth['kind'], readonly string[]>> = {
  aws: ['@smithy/signature-v4', '@aws-sdk/credential-provider-node'],
  google: ['google-auth-library'],
  azure: ['@azure/msal-node'],
}

export type AuthHeaders = Readonly<Record<string, string>>

/** A request as it will be sent. An attempt that is repeated is authenticated again. */
export interface UnsignedRequest {
  readonly method: string
  /** `http://host:port`, without a path. */
  readonly origin: string
  /** The path with the query, as it stands in the request line. */
  readonly path: string
  /** The request's own headers; names in lower case. */
  readonly headers: AuthHeaders
  readonly body: string | readonly (string | Uint8Array)[]
}

/** Authenticates the requests to one provider. */
export interface Authenticator {
  /**
   * The headers to add to a request, names in lower case. A promise while credentials must be fetched, and where signing
   * takes one.
   * @throws AuthFault as a rejection, when there are no credentials
   */
  headers(request: UnsignedRequest): AuthHeaders | Promise<AuthHeaders>
  /** The provider refused the credentials (401 or 403): they are fetched again, though they have not expired. */
  refused(): void
}

/** The gateway has no valid credentials for a provider. The message holds no secret, and the log shows it. */
export class AuthFault extends Error {
  override readonly name = 'AuthFault'
}
