/**
 * The authentication port: how requests to a provider are authenticated where a key in a header is not enough.
 * `providers/auth/` implements it for the vendors that `auth` in gateway.yaml can name.
 */

export type AuthHeaders = Readonly<Record<string, string>>

/** A request as it will be sent. An attempt that is repeated is authenticated again. */
export interface UnsignedRequest {
  readonly method: string
  /** `http://host:port`, without a path. */
  readonly origin: string
  /** The path with the query, as in the request line. */
  readonly path: string
  /** The request's own headers; names in lower case. */
  readonly headers: AuthHeaders
  readonly body: string | readonly (string | Uint8Array)[]
}

/** Authenticates the requests to one provider. */
export interface Authenticator {
  /**
   * The headers to add to a request, names in lower case. A promise while credentials must be fetched, and where
   * signing takes one.
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
