/** Embeddings through the official SDK: counted, admitted, billed, and the vectors as the provider sent them. */
import assert from 'node:assert/strict'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import OpenAI from 'openai'
import { encode } from '../../meter/index.ts'
import { defaultYaml, KEY, startGateway, type TestGateway } from './harness.ts'

const PIPELINE =
  'pipelines:\n  embeddings: [auth, validation, idempotency, model-access, embeddings, admission, upstream, usage-capture, header-stamp]'
const ROUTE = 'routes:\n  - { match: POST /v1/embeddings, surface: embeddings, pipeline: embeddings }'
const withEmbeddings = (
  url: string,
  backends = '[{ provider: chat, model: sim-embed, cost: { input: 0.5 } }]',
  organization = '',
) =>
  defaultYaml(url, { organization })
    .replace('pipelines:', PIPELINE)
    .replace('routes:', ROUTE)
    .replace(
      'models:\n',
      `models:\n  embed: { serves: embeddings, context_window: 50, price: { input: 2 }, backends: ${backends} }\n`,
    )

let t: TestGateway
before(async () => {
  t = await startGateway({ yaml: url => withEmbeddings(url) })
})
after(() => t.close())

const texts = ['the tide comes in', 'é 😀 [', '']
const tokensOf = (...all: string[]) => all.reduce((sum, text) => sum + encode(text).length, 0)
const lastRow = async () => (await t.ledger()).at(-1)!

test('[EMB-1] the SDK gets a vector for each input, as floats and from base64, and one row that is priced', async () => {
  const client = t.openai()
  const input = texts.slice(0, 2)
  const floats = await client.embeddings.create({ model: 'embed', input, encoding_format: 'float' })
  assert.deepEqual(
    floats.data.map(({ index }) => index),
    [0, 1],
  )
  assert.equal(floats.model, 'embed')
  const tokens = tokensOf(...input)
  assert.deepEqual(floats.usage, { prompt_tokens: tokens, total_tokens: tokens })
  // The SDK asks for base64 unless told otherwise.
  const packed = await client.embeddings.create({ model: 'embed', input })
  assert.equal(JSON.parse(t.simulator.requests.at(-1)!.body).encoding_format, 'base64')
  for (const [i, { embedding }] of packed.data.entries()) assert.deepEqual(embedding, floats.data[i]!.embedding)
  const row = await lastRow()
  assert.deepEqual(
    [row.surface, row.model, row.input_tokens, row.output, row.outcome, row.cost],
    ['embeddings', 'embed', tokens, 0, 'completed', tokens * 2000],
  )
  // The simulator counts four characters as a token.
  const theirs = input.reduce((sum, text) => sum + Math.ceil(text.length / 4), 0)
  assert.deepEqual(
    [row.provider_model, row.provider_input, row.counted_input, row.provider_output, row.counted_output],
    ['sim-embed', theirs, tokens, 0, 0],
  )
  assert.deepEqual([row.provider_cost, row.price_used, row.price_output, row.rounds], [theirs * 500, 'model', 0, 1])
})

for (const [what, input, tokens] of [
  ['a text', texts[1]!, tokensOf(texts[1]!)],
  ['a list of one text', [texts[0]!], tokensOf(texts[0]!)],
  ['ids of tokens', [1, 2, 3], 3],
  ['lists of ids', [[1, 2, 3], [4]], 4],
  ['a text for a thread to count', Array.from({ length: 800 }, (_, i) => `words and words ${i} and words`), null],
] as const) {
  test(`[EMB-1] counted exactly: ${what}`, async () => {
    const reply = await t.openai().embeddings.create({ model: 'embed', input: input as string[] })
    const exact = tokens ?? tokensOf(...(input as string[]))
    assert.equal(reply.usage.prompt_tokens, exact)
    assert.equal((await lastRow()).input_tokens, exact)
    assert.deepEqual(JSON.parse(t.simulator.requests.at(-1)!.body), {
      model: 'sim-embed',
      input,
      encoding_format: 'base64',
    })
  })
}

test('[EMB-1] dimensions go on, the name of the user does not', async () => {
  const { data } = await t
    .openai()
    .embeddings.create({ model: 'embed', input: 'x', dimensions: 5, user: 'secret-user' })
  assert.equal(data[0]!.embedding.length, 5)
  assert.ok(!t.simulator.requests.at(-1)!.body.includes('secret-user'))
})

test('[EMB-1] a key is replayed and asks the provider once', async () => {
  const asked = t.simulator.requests.length
  const headers = { 'idempotency-key': 'embed-1' }
  const send = () => t.post('/v1/embeddings', { model: 'embed', input: 'once' }, headers)
  const [first, second] = [await send(), await send()]
  assert.deepEqual(await second.json(), await first.json())
  assert.equal(second.headers.get('x-idempotent-replay'), 'true')
  assert.equal(t.simulator.requests.length, asked + 1)
})

const refusals: [what: string, body: object, status: number, code: string, param: string | null][] = [
  ['no input', { input: undefined }, 400, 'missing_required_parameter', 'input'],
  ['an empty list', { input: [] }, 400, 'invalid_value', 'input'],
  ['an empty text', { input: ['a', ''] }, 400, 'invalid_value', 'input[1]'],
  ['two kinds', { input: ['a', [1]] }, 400, 'invalid_type', 'input[1]'],
  ['half a token', { input: [1.5] }, 400, 'invalid_type', 'input[0]'],
  ['too many', { input: Array.from({ length: 2049 }, () => 'x') }, 400, 'invalid_value', 'input'],
  ['a member of another API', { messages: [] }, 400, 'unknown_parameter', 'messages'],
  ['over the window', { input: ['a', 'a '.repeat(60)] }, 400, 'context_length_exceeded', 'input[1]'],
  ['a model that writes text', { model: 'eb1-preview' }, 400, 'request_requirements_unsatisfied', 'model'],
  ['a model that there is not', { model: 'nobody' }, 404, 'model_not_found', 'model'],
]
for (const [what, change, status, code, param] of refusals) {
  test(`[EMB-1] refused: ${what}`, async () => {
    const response = await t.post('/v1/embeddings', { model: 'embed', input: 'x', ...change })
    const { error } = (await response.json()) as any
    assert.deepEqual([response.status, error.code, error.param], [status, code, param])
  })
}

test('[EMB-1] a model for embeddings is refused where text is asked for, with the cure', async () => {
  await assert.rejects(
    t.openai().chat.completions.create({ model: 'embed', messages: [{ role: 'user', content: 'x' }] }),
    (error: any) => {
      assert.deepEqual([error.status, error.code, error.param], [400, 'request_requirements_unsatisfied', 'model'])
      assert.match(error.message, /POST \/v1\/embeddings/)
      return true
    },
  )
})

test('[EMB-1] limits of requests, input tokens and spend hold, each with its headers', async () => {
  for (const [limit, most, tokens] of [
    ['requests_per_minute: 1', 'requests', 1],
    ['input_tokens_per_minute: 4', 'input-tokens', 3],
    // 3 tokens at 2 USD per million.
    ['daily_spend_usd: "0.000008"', 'spend', 3],
  ] as const) {
    const limited = await startGateway({ yaml: url => withEmbeddings(url, undefined, `    limits: { ${limit} }`) })
    try {
      const send = () => limited.post('/v1/embeddings', { model: 'embed', input: Array(tokens).fill(7) })
      const served = await send()
      assert.equal(served.status, 200, await served.text())
      assert.ok(served.headers.has(`x-ratelimit-remaining-${most}`), most)
      const refused = await send()
      assert.equal(refused.status, 429, await refused.text())
      // Output is none, so a limit of it is never in the way.
    } finally {
      await limited.close()
    }
  }
  const dry = await startGateway({
    yaml: url => withEmbeddings(url, undefined, '    limits: { output_tokens_per_day: 0 }'),
  })
  try {
    assert.equal((await dry.post('/v1/embeddings', { model: 'embed', input: 'x' })).status, 200)
  } finally {
    await dry.close()
  }
})

// ---- what providers answer ------------------------------------------------------------------------------------------

/** A provider that answers every request alike. */
async function provider(status: number, body: string): Promise<{ url: string; server: Server }> {
  const server = createServer((_, res) => res.writeHead(status, { 'content-type': 'application/json' }).end(body))
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server }
}
const vectors = (...all: string[]) =>
  `[${all.map((v, i) => `{"object":"embedding","index":${i},"embedding":${v}}`).join()}]`

for (const [what, status, body, expected] of [
  [
    'numbers keep their spelling, other members are left out',
    200,
    ` {"id":"x","usage":{"prompt_tokens":9,"data":[]}, "data" : ${vectors('[1e-05, 0.10, -0]')} ,"model":"theirs"}`,
    [200, [{ object: 'embedding', index: 0, embedding: [1e-5, 0.1, -0] }]],
  ],
  ['too few vectors', 200, '{"data":[]}', [502, 'upstream_server_error']],
  ['too many vectors', 200, `{"data":${vectors('[1]', '[2]')}}`, [502, 'upstream_server_error']],
  ['no vectors', 200, '{"choices":[]}', [502, 'upstream_server_error']],
  ['no JSON', 200, 'data: {}', [502, 'upstream_server_error']],
  ['a key that is not taken', 401, '{"error":{"message":"no","code":"invalid_api_key"}}', [502, 'upstream_auth_error']],
  ['a rate limit', 429, '{"error":{"message":"slow"}}', [429, 'capacity_exceeded']],
] as const) {
  test(`[EMB-1] a provider’s reply: ${what}`, async () => {
    const { url, server } = await provider(status, body)
    const gateway = await startGateway({ yaml: () => withEmbeddings(url) })
    try {
      const response = await gateway.post('/v1/embeddings', { model: 'embed', input: 'x' })
      const text = await response.text()
      const json = JSON.parse(text)
      assert.deepEqual([response.status, json.data ?? json.error.code], expected, text)
      if (status === 200 && response.status === 200) assert.ok(text.includes('[1e-05, 0.10, -0]'), text)
      const row = (await gateway.ledger()).at(-1)!
      assert.equal(row.cost > 0, response.status === 200)
      assert.equal(row.provider_input, response.status === 200 ? 9 : undefined)
    } finally {
      await gateway.close()
      server.close()
    }
  })
}

// A whole reply of text is bounded by 4 MiB, which a few hundred vectors are over.
test('[EMB-1] vectors are bounded by max_reply alone', async () => {
  const long = JSON.stringify('A'.repeat(6 * 1024 * 1024))
  const { url, server } = await provider(200, `{"data":${vectors(long)}}`)
  for (const [most, status] of [
    ['16MiB', 200],
    ['5MiB', 502],
  ] as const) {
    const gateway = await startGateway({
      yaml: () =>
        withEmbeddings(url).replace('admission, upstream,', `admission, { upstream: { max_reply: ${most} } },`),
    })
    try {
      const response = await gateway.post('/v1/embeddings', { model: 'embed', input: 'x', encoding_format: 'base64' })
      assert.equal(response.status, status)
      const text = await response.text()
      if (status === 200) assert.ok(text.includes(long))
    } finally {
      await gateway.close()
    }
  }
  server.close()
})

test('[EMB-1] each attempt is written for its backend: another dialect, and the path of an Azure deployment', async () => {
  for (const [dialect, more, path] of [
    ['openai-responses', '', '/embeddings'],
    [
      'openai-chat',
      'variant: azure-deployments, api_version: 2024-10-21,',
      '/deployments/sim-embed/embeddings?api-version=2024-10-21',
    ],
  ] as const) {
    const gateway = await startGateway({
      yaml: url =>
        withEmbeddings(url, '[{ provider: other, model: sim-embed }]').replace(
          'providers:\n',
          `providers:\n  other: { dialect: ${dialect}, ${more} base_url: "${url}", api_key: k }\n`,
        ),
    })
    try {
      const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: KEY })
      assert.equal((await client.embeddings.create({ model: 'embed', input: 'x' })).data.length, 1)
      assert.equal(gateway.simulator.requests.at(-1)!.path, path)
    } finally {
      await gateway.close()
    }
  }
})
