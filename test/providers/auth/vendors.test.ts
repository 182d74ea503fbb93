/**
 * The vendors' libraries against fakes of the services that they ask. What they send is checked without them:
 * signatures are computed again by aws4, and the service account's assertion is verified with its public key.
 */
import assert from 'node:assert/strict'
import { createVerify, generateKeyPairSync } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { createServer as createTlsServer } from 'node:tls'
import aws4, { type Credentials } from 'aws4'
import { AuthFault, type UnsignedRequest } from '../../../core/ports/auth.ts'
import { type Clock, systemClock } from '../../../core/tools/clock.ts'
import { authenticator } from '../../../providers/auth/index.ts'
import type { ProviderAuth } from '../../../providers/auth/settings.ts'
import { hasOpenssl, makeCertificates } from '../../faults/certificates.ts'
import { environment, tokenService } from './fakes.ts'

const REQUEST: UnsignedRequest = {
  method: 'POST',
  origin: 'http://127.0.0.1:8080',
  path: '/model/anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke',
  headers: { 'content-type': 'application/json', accept: 'application/json' },
  body: '{"messages":[{"role":"user","content":"Grüße"}]}',
}
/** No place of the machine that runs the test gives credentials. */
const NOTHING = {
  AWS_ACCESS_KEY_ID: undefined,
  AWS_SECRET_ACCESS_KEY: undefined,
  AWS_SESSION_TOKEN: undefined,
  AWS_PROFILE: undefined,
  AWS_CONFIG_FILE: '/nonexistent',
  AWS_SHARED_CREDENTIALS_FILE: '/nonexistent',
  AWS_EC2_METADATA_DISABLED: 'true',
  GOOGLE_APPLICATION_CREDENTIALS: undefined,
  IDENTITY_ENDPOINT: undefined,
  IDENTITY_HEADER: undefined,
}
const folder = mkdtempSync(join(tmpdir(), 'sluice-auth-'))
const restore = environment(NOTHING)
after(() => {
  restore()
  rmSync(folder, { recursive: true, force: true })
})

/** A busy machine may need longer for loading a library than a gateway waits for a token. */
const patient: Clock = { ...systemClock, setTimer: (ms, fire) => systemClock.setTimer(100 * ms, fire) }
const headersOf = async (auth: ProviderAuth, request = REQUEST) => authenticator(auth, patient).headers(request)
const inFile = (name: string, text: string) => {
  writeFileSync(join(folder, name), text)
  return join(folder, name)
}
const soon = () => new Date(systemClock.now() + 3_600_000).toISOString()

describe('aws', () => {
  const AWS = { kind: 'aws', region: 'us-east-1', service: 'bedrock' } as const
  const KEYS = { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY' }

  /** Signs the request again with aws4, at the time that the signature names. */
  function assertSigned(signed: Readonly<Record<string, string>>, request: UnsignedRequest, keys: Credentials) {
    const again = aws4.sign(
      {
        service: 'bedrock',
        region: 'us-east-1',
        method: request.method,
        host: new URL(request.origin).host,
        path: request.path,
        headers: {
          'content-type': request.headers['content-type']!,
          'x-amz-date': signed['x-amz-date']!,
          'x-amz-content-sha256': signed['x-amz-content-sha256']!,
        },
        body:
          typeof request.body === 'string'
            ? request.body
            : Buffer.concat(request.body.map(piece => Buffer.from(piece))),
        // The gateway's client writes this header after the signature is made.
        extraHeadersToIgnore: { 'content-length': true },
      },
      keys,
    )
    assert.equal(signed['authorization'], again.headers!['Authorization'])
  }

  test('static keys: another library makes the same signature, for every path, query and body', async () => {
    const auth = { ...AWS, access_key_id: KEYS.accessKeyId, secret_access_key: KEYS.secretAccessKey }
    const requests: UnsignedRequest[] = [
      REQUEST,
      { ...REQUEST, path: '/openai/v1/chat/completions' },
      { ...REQUEST, path: '/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.x/invoke' },
      { ...REQUEST, path: '/a?b=c&a=%20%2F&api-version=2024-10-21' },
      { ...REQUEST, body: '' },
      { ...REQUEST, body: ['{"text":"', Buffer.from('Grüße'), '"}'] },
    ]
    for (const request of requests) assertSigned(await headersOf(auth, request), request, KEYS)
    const other = await headersOf({ ...auth, secret_access_key: 'another' })
    assert.throws(() => assertSigned(other, REQUEST, KEYS))
  })

  test('temporary keys of the environment go with their session token', async context => {
    context.after(
      environment({
        AWS_ACCESS_KEY_ID: KEYS.accessKeyId,
        AWS_SECRET_ACCESS_KEY: KEYS.secretAccessKey,
        AWS_SESSION_TOKEN: 'session-of-env',
      }),
    )
    const signed = await headersOf(AWS)
    assert.equal(signed['x-amz-security-token'], 'session-of-env')
    assertSigned(signed, REQUEST, { ...KEYS, sessionToken: 'session-of-env' })
  })

  test('a profile of the shared files', async context => {
    const file = inFile(
      'credentials',
      `[default]\naws_access_key_id=NO\naws_secret_access_key=no\n[team]\naws_access_key_id=${KEYS.accessKeyId}\naws_secret_access_key=${KEYS.secretAccessKey}\n`,
    )
    context.after(environment({ AWS_SHARED_CREDENTIALS_FILE: file }))
    assertSigned(await headersOf({ ...AWS, profile: 'team' }), REQUEST, KEYS)
  })

  test('a container role, whose endpoint wants its authorization token', async context => {
    const service = await tokenService(({ headers }) =>
      headers.authorization === 'pod-token'
        ? { AccessKeyId: KEYS.accessKeyId, SecretAccessKey: KEYS.secretAccessKey, Token: 'of-pod', Expiration: soon() }
        : 403,
    )
    context.after(() => service.close())
    context.after(
      environment({
        AWS_CONTAINER_CREDENTIALS_FULL_URI: `${service.url}/role`,
        AWS_CONTAINER_AUTHORIZATION_TOKEN: 'pod-token',
      }),
    )
    assertSigned(await headersOf(AWS), REQUEST, { ...KEYS, sessionToken: 'of-pod' })
    assert.equal(service.asked.length, 1)
  })

  test('an instance role, with the session token of the metadata service', async context => {
    const service = await tokenService(({ path, headers }) => {
      if (path === '/latest/api/token') return 'imds-session'
      if (headers['x-aws-ec2-metadata-token'] !== 'imds-session') return 401
      if (path.endsWith('/security-credentials/')) return 'the-role'
      return {
        Code: 'Success',
        AccessKeyId: KEYS.accessKeyId,
        SecretAccessKey: KEYS.secretAccessKey,
        Token: 'of-instance',
        Expiration: soon(),
      }
    })
    context.after(() => service.close())
    context.after(environment({ AWS_EC2_METADATA_DISABLED: undefined, AWS_EC2_METADATA_SERVICE_ENDPOINT: service.url }))
    assertSigned(await headersOf(AWS), REQUEST, { ...KEYS, sessionToken: 'of-instance' })
  })

  test('web identity: the token of the file goes to the token service', async context => {
    const service = await tokenService(({ body }) => {
      const asked = new URLSearchParams(body)
      if (asked.get('Action') !== 'AssumeRoleWithWebIdentity' || asked.get('WebIdentityToken') !== 'jwt-of-pod')
        return 403
      return `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>${KEYS.accessKeyId}</AccessKeyId><SecretAccessKey>${KEYS.secretAccessKey}</SecretAccessKey><SessionToken>of-web</SessionToken><Expiration>${soon()}</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`
    })
    context.after(() => service.close())
    context.after(
      environment({
        AWS_WEB_IDENTITY_TOKEN_FILE: inFile('web-token', 'jwt-of-pod'),
        AWS_ROLE_ARN: 'arn:aws:iam::123456789012:role/gateway',
        AWS_ENDPOINT_URL_STS: service.url,
      }),
    )
    assertSigned(await headersOf(AWS), REQUEST, { ...KEYS, sessionToken: 'of-web' })
  })

  test('no credentials anywhere', async () => {
    await assert.rejects(headersOf(AWS), AuthFault)
  })
})

describe('google', () => {
  const GOOGLE = { kind: 'google', scopes: ['https://www.googleapis.com/auth/cloud-platform'] } as const

  test('the metadata server of the machine', async context => {
    const service = await tokenService(
      ({ path, headers }) =>
        headers['metadata-flavor'] === 'Google' && path.includes('/service-accounts/default/token')
          ? { access_token: 'of-machine', expires_in: 3599, token_type: 'Bearer' }
          : 403,
      {
        '/computeMetadata/v1/instance': 'x',
        '/computeMetadata/v1/project/project-id': 'p',
        '/computeMetadata/v1/universe/universe-domain': 'googleapis.com',
      },
    )
    context.after(() => service.close())
    // The library would look for the server for three seconds of the clock, which a busy machine may need.
    const present = { METADATA_SERVER_DETECTION: 'assume-present' }
    context.after(environment({ GCE_METADATA_HOST: service.url.slice('http://'.length), HOME: folder, ...present }))
    assert.deepEqual(await headersOf(GOOGLE), { authorization: 'Bearer of-machine' })
  })

  test('workload identity: the token of the file is exchanged', async context => {
    const service = await tokenService(({ body }) =>
      new URLSearchParams(body).get('subject_token') === 'jwt-of-pod'
        ? { access_token: 'of-federation', expires_in: 3599, token_type: 'Bearer', issued_token_type: 'x' }
        : 400,
    )
    context.after(() => service.close())
    const credentials = inFile(
      'federation.json',
      JSON.stringify({
        type: 'external_account',
        audience: '//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q',
        subject_token_type: 'urn:ietf:params:oauth:token-type:jwt',
        token_url: `${service.url}/v1/token`,
        credential_source: { file: inFile('google-token', 'jwt-of-pod') },
      }),
    )
    assert.deepEqual(await headersOf({ ...GOOGLE, credentials }), { authorization: 'Bearer of-federation' })
    service.answer = () => 400
    await assert.rejects(headersOf({ ...GOOGLE, credentials }), AuthFault)
  })

  test('a service account: its assertion is signed with its key', {
    skip: !hasOpenssl() && 'no openssl',
  }, async context => {
    const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
    const service = await tokenService(({ path, body }) => {
      const assertion = new URLSearchParams(body).get('assertion') ?? ''
      const [head, claims, signature] = assertion.split('.')
      const valid = createVerify('RSA-SHA256').update(`${head}.${claims}`).verify(publicKey, signature!, 'base64url')
      const { iss, scope, aud } = JSON.parse(Buffer.from(claims!, 'base64url').toString())
      const right = path === '/token' && iss === 'gateway@p.iam.gserviceaccount.com' && scope === GOOGLE.scopes[0]
      return valid && right && aud === 'https://oauth2.googleapis.com/token'
        ? { access_token: 'of-account', expires_in: 3599, token_type: 'Bearer' }
        : 401
    })
    context.after(() => service.close())
    const proxy = await interceptingProxy(service.url)
    context.after(() => proxy.close())
    context.after(environment({ HTTPS_PROXY: proxy.url, NODE_TLS_REJECT_UNAUTHORIZED: '0' }))
    const credentials = inFile(
      'account.json',
      JSON.stringify({
        type: 'service_account',
        client_email: 'gateway@p.iam.gserviceaccount.com',
        private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
        private_key_id: 'k',
        project_id: 'p',
      }),
    )
    assert.deepEqual(await headersOf({ ...GOOGLE, credentials }), { authorization: 'Bearer of-account' })
    assert.equal(service.asked.length, 1)
  })
})

describe('azure', () => {
  const AZURE = {
    kind: 'azure',
    scope: 'https://cognitiveservices.azure.com/.default',
    authority: 'https://login.microsoftonline.com',
  } as const
  const real = globalThis.fetch
  let login: Awaited<ReturnType<typeof tokenService>>
  const answered = { token_type: 'Bearer', expires_in: 3599, access_token: 'of-application' }

  before(async () => {
    login = await tokenService(() => answered, {
      '/tenant-1/v2.0/.well-known/openid-configuration': JSON.stringify({
        issuer: 'https://login.microsoftonline.com/tenant-1/v2.0',
        token_endpoint: 'https://login.microsoftonline.com/tenant-1/oauth2/v2.0/token',
        authorization_endpoint: 'https://login.microsoftonline.com/tenant-1/oauth2/v2.0/authorize',
        jwks_uri: 'https://login.microsoftonline.com/tenant-1/discovery/v2.0/keys',
      }),
    })
    // The library refuses a login service without TLS, so its requests are led to the fake below it.
    globalThis.fetch = (input, init) =>
      real(String(input).replace('https://login.microsoftonline.com', login.url), init)
  })
  after(async () => {
    globalThis.fetch = real
    await login.close()
  })

  test('an application with its secret', async () => {
    login.answer = ({ path, body }) => {
      const asked = new URLSearchParams(body)
      const right =
        path.startsWith('/tenant-1/oauth2/v2.0/token') &&
        asked.get('grant_type') === 'client_credentials' &&
        asked.get('client_id') === 'app-1' &&
        asked.get('client_secret') === 'secret-1' &&
        asked.get('scope')?.includes(AZURE.scope)
      return right ? answered : 401
    }
    const auth = { ...AZURE, tenant_id: 'tenant-1', client_id: 'app-1', client_secret: 'secret-1' }
    assert.deepEqual(await headersOf(auth), { authorization: 'Bearer of-application' })
    await assert.rejects(headersOf({ ...auth, client_secret: 'secret-2' }), (fault: Error) => {
      assert.ok(fault instanceof AuthFault)
      assert.ok(!fault.message.includes('secret-2'))
      return true
    })
  })

  test('workload identity: the federated token of the file goes in place of the secret', async () => {
    login.answer = ({ body }) => (new URLSearchParams(body).get('client_assertion') === 'jwt-of-pod' ? answered : 401)
    const token_file = inFile('azure-token', 'jwt-of-pod\n')
    const auth = { ...AZURE, tenant_id: 'tenant-1', client_id: 'app-1', token_file }
    assert.deepEqual(await headersOf(auth), { authorization: 'Bearer of-application' })
  })

  test('a managed identity of the machine', async context => {
    const service = await tokenService(({ path, headers }) => {
      const asked = new URL(path, 'http://x').searchParams
      const right =
        headers['x-identity-header'] === 'machine-secret' &&
        asked.get('resource') === 'https://cognitiveservices.azure.com' &&
        asked.get('client_id') === 'identity-1'
      const expires_on = Math.floor(systemClock.now() / 1000) + 3600
      return right ? { access_token: 'of-machine', expires_on, resource: 'x', token_type: 'Bearer' } : 400
    })
    context.after(() => service.close())
    context.after(environment({ IDENTITY_ENDPOINT: `${service.url}/token`, IDENTITY_HEADER: 'machine-secret' }))
    assert.deepEqual(await headersOf({ ...AZURE, client_id: 'identity-1' }), { authorization: 'Bearer of-machine' })
  })
})

/** A CONNECT proxy that ends every tunnel itself, with a certificate of its own, and sends the requests to `target`. */
async function interceptingProxy(target: string) {
  const certificates = makeCertificates()
  const { port } = new URL(target)
  const sockets = new Set<Socket>()
  const tls = createTlsServer(certificates.selfSigned, socket => {
    const onward = connect(Number(port), '127.0.0.1')
    socket.pipe(onward).pipe(socket)
    for (const each of [socket, onward]) each.on('error', () => each.destroy())
    sockets.add(onward)
  })
  const server = createServer(socket => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.once('data', () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n')
      tls.emit('connection', socket)
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as { port: number }).port}`,
    close: () => {
      for (const socket of sockets) socket.destroy()
      server.close()
      certificates.remove()
    },
  }
}
