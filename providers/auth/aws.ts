/** AWS Signature Version 4, by the vendor's signer and its chain of credentials. */
import { createHash, createHmac, type Hash, type Hmac } from 'node:crypto'
import type { SignatureV4 } from '@smithy/signature-v4'
import type { Authenticator, AuthHeaders, UnsignedRequest } from '../../core/ports/auth.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { type Fetched, Refreshed } from './refreshed.ts'
import type { AwsAuth } from './settings.ts'

type Credentials = ConstructorParameters<typeof SignatureV4>[0]['credentials']

type Bytes = string | ArrayBuffer | ArrayBufferView

/** The signer hashes with what it is given; Node's hash is faster than one in JavaScript. */
class Sha256 {
  readonly #secret: Bytes | undefined
  #hash!: Hash | Hmac

  constructor(secret?: Bytes) {
    this.#secret = secret
    this.reset()
  }
  update(data: Bytes): void {
    this.#hash.update(bytesOf(data))
  }
  async digest(): Promise<Uint8Array> {
    return this.#hash.digest()
  }
  reset(): void {
    this.#hash = this.#secret === undefined ? createHash('sha256') : createHmac('sha256', bytesOf(this.#secret))
  }
}

function bytesOf(data: Bytes): string | Uint8Array {
  if (typeof data === 'string') return data
  return ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data)
}

/** Signs method, path, query, host, content type and body. */
export function awsAuthenticator(auth: AwsAuth, clock: Clock): Authenticator {
  const signer = new Refreshed('the AWS credentials', [auth.secret_access_key], clock, () => signerOf(auth))
  return {
    async headers(request) {
      return signed(await signer.get(), request, clock)
    },
    refused: () => signer.refused(),
  }
}

/** The credentials come as a signer that holds them: a signer derives one key a day from them and keeps it. */
async function signerOf(auth: AwsAuth): Promise<Fetched<SignatureV4>> {
  const { SignatureV4 } = await import('@smithy/signature-v4')
  const { credentials, expiresAt } = await credentialsOf(auth)
  const { region, service } = auth
  const value = new SignatureV4({ credentials, region, service, sha256: Sha256, applyChecksum: false })
  return { value, expiresAt }
}

/**
 * The keys of gateway.yaml; else the vendor's chain: environment, profile, web identity, container role, instance role.
 * A new chain each time, since a chain remembers what it found.
 */
async function credentialsOf(auth: AwsAuth): Promise<{ credentials: Credentials; expiresAt: number | null }> {
  const { access_key_id, secret_access_key, session_token, profile, region } = auth
  if (access_key_id !== undefined && secret_access_key !== undefined) {
    const credentials = {
      accessKeyId: access_key_id,
      secretAccessKey: secret_access_key,
      ...(session_token !== undefined && { sessionToken: session_token }),
    }
    return { credentials, expiresAt: null }
  }
  const { defaultProvider } = await import('@aws-sdk/credential-provider-node')
  const found = await defaultProvider({
    ignoreCache: true,
    clientConfig: { region },
    ...(profile !== undefined && { profile }),
  })()
  return { credentials: found, expiresAt: found.expiration?.getTime() ?? null }
}

async function signed(signer: SignatureV4, request: UnsignedRequest, clock: Clock): Promise<AuthHeaders> {
  const url = new URL(request.origin)
  const question = request.path.indexOf('?')
  const path = question === -1 ? request.path : request.path.slice(0, question)
  const query: Record<string, string> = {}
  if (question !== -1)
    for (const [name, value] of new URLSearchParams(request.path.slice(question))) query[name] = value
  const type = request.headers['content-type']
  const hash = createHash('sha256')
  for (const piece of typeof request.body === 'string' ? [request.body] : request.body) hash.update(piece)
  const before: Record<string, string> = {
    host: url.host,
    // The signer takes this for the hash of the body, and need not have the body in one piece.
    'x-amz-content-sha256': hash.digest('hex'),
    ...(type !== undefined && { 'content-type': type }),
  }
  const { headers } = await signer.sign(
    {
      method: request.method,
      protocol: url.protocol,
      hostname: url.hostname,
      path,
      query,
      headers: before,
    },
    { signingDate: new Date(clock.now()) },
  )
  const added: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers))
    if (name !== 'host' && name !== 'content-type') added[name.toLowerCase()] = value
  return added
}
