/** `auth` of a provider, through a listening gateway: what goes upstream, and what a client gets without credentials. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import aws4 from 'aws4'
import { eventually } from '../eventually.ts'
import { environment, type TokenService, tokenService } from '../providers/auth/fakes.ts'
import { defaultYaml, KEY, startGateway, type TestGateway, type TestOptions } from './harness.ts'

const BODY = { model: 'eb1-preview', messages: [{ role: 'user', content: 'hello' }] }
const MODELS =
  '  eb1-preview: { context_window: 400000, price: { input: 1, output: 1 }, backends: [{ provider: one, model: sim-large }] }'

async function gateway(context: { after(fn: () => void): void }, provider: string, more: TestOptions = {}) {
  const running = await startGateway({
    yaml: url =>
      defaultYaml(url, {
        providers: `  one: { dialect: openai-chat, base_url: "${url}", ${provider} }`,
        models: MODELS,
        ...more,
      }),
  })
  context.after(() => running.close())
  return running
}

/** A metadata server of Google Cloud, whose tokens live as long as it says. */
async function metadata(context: { after(fn: () => void): void }): Promise<TokenService> {
  let given = 0
  const service = await tokenService(() => ({ access_token: `token-${++given}`, expires_in: 3599 }), {
    '/computeMetadata/v1/instance': 'x',
    '/computeMetadata/v1/project/project-id': 'p',
    '/computeMetadata/v1/universe/universe-domain': 'googleapis.com',
  })
  context.after(() => service.close())
  const host = service.url.slice('http://'.length)
  context.after(
    environment({ GCE_METADATA_HOST: host, GOOGLE_APPLICATION_CREDENTIALS: undefined, HOME: '/nonexistent' }),
  )
  return service
}

const last = ({ simulator }: TestGateway) => simulator.requests.at(-1)!

describe('a key in a header', () => {
  for (const [auth, header, value] of [
    ['auth: bearer', 'authorization', 'Bearer key-of-one'],
    ['auth: { header: X-Team-Key }', 'x-team-key', 'key-of-one'],
    ['auth: azure', 'api-key', 'key-of-one'],
  ] as const) {
    test(auth, async context => {
      const running = await gateway(context, `api_key: key-of-one, ${auth}`)
      assert.equal((await running.post('/v1/chat/completions', BODY)).status, 200)
      const { headers } = last(running)
      assert.equal(headers[header], value)
      if (header !== 'authorization') assert.equal(headers.authorization, undefined)
    })
  }

  test('bearer replaces the header of a dialect that has another', async context => {
    const running = await startGateway({
      yaml: url =>
        defaultYaml(url, {
          providers: `  one: { dialect: anthropic-messages, base_url: "${url}", api_key: key-of-one, auth: bearer }`,
          models: MODELS,
        }),
    })
    context.after(() => running.close())
    assert.equal((await running.post('/v1/chat/completions', BODY)).status, 200)
    assert.equal(last(running).headers.authorization, 'Bearer key-of-one')
    assert.equal(last(running).headers['x-api-key'], undefined)
  })
})

describe('aws', () => {
  const KEYS = { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'secret-of-the-test' }
  const AUTH = `auth: { aws: { region: eu-west-1, access_key_id: ${KEYS.accessKeyId}, secret_access_key: ${KEYS.secretAccessKey} } }`

  /** Another library makes the same signature of what arrived. */
  function assertSigned({ headers, body, path }: TestGateway['simulator']['requests'][number]) {
    const again = aws4.sign(
      {
        service: 'bedrock',
        region: 'eu-west-1',
        method: 'POST',
        host: headers.host!,
        path,
        headers: {
          'content-type': headers['content-type']!,
          'x-amz-date': headers['x-amz-date'] as string,
          'x-amz-content-sha256': headers['x-amz-content-sha256'] as string,
        },
        body,
        extraHeadersToIgnore: { 'content-length': true },
      },
      KEYS,
    )
    assert.equal(headers.authorization, again.headers!['Authorization'])
  }

  for (const stream of [false, true]) {
    test(`what arrives upstream has a valid signature; stream ${stream}`, async context => {
      const running = await gateway(context, AUTH)
      const long = { ...BODY, stream, messages: [{ role: 'user', content: 'Grüße '.repeat(20_000) }] }
      const response = await running.post('/v1/chat/completions', long)
      assert.equal(response.status, 200)
      await response.text()
      assertSigned(last(running))
    })
  }

  test('a retry has a signature of its own', async context => {
    const running = await gateway(context, AUTH, {
      models:
        '  eb1-preview: { context_window: 400000, price: { input: 1, output: 1 }, backends: [{ provider: one, model: a }, { provider: one, model: b }] }',
    })
    const failing = { ...BODY, messages: [{ role: 'user', content: '[[sim: status 503]]' }] }
    assert.equal((await running.post('/v1/chat/completions', failing)).status, 503)
    const [first, second] = running.simulator.requests
    assert.equal(running.simulator.requests.length, 2)
    assertSigned(first!)
    assertSigned(second!)
    assert.notEqual(first!.headers.authorization, second!.headers.authorization)
  })
})

describe('tokens', () => {
  test('one token serves all requests, also those that come before there is one', async context => {
    const service = await metadata(context)
    const running = await gateway(context, 'auth: google')
    const all = await Promise.all(Array.from({ length: 50 }, () => running.post('/v1/chat/completions', BODY)))
    assert.deepEqual(new Set(all.map(({ status }) => status)), new Set([200]))
    assert.equal(service.asked.length, 1)
    const sent = new Set(running.simulator.requests.map(({ headers }) => headers.authorization))
    assert.deepEqual(sent, new Set(['Bearer token-1']))
  })

  test('a reload that changes nothing of the provider keeps its token', async context => {
    const service = await metadata(context)
    const running = await gateway(context, 'auth: google')
    await running.post('/v1/chat/completions', BODY)
    await running.gateway.reload()
    await running.post('/v1/chat/completions', BODY)
    assert.equal(service.asked.length, 1)
  })

  /** A failure to get a token was no fault of the upstream's: were it counted, the breaker would open after five. */
  test('without credentials a request fails as 502 and counts against nobody; then all is as before', async context => {
    const service = await metadata(context)
    service.answer = () => 403
    const running = await gateway(context, 'auth: google', {
      plugins: { upstream: '{ breaker: { failures: 1, open_for: 1h } }' },
    })
    for (let i = 0; i < 3; i++) {
      const response = await running.post('/v1/chat/completions', BODY)
      assert.equal(response.status, 502)
      const { error } = (await response.json()) as any
      // The next fetch may succeed, unlike a retry with a key that the provider has refused.
      assert.deepEqual([error.code, error.retryable], ['upstream_auth_error', true])
    }
    assert.equal(running.simulator.requests.length, 0)
    const failed = running.log.find(({ message }) => message === 'attempt failed')!
    assert.equal(failed.fields.err.name, 'AuthFault')
    assert.ok(!running.log.some(({ message }) => message === 'backend left out'))
    service.answer = () => ({ access_token: 'token-later', expires_in: 3599 })
    await eventually(async () => (await running.post('/v1/chat/completions', BODY)).status === 200)
    assert.equal(last(running).headers.authorization, 'Bearer token-later')
  })

  test('a token that the provider refuses is told as to be retried: the gateway fetches another', async context => {
    await metadata(context)
    const running = await gateway(context, 'auth: google')
    const refused = { ...BODY, messages: [{ role: 'user', content: '[[sim: status 401 code auth]] x' }] }
    const response = await running.post('/v1/chat/completions', refused)
    const { error } = (await response.json()) as any
    assert.deepEqual([response.status, error.code, error.retryable], [502, 'upstream_auth_error', true])
    assert.equal(response.headers.get('x-should-retry'), null)
  })

  test('another backend is tried when one has no credentials', async context => {
    const service = await metadata(context)
    service.answer = () => 403
    const running = await startGateway({
      yaml: url =>
        defaultYaml(url, {
          providers: `  one: { dialect: openai-chat, base_url: "${url}", auth: google }\n  two: { dialect: openai-chat, base_url: "${url}", api_key: key-of-two }`,
          models:
            '  eb1-preview: { context_window: 400000, price: { input: 1, output: 1 }, backends: [{ provider: one, model: a }, { provider: two, model: b }] }',
        }),
    })
    context.after(() => running.close())
    assert.equal((await running.post('/v1/chat/completions', BODY)).status, 200)
    assert.equal(last(running).headers.authorization, 'Bearer key-of-two')
  })

  test('no log line holds a token, also when the provider repeats it', async context => {
    await metadata(context)
    const running = await gateway(context, 'auth: google')
    const refused = { ...BODY, messages: [{ role: 'user', content: '[[sim: status 401]]' }] }
    assert.equal((await running.post('/v1/chat/completions', refused)).status, 502)
    assert.ok(!JSON.stringify(running.log).includes('token-1'))
  })

  test('a client that leaves while the token is fetched gets nothing sent upstream', async context => {
    const service = await metadata(context)
    const asked = Promise.withResolvers<void>()
    const answer = Promise.withResolvers<unknown>()
    service.answer = () => {
      asked.resolve()
      return answer.promise
    }
    const running = await gateway(context, 'auth: google')
    const client = new AbortController()
    const request = assert.rejects(
      fetch(`${running.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
        body: JSON.stringify({ ...BODY, seed: 1 }),
        signal: client.signal,
      }),
    )
    await asked.promise
    client.abort()
    await request
    await eventually(() => running.gateway.ingress.running.size === 0)
    answer.resolve({ access_token: 'token-late', expires_in: 3599 })
    assert.equal((await running.post('/v1/chat/completions', BODY)).status, 200)
    assert.deepEqual(
      running.simulator.requests.map(({ json }) => json?.['seed']),
      [undefined],
    )
  })
})
