/**
 * Large prompts: read and counted off the event loop, exactly, while others are served. Large replies: whole, whatever
 * their framing.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { gzipSync } from 'node:zlib'
import { countTokens } from '../../meter/index.ts'
import { startFakeUpstream } from '../fake-upstream/server.ts'
import { LISTENERS } from '../listeners.ts'
import { defaultYaml, KEY, startGateway, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  t = await startGateway()
})
after(() => t.close())

const ask = (content: string) => ({ model: 'eb1-preview', max_tokens: 50, messages: [{ role: 'user', content }] })

test('[METER-1] a 1.6 MB prompt counts what its text counts, and others are answered meanwhile', async () => {
  const text = Array.from({ length: 60_000 }, (_, i) => `word${i} of a long prompt`)
    .join(' ')
    .slice(0, 1_200_000)
  const pending = t.post('/v1/chat/completions', ask(text))
  const small = await Promise.all(
    Array.from({ length: 20 }, (_, i) => t.post('/v1/chat/completions', ask(`small ${i}`))),
  )
  assert.deepEqual([...new Set(small.map(r => r.status))], [200])
  const body = (await (await pending).json()) as any
  const overhead =
    ((await (await t.post('/v1/chat/completions', ask('x'))).json()) as any).usage.prompt_tokens - countTokens('x')
  assert.equal(body.usage.prompt_tokens, countTokens(text) + overhead)
})

for (const [where, long] of [
  ['on the event loop', 'x '.repeat(300_000)],
  ['in a worker', 'x '.repeat(900_000)],
]) {
  test(`[GEN-2] a large body, parsed ${where}, is refused for what a small one would be`, async () => {
    const cases: [string, string][] = [
      [JSON.stringify({ ...ask(long!), foo: 1 }), 'unknown_parameter'],
      [`${JSON.stringify(ask(long!)).slice(0, -1)},`, 'invalid_json'],
      [`["${long}"]`, 'invalid_json'],
      [`{"model":"eb1-preview","messages":${'['.repeat(400)}"${long}"`, 'content_limit_exceeded'],
    ]
    for (const [body, code] of cases) {
      const response = await t.post('/v1/chat/completions', body)
      assert.equal(response.status, 400)
      assert.equal(((await response.json()) as any).error.code, code)
    }
  })
}

// What a client spells in an odd way may go on as it was spelled, and must then be the same text to the provider, on
// every way through the gateway.
test('a long text reaches every provider from every surface as it was meant, however it was spelled', async () => {
  const words = String.raw`plain \u0041 \/ \"quoted\" \n é 的 😀 \ud83d\ude00 \\ `
  for (const repeated of [3000, 20_000]) {
    const spelled = `"${words.repeat(repeated)}"`
    const text = JSON.parse(spelled) as string
    for (const model of ['eb1-preview', 'eb1-efficient-preview', 'eb1-fast-preview', 'eb1-frontier-preview']) {
      for (const [path, body] of [
        [
          '/v1/chat/completions',
          `{"model":"${model}","max_tokens":50,"messages":[{"role":"user","content":${spelled}}]}`,
        ],
        ['/v1/messages', `{"model":"${model}","max_tokens":50,"messages":[{"role":"user","content":${spelled}}]}`],
        ['/v1/responses', `{"model":"${model}","max_output_tokens":50,"store":false,"input":${spelled}}`],
      ] as const) {
        const response = await t.post(path, body)
        assert.equal(response.status, 200, `${path} ${model}: ${await response.clone().text()}`)
        const { json } = t.simulator.requests.at(-1)!
        const found: string[] = []
        JSON.stringify(json, (_, value) => {
          if (typeof value === 'string' && value.length > 1000) found.push(value)
          return value
        })
        assert.ok(found.length === 1 && found[0] === text, `${path} ${model}`)
      }
    }
  }
})

test('a client that leaves while its prompt is read frees its place', async () => {
  const gone = new AbortController()
  const pending = fetch(`${t.url}/v1/chat/completions`, {
    method: 'POST',
    signal: gone.signal,
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify(ask('的'.repeat(400_000))),
  })
  while (t.gateway.ingress.running.size === 0) await new Promise<void>(resolve => setImmediate(resolve))
  gone.abort()
  await assert.rejects(pending)
  while (t.gateway.ingress.running.size > 0) await new Promise<void>(resolve => setImmediate(resolve))
  assert.equal((await t.post('/v1/chat/completions', ask('after'))).status, 200)
})

for (const listener of LISTENERS) {
  test(`[STR-4] [BILL-3] a client that leaves while a large prompt is answered cancels the upstream (${listener})`, async () => {
    const own = await startGateway({ gateway: { listener } })
    const gone = new AbortController()
    const response = await fetch(`${own.url}/v1/chat/completions`, {
      method: 'POST',
      signal: gone.signal,
      headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        ...ask(`${'word '.repeat(100_000)} [[sim: text "some words"; stall 4]] x`),
        stream: true,
      }),
    })
    await response.body!.getReader().read()
    const [request] = own.simulator.requests
    gone.abort()
    // Would wait for ever: the upstream's stall has no end.
    await request!.settled
    assert.equal(request!.state, 'aborted')
    while (own.gateway.ingress.running.size > 0) await new Promise<void>(resolve => setImmediate(resolve))
    assert.equal((await own.ledger())[0]!.outcome, 'client_gone')
    await own.close()
  })
}

test('[STR-6] a line of 5 MB from the upstream, compressed or not, in any pieces, is whole on every surface', async () => {
  const text = 'Ünïcødé 🙂 wörds. '.repeat(220_000)
  const chunk = (delta: object, finish: string | null = null): string =>
    `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finish }] })}\r\n\r\n`
  const sse = Buffer.from(`${chunk({ role: 'assistant', content: text })}${chunk({}, 'stop')}data: [DONE]\r\n\r\n`)
  assert.ok(sse.length > 5_000_000)
  let compressed = false
  const upstream = await startFakeUpstream(async turn => {
    const bytes = compressed ? gzipSync(sse) : sse
    const encoding: Record<string, string> = compressed ? { 'content-encoding': 'gzip' } : {}
    await turn.head(200, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked', ...encoding })
    // Pieces that cut characters in the middle.
    for (let at = 0; at < bytes.length; at += 65_521) await turn.chunk(bytes.subarray(at, at + 65_521))
    await turn.end()
  })
  const large = await startGateway({ yaml: () => defaultYaml(upstream.url) })
  const model = 'eb1-preview'
  const user = [{ role: 'user' as const, content: 'x' }]
  try {
    for (compressed of [false, true]) {
      const chat = await large.openai().chat.completions.stream({ model, messages: user }).finalChatCompletion()
      assert.ok(chat.choices[0]!.message.content === text)
      const response = await large.openai().responses.stream({ model, input: 'x', store: false }).finalResponse()
      assert.ok(response.output_text === text)
      const message = await large
        .anthropic()
        .messages.stream({ model, max_tokens: 9000, messages: user })
        .finalMessage()
      const [block] = message.content
      assert.ok(block?.type === 'text' && block.text === text)
    }
  } finally {
    await large.close()
    await upstream.close()
  }
})

/** A conversation whose call has these arguments, as Chat and Responses carry it. */
const calling = (model: string, input: string): [path: string, body: object][] => [
  [
    '/v1/chat/completions',
    {
      model,
      messages: [
        { role: 'user', content: 'hi' },
        { role: 'assistant', tool_calls: [{ id: 'c1', type: 'function', function: { name: 'f', arguments: input } }] },
        { role: 'tool', tool_call_id: 'c1', content: 'x' },
      ],
    },
  ],
  [
    '/v1/responses',
    {
      model,
      input: [
        { role: 'user', content: 'hi' },
        { type: 'function_call', call_id: 'c1', name: 'f', arguments: input },
        { type: 'function_call_output', call_id: 'c1', output: 'x' },
      ],
    },
  ],
]
const MODELS = ['eb1-preview', 'eb1-efficient-preview', 'eb1-fast-preview', 'eb1-frontier-preview']
const DEEP = `{"a":${'['.repeat(20_000)}${']'.repeat(20_000)}}`

test('[REQ-2] [TOOL-1] arguments that nest 20,000 deep are no internal error: not replayed, to any provider', async () => {
  for (const model of MODELS) {
    for (const [path, body] of calling(model, DEEP)) {
      const reply = await t.post(path, body)
      assert.equal(reply.status, 200, `${model} ${path}: ${await reply.text()}`)
    }
  }
})

test('[REQ-2] [TOOL-1] nor when a model writes them, buffered or streamed', async () => {
  const messages = [{ role: 'user', content: `[[sim: call f ${DEEP}]]` }]
  const tools = [{ name: 'f', input_schema: { type: 'object' } }]
  for (const model of MODELS.slice(0, 3)) {
    const body = { model, max_tokens: 100_000, messages, tools }
    const reply = await t.post('/v1/messages', body)
    assert.equal(reply.status, 200)
    assert.deepEqual(((await reply.json()) as any).content.at(-1).input, { _raw: DEEP })
    assert.match(await (await t.post('/v1/messages', { ...body, stream: true })).text(), /event: message_stop/)
  }
})

// Large arguments are brought into the form that is counted by a thread, and their JSON is put into requests without
// being read again. To every provider they must be what small ones are.
test('[METER-1] large arguments reach every provider in the form in which they are counted', async () => {
  const words = String.raw`plain \u0041 \/ \"quoted\" \n é 的 \ud83d\ude00 \\ `.repeat(3000)
  const spelled = `{ "a" : "hidden", "n": [ 1.10, 175928847299117063 ], "a": "${words}", "m": "${'x'.repeat(9000)}" }`
  const form = `{"a":${JSON.stringify(JSON.parse(`"${words}"`))},"n":[1.10,175928847299117063],"m":"${'x'.repeat(9000)}"}`
  const list = `[ "${words}" ]`
  const small = async (input: string) => {
    const [[path, body]] = calling('eb1-preview', input) as [[string, object]]
    return ((await (await t.post(path, { ...body, max_tokens: 20 })).json()) as any).usage.prompt_tokens
  }
  const base = (await small('x')) - countTokens('x')
  assert.equal(await small(spelled), base + countTokens(form))
  for (const model of MODELS) {
    for (const [input, sent] of [
      [spelled, form],
      [list, JSON.stringify(JSON.parse(list))],
    ] as const) {
      for (const [path, body] of calling(model, input)) {
        const reply = await t.post(path, body)
        assert.equal(reply.status, 200, `${model} ${path}: ${await reply.clone().text()}`)
        const { body: bytes } = t.simulator.requests.at(-1)!
        // As a JSON string, as an object, or as the text of what is no object.
        const raw = JSON.stringify({ _raw: sent })
        assert.ok(
          [JSON.stringify(sent), sent === form ? form : raw].some(text => bytes.includes(text)),
          `${model} ${path}: ${bytes.slice(0, 2000)}`,
        )
      }
    }
  }
})

test('[REQ-2] values in the arguments of calls are held to max_nodes as they are where a body carries them itself', async () => {
  const many = `{"a":[${'{},'.repeat(2_000_000)}0]}`
  for (const [path, body] of calling('eb1-fast-preview', many)) {
    const reply = await t.post(path, body)
    const { error } = (await reply.json()) as any
    assert.equal(reply.status, 400)
    assert.match(error.message, /values in the arguments of tool calls; the limit is 100000 \(max_nodes\)/)
  }
  const long = JSON.stringify({ a: 'x, '.repeat(120_000) })
  for (const [path, body] of calling('eb1-fast-preview', long)) assert.equal((await t.post(path, body)).status, 200)
})
