/** moderation-webhook: verdicts, what the service gets, and every way in which it can fail, closed and open. */
import assert from 'node:assert/strict'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import { registerPluginHooks } from '../../../config/modules.ts'
import { eventually } from '../../eventually.ts'

// With them a file can import `sluice`.
registerPluginHooks()
const { conversation } = await import('sluice')
const { ManualClock, MemoryIncoming, plainConversation, runPlugin } = await import('sluice/testing')
const { default: plugin } = await import('../../../plugins/extra/moderation-webhook.ts')

const SECRET = 'a prompt that must stay private'
const asked = plainConversation({
  system: [{ type: 'text', text: 'system' }],
  turns: [
    { role: 'user', parts: [{ type: 'text', text: 'old' }] },
    { role: 'assistant', parts: [{ type: 'text', text: 'said' }] },
    { role: 'user', parts: [{ type: 'text', text: SECRET }] },
  ],
})

async function withService(answer: RequestListener, use: (url: string) => Promise<void>): Promise<void> {
  const server = createServer(answer)
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  try {
    await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/moderations`)
  } finally {
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  }
}
const ask = (url: string, config: object = {}, more: object = {}) =>
  runPlugin<any>(plugin, { config: { url, ...config }, slots: [[conversation, asked]], ...more })
const says = (text: string, status = 200, headers = {}): RequestListener => {
  return (_, response) => response.writeHead(status, headers).end(text)
}

test('a prompt that is flagged is refused, another one served; the service gets the text and the key alone', async () => {
  const got: { body: any; headers: any }[] = []
  const service: RequestListener = async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    got.push({ body: JSON.parse(body), headers: request.headers })
    response.end(JSON.stringify({ results: [{ flagged: false }, { flagged: got.length === 2 }] }))
  }
  await withService(service, async url => {
    const request = { headers: { authorization: 'Bearer sk-client' } }
    const served = await ask(url, { api_key: 'k', model: 'm', scope: 'latest' }, { request })
    assert.equal(served.status, 200)
    const refused = await ask(url)
    assert.equal(refused.status, 400)
    assert.equal(refused.json.error.details.reason, 'content_policy')
    assert.deepEqual(got[0]!.body, { input: SECRET, model: 'm' })
    assert.equal(got[0]!.headers.authorization, 'Bearer k')
    assert.deepEqual(got[1]!.body, { input: `system\nold\nsaid\n${SECRET}` })
    assert.equal(got[1]!.headers.authorization, undefined)
    assert.ok(!JSON.stringify(refused.log).includes(SECRET))
  })
})

/** Starts a service that flags nothing; what it was asked is in `inputs`. */
async function withInputs(use: (url: string, inputs: string[]) => Promise<void>): Promise<void> {
  const inputs: string[] = []
  const service: RequestListener = async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    inputs.push(JSON.parse(Buffer.concat(chunks).toString()).input)
    response.end('{"results":[{"flagged":false}]}')
  }
  await withService(service, url => use(url, inputs))
}
const text = (text: string) => ({ type: 'text' as const, text })

// A prompt that ended with a message of the assistant was served, and nobody was asked: nothing followed that message.
test('both scopes ask about a prompt that ends with a turn of the assistant', async () => {
  const turns = [
    { role: 'user' as const, parts: [text('old')] },
    { role: 'assistant' as const, parts: [text('said')] },
    { role: 'user' as const, parts: [text('question')] },
    { role: 'assistant' as const, parts: [text('begun')] },
    {
      role: 'tool' as const,
      parts: [{ type: 'result' as const, callId: 'c', kind: 'function' as const, content: [text('result')], path: '' }],
    },
    { role: 'assistant' as const, parts: [text(SECRET)] },
  ]
  const only = [{ role: 'assistant' as const, parts: [text(SECRET)] }]
  await withInputs(async (url, inputs) => {
    for (const history of [turns, only])
      for (const scope of ['latest', 'all'] as const)
        await ask(url, { scope }, { slots: [[conversation, plainConversation({ turns: history })]] })
    assert.deepEqual(inputs, [
      `question\nbegun\nresult\n${SECRET}`,
      `old\nsaid\nquestion\nbegun\nresult\n${SECRET}`,
      SECRET,
      SECRET,
    ])
  })
})

test('by default all that the model reads is asked about: system text, tools, output schema, and every kind of part', async () => {
  const path = ''
  const asked = plainConversation({
    system: [text('in-system')],
    tools: [
      { type: 'function', name: 'f', description: 'in-function', parameters: { description: 'in-parameters' }, path },
      {
        type: 'custom',
        name: 'g',
        description: 'in-custom',
        grammar: { syntax: 'lark', definition: 'in-grammar' },
        path,
      },
      { type: 'web_search', userLocation: { city: 'in-location' }, path },
    ],
    output: { schema: { description: 'in-schema' }, description: 'in-output', strict: false, path },
    turns: [
      {
        role: 'user',
        parts: [
          text('in-text'),
          {
            type: 'document',
            source: { kind: 'text', text: 'in-document' },
            title: 'in-title',
            context: 'in-context',
            path,
          },
        ],
      },
      {
        role: 'assistant',
        parts: [
          { type: 'refusal', text: 'in-refusal' },
          { type: 'reasoning', summary: ['in-reasoning'] },
          {
            type: 'search',
            id: 's',
            query: 'in-query',
            results: [{ title: 'in-found', url: 'u', text: 'in-extract' }],
          },
          { type: 'call', id: 'c', kind: 'custom', name: 'g', input: 'in-call', path },
        ],
      },
      { role: 'tool', parts: [{ type: 'result', callId: 'c', kind: 'custom', content: [text('in-result')], path }] },
    ],
  })
  await withInputs(async (url, inputs) => {
    await ask(url, {}, { slots: [[conversation, asked]] })
    const expected = JSON.stringify(asked).match(/in-\w+/g)!
    assert.equal(expected.length, 19)
    assert.deepEqual(
      expected.filter(word => !inputs[0]!.includes(word)),
      [],
    )
  })
})

test('a long prompt is asked about byte for byte, wherever it is cut, and one over max_body is not written', async () => {
  const long = `${'é'.repeat(262_143)}${'😀"\n'.repeat(100_000)}`
  const asked = plainConversation({ turns: [{ role: 'user', parts: [text(long), text('end')] }] })
  const slots = [[conversation, asked]]
  await withInputs(async (url, inputs) => {
    assert.equal((await ask(url, { max_body: '8MiB' }, { slots, giveUpMs: 60_000 })).status, 200)
    assert.equal(inputs.length, 1)
    assert.ok(inputs[0] === `${long}\nend`)
    assert.equal((await ask(url, {}, { slots, giveUpMs: 60_000 })).status, 503)
    assert.equal(inputs.length, 1)
  })
})

const failures: [string, RequestListener, object?][] = [
  ['an error status', says('{"results":[{"flagged":false}]}', 500)],
  ['what is no JSON', says(SECRET)],
  ['an answer without a verdict', says('{"results":[]}')],
  ['a verdict that is no boolean', says('{"results":[{"flagged":"no"}]}')],
  ['an answer without end', (_, response) => void response.write('x'.repeat(100_000))],
  ['a redirect', says('', 307, { location: 'http://127.0.0.1:1/' })],
  ['a cut connection', (_, response) => response.destroy()],
  ['a prompt over max_body', says('{"results":[{"flagged":false}]}'), { max_body: '10B' }],
]
for (const [what, service, config] of failures) {
  test(`${what} fails closed, or open where the operator says so`, async () => {
    await withService(service, async url => {
      const closed = await ask(url, config)
      assert.equal(closed.status, 503)
      assert.equal((await ask(url, { ...config, on_failure: 'allow' })).status, 200)
      assert.ok(!(closed.body + JSON.stringify(closed.log)).includes(SECRET))
    })
  })
}

test('a service that hangs is given up at the timeout, and at once when the client leaves', async () => {
  let calls = 0
  let closed = 0
  const hangs: RequestListener = (_, response) => {
    calls++
    response.on('close', () => closed++)
  }
  await withService(hangs, async url => {
    const clock = new ManualClock()
    const late = ask(url, { timeout: '2s' }, { clock })
    await eventually(() => calls === 1)
    clock.advance(2000)
    assert.equal((await late).status, 503)
    const client = new MemoryIncoming()
    const left = ask(url, {}, { request: client })
    await eventually(() => calls === 2)
    client.abort()
    assert.equal((await left).settlement.outcome, 'client_gone')
    await eventually(() => closed === 2)
  })
})

test('an advisory pipeline and a prompt without text ask nobody', async () => {
  assert.equal((await ask('http://127.0.0.1:1/', {}, { advisory: true })).status, 200)
  const empty = [[conversation, plainConversation({ turns: [] })]]
  assert.equal((await ask('http://127.0.0.1:1/', {}, { slots: empty })).status, 200)
})

test('prompts do not go over the network in clear', () => {
  const check = (url: string) => plugin.check!({ url } as any, {} as never).length
  assert.deepEqual(
    ['http://moderation.example.com/', 'https://m.example.com/', 'http://[::1]:80/'].map(check),
    [1, 0, 0],
  )
})
