/**
 * Variants of dialects: the simulator speaks each form, and refuses requests of another. A tool call and its result go
 * through each, buffered and streamed.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { FrameFault } from '../../core/ports/dialect.ts'
import { EventStreamReader } from '../../providers/variants/event-stream.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

const AWS = 'auth: { aws: { region: us-east-1, access_key_id: AKIDEXAMPLE, secret_access_key: secret } }'
const VERTEX = '/v1/projects/p/locations/global'
const FORMS = [
  {
    name: 'bedrock',
    provider: (url: string) => `dialect: anthropic-messages, variant: bedrock, base_url: "${url}", ${AWS}`,
    model: 'us.anthropic.claude-sonnet-4-5-20250929-v1:0',
    path: (stream: boolean) =>
      `/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/${stream ? 'invoke-with-response-stream' : 'invoke'}`,
  },
  {
    name: 'bedrock-openai',
    provider: (url: string) => `dialect: openai-chat, base_url: "${url}/openai/v1", ${AWS}`,
    model: 'openai.gpt-oss-120b-1:0',
    path: () => '/openai/v1/chat/completions',
  },
  {
    name: 'vertex-anthropic',
    provider: (url: string) => `dialect: anthropic-messages, variant: vertex, base_url: "${url}${VERTEX}", api_key: k`,
    model: 'claude-sonnet-4-5@20250929',
    path: (stream: boolean) =>
      `${VERTEX}/publishers/anthropic/models/claude-sonnet-4-5@20250929:${stream ? 'streamRawPredict' : 'rawPredict'}`,
  },
  {
    name: 'vertex-gemini',
    provider: (url: string) => `dialect: gemini, variant: vertex, base_url: "${url}${VERTEX}", api_key: k`,
    model: 'gemini-2.5-flash',
    path: (stream: boolean) =>
      `${VERTEX}/publishers/google/models/gemini-2.5-flash:${stream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`,
  },
  {
    name: 'azure-deployments',
    provider: (url: string) =>
      `dialect: openai-chat, variant: azure-deployments, api_version: "2024-10-21", base_url: "${url}/openai", api_key: k, auth: azure`,
    model: 'my-gpt',
    path: () => '/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21',
  },
  {
    name: 'azure',
    provider: (url: string) => `dialect: openai-chat, base_url: "${url}/openai/v1", api_key: k, auth: azure`,
    model: 'my-gpt',
    path: () => '/openai/v1/chat/completions',
  },
  {
    name: 'azure-responses',
    provider: (url: string) => `dialect: openai-responses, base_url: "${url}/openai/v1", api_key: k, auth: azure`,
    model: 'my-gpt',
    path: () => '/openai/v1/responses',
  },
]

let running: TestGateway
before(async () => {
  running = await startGateway({
    yaml: url =>
      defaultYaml(url, {
        providers: FORMS.map(({ name, provider }) => `  ${name}: { ${provider(url)} }`).join('\n'),
        models: FORMS.map(
          ({ name, model }) =>
            `  m-${name}: { context_window: 400000, max_output_tokens: 8000, price: { input: 1, output: 1 }, backends: [{ provider: ${name}, model: "${model}" }] }`,
        ).join('\n'),
      }),
  })
})
after(() => running.close())

const TOOLS = [
  {
    type: 'function',
    function: { name: 'get_weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
  },
]
const last = () => running.simulator.requests.at(-1)!
const text = async (response: Response) => {
  const body = await response.text()
  assert.equal(response.status, 200, body)
  return body
}

for (const { name, path } of FORMS) {
  describe(name, () => {
    for (const stream of [false, true]) {
      test(`text, a tool call and its result; stream ${stream}`, async () => {
        const user = { role: 'user', content: 'weather? [[sim: call get_weather {"city":"Oslo"}]]' }
        const body = {
          model: `m-${name}`,
          messages: [user],
          tools: TOOLS,
          prompt_cache_key: 'mine',
          max_tokens: 100,
          stream,
        }
        const said = await text(await running.post('/v1/chat/completions', body))
        // A short reply is asked for whole, a stream as a stream.
        assert.equal(last().path, path(stream))
        assert.match(said, /get_weather/)
        assert.match(said, stream ? /data: \[DONE\]\n\n$/ : /"finish_reason":"tool_calls"/)
        const id = /"id":"(call_eba1_[^"]+)"/.exec(said)![1]!
        const call = { id, type: 'function', function: { name: 'get_weather', arguments: '{"city":"Oslo"}' } }
        const messages = [
          user,
          { role: 'assistant', tool_calls: [call] },
          { role: 'tool', tool_call_id: id, content: 'rain' },
        ]
        const then = await text(await running.post('/v1/chat/completions', { ...body, messages }))
        assert.match(then, /"finish_reason":"stop"/)
      })
    }

    test('failures before and within a stream', async () => {
      const ask = (directive: string, stream: boolean) =>
        running.post('/v1/chat/completions', {
          model: `m-${name}`,
          messages: [{ role: 'user', content: `[[sim: ${directive}]]` }],
          max_tokens: 100,
          stream,
        })
      const broken = await (await ask('error overloaded after 3', true)).text()
      assert.match(broken, /"error":/)
      assert.ok(!broken.includes('[DONE]'))
      // A 503 and a 429 may ask for a pause, in which nothing is sent.
      for (const [status, seen] of [
        [403, 502],
        [500, 502],
        [429, 429],
      ] as const)
        assert.equal((await ask(`status ${status}`, false)).status, seen, String(status))
    })
  })
}

test('bedrock: betas of the body, no version header; Anthropic words in the errors of a validation', async () => {
  const headers = { 'anthropic-beta': 'interleaved-thinking-2025-05-14,mid-conversation-system-2026-04-07' }
  const body = { model: 'm-bedrock', max_tokens: 10, messages: [{ role: 'user', content: 'hi' }] }
  await text(await running.post('/v1/messages', body, headers))
  const sent = last()
  assert.deepEqual(sent.json!['anthropic_beta'], ['interleaved-thinking-2025-05-14'])
  assert.equal(sent.headers['anthropic-version'], undefined)
  assert.equal(sent.headers['anthropic-beta'], undefined)
  assert.equal(sent.headers.accept, 'application/json')
})

test('image URLs are not sent to services that take bytes alone', async () => {
  for (const name of ['bedrock', 'vertex-anthropic']) {
    const content = [{ type: 'image_url', image_url: { url: 'https://example.com/a.png' } }]
    const response = await running.post('/v1/chat/completions', {
      model: `m-${name}`,
      messages: [{ role: 'user', content }],
    })
    assert.equal(response.status, 400)
    assert.equal(((await response.json()) as any).error.code, 'request_requirements_unsatisfied')
  }
})

describe('event-stream framing', () => {
  let stream: Buffer
  let whole: [string, string][]
  const read = (chunks: Iterable<Buffer>) => {
    const frames: [string, string][] = []
    const reader = new EventStreamReader(100_000)
    for (const chunk of chunks) reader.push(chunk, (event, data) => void frames.push([event, data]))
    reader.end()
    return frames
  }
  before(async () => {
    const response = await fetch(`${running.simulator.url}/model/m/invoke-with-response-stream`, {
      method: 'POST',
      body: JSON.stringify({
        anthropic_version: 'bedrock-2023-05-31',
        max_tokens: 20,
        messages: [{ role: 'user', content: 'Grüße [[sim: error overloaded after 4]]' }],
      }),
    })
    stream = Buffer.from(await response.arrayBuffer())
    whole = read([stream])
  })

  test('events come as the model wrote them, an exception as an error event', () => {
    assert.equal(JSON.parse(whole[0]![1]).type, 'message_start')
    assert.deepEqual(whole.at(-1)![0], 'error')
    assert.equal(JSON.parse(whole.at(-1)![1]).error.type, 'rate_limit_error')
  })

  test('a cut at any byte changes nothing, nor does one byte at a time', () => {
    for (let at = 0; at <= stream.length; at++)
      assert.deepEqual(read([stream.subarray(0, at), stream.subarray(at)]), whole, `cut at ${at}`)
    assert.deepEqual(read(Array.from(stream, byte => Buffer.from([byte]))), whole)
  })

  test('an end at any byte gives the messages before it, and nothing of the one that is cut off', () => {
    for (let at = 0; at < stream.length; at++) {
      const frames = read([stream.subarray(0, at)])
      assert.deepEqual(frames, whole.slice(0, frames.length))
      assert.ok(frames.length < whole.length)
    }
  })

  test('a changed byte anywhere is a fault of the framing, or a message that never gets complete', () => {
    for (let at = 0; at < stream.length; at++) {
      const changed = Buffer.from(stream)
      changed[at]! ^= 0x41
      let frames: [string, string][] = []
      try {
        frames = read([changed])
      } catch (error) {
        assert.ok(error instanceof FrameFault)
      }
      assert.ok(frames.length < whole.length, `byte ${at}`)
    }
  })

  test('a message over the limit is refused by its length, before it has come', () => {
    const head = Buffer.alloc(4)
    head.writeUInt32BE(100_001)
    assert.throws(() => read([head]), /over 100000 bytes/)
    head.writeUInt32BE(15)
    assert.throws(() => read([head]), FrameFault)
  })
})
