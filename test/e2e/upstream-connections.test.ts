/** How the gateway reaches its providers: TLS with its own CA and client certificate, HTTP/2, a proxy, DNS. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { createSecureServer } from 'node:http2'
import { type AddressInfo, connect, type LookupFunction, type Socket } from 'node:net'
import { after, before, type TestContext, test } from 'node:test'
import { Http1Client } from '../../plugins/upstream/http1/client.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { behave, startFakeUpstream } from '../fake-upstream/server.ts'
import { type Certificates, hasOpenssl, makeCertificates } from '../faults/certificates.ts'
import { read, saidIn, TableClock } from '../faults/table.ts'
import { KEY, startGateway, type TestGateway } from './harness.ts'

const skip = hasOpenssl() ? false : 'SKIPPED: there is no openssl here to make certificates with'
let pki: Certificates
before(() => {
  if (!skip) pki = makeCertificates()
})
after(() => pki?.remove())

async function gatewayTo(context: TestContext, url: string, more = ''): Promise<TestGateway> {
  const t = await startGateway({
    providers: `  one: { dialect: openai-chat, base_url: "${url}", ${more} }`,
    models:
      '  eb1-preview: { context_window: 400000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: one, model: sim-aaaa }] }',
    plugins: { upstream: '{ connect_timeout: 2s }' },
    gateway: { clock: new TableClock() },
  })
  context.after(() => t.close())
  return t
}

async function ask(t: TestGateway, mode: 'whole' | 'streamed' = 'whole', text = 'x') {
  const body = {
    model: 'eb1-preview',
    max_tokens: 100,
    stream: mode === 'streamed',
    messages: [{ role: 'user', content: `[[sim: text "fine"]] ${text}` }],
  }
  const { status, text: reply } = await t.post('/v1/chat/completions', body).then(read)
  return status === 200 ? saidIn('chat', mode, reply) : `${status} ${JSON.parse(reply).error.code}`
}

test('TLS: a certificate of the CA in tls.ca is trusted; others are refused before anything is sent', {
  skip,
}, async context => {
  const good = await startFakeUpstream(behave, { tls: pki.server })
  const own = await startFakeUpstream(behave, { tls: pki.selfSigned })
  const other = await startFakeUpstream(behave, { tls: pki.elsewhere })
  context.after(() => Promise.all([good.close(), own.close(), other.close()]))
  const trusted = await gatewayTo(context, good.url, `tls: { ca: "${pki.ca}" }`)
  assert.equal(await ask(trusted), 'fine')
  assert.equal(await ask(trusted, 'streamed'), 'fine')
  assert.equal(good.accepted, 1, 'the connection is kept')
  const cases: [typeof good, string][] = [
    [good, ''],
    [own, ''],
    [own, `tls: { ca: "${pki.ca}" }`],
    [other, `tls: { ca: "${pki.ca}" }`],
  ]
  for (const [server, tls] of cases) {
    const seen = server.requests.length
    assert.equal(await ask(await gatewayTo(context, server.url, tls)), '503 provider_unavailable')
    assert.equal(server.requests.length, seen)
  }
})

test('mTLS: the client certificate of tls.cert and tls.key', { skip }, async context => {
  const server = await startFakeUpstream(behave, {
    tls: { ...pki.server, requestCert: true, rejectUnauthorized: true },
  })
  context.after(() => server.close())
  const { cert, key } = pki.client
  assert.equal(
    await ask(await gatewayTo(context, server.url, `tls: { ca: "${pki.ca}", cert: "${cert}", key: "${key}" }`)),
    'fine',
  )
  const without = await ask(await gatewayTo(context, server.url, `tls: { ca: "${pki.ca}" }`))
  assert.match(without, /^50[23] /)
  assert.equal(server.requests.length, 1)
})

/** Node does not tell an end of TLS from a cut: a body that ends with its connection must show its own end. */
test('TLS: a reply without a length, cut anywhere, is never taken for a whole one', { skip }, async context => {
  const server = await startFakeUpstream(behave, { tls: pki.server })
  context.after(() => server.close())
  const t = await gatewayTo(context, server.url, `tls: { ca: "${pki.ca}" }`)
  for (const share of [1, 0.99, 0.8, 0.5, 0.1, 0]) {
    server.script = async turn => {
      const { type, body } = await turn.reply()
      await turn.head(200, { 'content-type': type, connection: 'close' })
      await turn.write(body.subarray(0, Math.floor(body.length * share)))
      await turn.fin()
    }
    assert.equal(await ask(t), share === 1 ? 'fine' : '502 upstream_server_error', `${share}`)
  }
})

test('HTTP/2 behind http2: true: many streams on one connection', { skip }, async context => {
  const simulator = await startSimulator({ port: 0 })
  let sessions = 0
  const server = createSecureServer({ ...pki.server, allowHTTP1: true }, async (req, res) => {
    const pieces: Buffer[] = []
    for await (const piece of req) pieces.push(piece as Buffer)
    const reply = await fetch(simulator.url + req.url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: Buffer.concat(pieces),
    })
    res.writeHead(reply.status, { 'content-type': reply.headers.get('content-type')!, 'x-http': req.httpVersion })
    res.end(Buffer.from(await reply.arrayBuffer()))
  })
  server.on('session', () => sessions++)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  context.after(() => {
    server.close()
    return simulator.close()
  })
  const url = `https://localhost:${(server.address() as AddressInfo).port}`
  const t = await gatewayTo(context, url, `http2: true, tls: { ca: "${pki.ca}" }`)
  assert.equal(await ask(t), 'fine')
  const many = await Promise.all(Array.from({ length: 40 }, (_, i) => ask(t, i % 2 ? 'whole' : 'streamed')))
  assert.ok(many.every(said => said === 'fine'))
  assert.equal(sessions, 1)
  // A long text goes out in pieces elsewhere.
  const long = 'é "quoted" 😀\n'.repeat(5000)
  assert.equal(await ask(t, 'whole', long), 'fine')
  const { messages } = simulator.requests.at(-1)!.json as { messages: { content: string }[] }
  assert.equal(messages[0]!.content, `[[sim: text "fine"]] ${long}`)
})

test('HTTP proxy: tunnelled by CONNECT; a proxy that refuses is an upstream that cannot be reached', async context => {
  const target = await startFakeUpstream()
  const asked: string[] = []
  const open = new Set<Socket>()
  let refuse = false
  const proxy = createHttpServer().on('connect', (req, client: Socket, head: Buffer) => {
    asked.push(req.url!)
    open.add(client)
    client.on('error', () => {})
    if (refuse) return client.end('HTTP/1.1 403 Forbidden\r\n\r\n')
    const [host, port] = req.url!.split(':')
    const upstream = connect(Number(port), host, () => {
      client.write('HTTP/1.1 200 OK\r\n\r\n')
      upstream.write(head)
      upstream.pipe(client).pipe(upstream)
    })
    upstream.on('error', () => client.destroy())
    open.add(upstream)
  })
  proxy.listen(0, '127.0.0.1')
  await once(proxy, 'listening')
  context.after(async () => {
    for (const socket of open) socket.destroy()
    proxy.close()
    await target.close()
  })
  const via = `proxy: "http://127.0.0.1:${(proxy.address() as AddressInfo).port}"`
  const t = await gatewayTo(context, target.url, via)
  assert.equal(await ask(t), 'fine')
  assert.equal(await ask(t, 'streamed'), 'fine')
  assert.deepEqual(new Set(asked), new Set([`127.0.0.1:${target.port}`]))
  refuse = true
  assert.match(await ask(await gatewayTo(context, target.url, via)), /^50[23] /)
  assert.equal(target.requests.length, 2)
})

test('DNS: a name that does not exist is an upstream that cannot be reached', async context => {
  const t = await gatewayTo(context, 'http://nobody.invalid:8080')
  assert.match(await ask(t), /^50[34] (provider_unavailable|gateway_timeout)$/)
})

/** A client whose names resolve as the test says. */
function resolving(
  context: TestContext,
  port: number,
  options: { lookup: LookupFunction; maxAgeMs?: number; connectTimeoutMs?: number },
) {
  const client = new Http1Client({
    origin: `http://provider.test:${port}`,
    connectTimeoutMs: 1000,
    keepAliveMs: 4000,
    ...options,
  })
  context.after(() => client.close())
  return () =>
    new Promise<number>((resolve, reject) => {
      let status = 0
      client.dispatch(
        {
          path: '/chat/completions',
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: '{"model":"m","messages":[{"role":"user","content":"x"}]}',
        },
        {
          onRequestStart() {},
          onResponseStart: (_, code) => void (status = code),
          onResponseData() {},
          onResponseEnd: () => resolve(status),
          onResponseError: (_, error) => reject(error),
        },
      )
    })
}

test('DNS: a change is followed once a connection is of age, busy or not', async context => {
  const server = await startFakeUpstream(behave, { host: '0.0.0.0' })
  context.after(() => server.close())
  const asked: string[] = []
  let address = '127.0.0.1'
  const lookup: LookupFunction = (name, options, done) => {
    asked.push(name)
    if (options.all) done(null, [{ address, family: 4 }])
    else done(null, address, 4)
  }
  const kept = resolving(context, server.port, { lookup })
  assert.deepEqual([await kept(), await kept(), asked.length, server.accepted], [200, 200, 1, 1])
  const aging = resolving(context, server.port, { lookup, maxAgeMs: 0 })
  await aging()
  address = '127.0.0.2'
  await aging()
  assert.deepEqual([asked.length, server.accepted], [3, 3])
})

test('DNS: a resolver that never answers ends with the connect timeout', async context => {
  const ask = resolving(context, 1, { lookup: () => {}, connectTimeoutMs: 50 })
  await assert.rejects(ask(), { code: 'UND_ERR_CONNECT_TIMEOUT' })
})

/**
 * A buffered reply is decoded when its connection is free again: what a hold then paused was the connection, and the
 * next request on it waited for ever.
 */
test('[STR-4] a hold on a reply that has been read to its end leaves its connection to the next request', {
  timeout: 120_000,
}, async context => {
  const upstream = await startFakeUpstream()
  context.after(() => upstream.close())
  const t = await startGateway({
    providers: `  one: { dialect: openai-responses, base_url: "${upstream.url}" }`,
    models:
      '  eb1-preview: { context_window: 400000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: one, model: sim-aaaa }] }',
  })
  context.after(() => t.close())
  // A call behind reasoning: what the dialect needs to go on with is kept before anything of it leaves.
  const tools = [{ type: 'custom', name: 'add', input_schema: { type: 'object', properties: {} } }]
  const messages = [{ role: 'user', content: '[[sim: reason 1; call add {}]] x' }]
  for (const stream of [false, true, false]) {
    const response = await fetch(`${t.url}/v1/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
      body: JSON.stringify({ model: 'eb1-preview', max_tokens: 2000, stream, tools, messages }),
    })
    assert.match(await response.text(), /"tool_use"/)
  }
  assert.equal(upstream.accepted, 1, 'one connection for all')
})
