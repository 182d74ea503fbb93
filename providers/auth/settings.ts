/**
 * What each vendor's way to authenticate is set up with, and which packages it needs. config/ makes the settings of
 * `auth` in gateway.yaml.
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
  /** Absolute path of a file with a federated token, which takes the place of the secret. */
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
