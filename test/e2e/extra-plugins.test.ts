/** The plugins of plugins/extra/ in a listening gateway, on both listeners. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, request as httpRequest, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { eventually, standsStill } from '../eventually.ts'
import { LISTENERS } from '../listeners.ts'
import { defaultYaml, KEY, startGateway, type TestGateway, type TestOptions } from './harness.ts'
import { memory } from './memory.ts'

const MAIL = 'ann@mail.example.org'
const SURFACES = {
  '/v1/chat/completions': { messages: [{ role: 'user', content: `Write to ${MAIL}` }] },
  '/v1/responses': { input: `Write to ${MAIL}` },
  '/v1/messages': { max_tokens: 1000, messages: [{ role: 'user', content: `Write to ${MAIL}` }] },
}

const frame = (delta: object, finish: string | null = null) =>
  `data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`

/** What the provider streams instead, while a test sets it: text with the token in it, until it has sent enough. */
class Flow {
  static readonly words = 'word '.repeat(400)
  /** Frames in which the token stands, cut by the border of two frames. */
  static readonly each = 10
  /** Pieces that the connection to the gateway has taken. */
  pieces = 0
  most: number
  constructor(most: number) {
    this.most = most
  }
  /** The client's text of one piece. */
  static text(data: string): string {
    return `${Flow.words}${data} `.repeat(Flow.each)
  }
  async run(token: string, response: ServerResponse): Promise<void> {
    const cut = frame({ content: Flow.words + token.slice(0, 9) }) + frame({ content: `${token.slice(9)} ` })
    const piece = cut.repeat(Flow.each)
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    for (; this.pieces < this.most; this.pieces++) if (!response.write(piece)) await once(response, 'drain')
    response.end(`${frame({}, 'stop')}data: [DONE]\n\n`)
  }
}
let flow: Flow | null = null

/** A provider that says what it was asked, once as text and once as the argument of a call, byte by byte. */
let provider: Server
const prompts: string[] = []
before(async () => {
  provider = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    prompts.push(body)
    const token = /\[[A-Z]+_[A-Z]{8}\]/.exec(body)?.[0] ?? 'none'
    if (flow !== null) return flow.run(token, response)
    const call = { index: 0, id: 'c', type: 'function', function: { name: 'send', arguments: '' } }
    const text = [...`é ${token}, yes`].map(content => frame({ content }))
    const input = [...`{"to":"${token}"}`].map(text =>
      frame({ tool_calls: [{ index: 0, function: { arguments: text } }] }),
    )
    const frames = [...text, frame({ tool_calls: [call] }), ...input, frame({}, 'tool_calls'), 'data: [DONE]\n\n']
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.socket!.setNoDelay(true)
    for (const byte of Buffer.from(frames.join(''))) {
      if (!response.write(Buffer.of(byte))) await new Promise(resolve => response.once('drain', resolve))
    }
    response.end()
  })
  await new Promise<void>(resolve => provider.listen(0, '127.0.0.1', resolve))
})
after(() => provider.close())

/** A gateway whose pipeline of completions has `entry` below the plugin `below`. */
async function withPlugin(
  listener: 'uws' | 'node',
  below: string,
  entry: string,
  use: (t: TestGateway) => Promise<void>,
  options: TestOptions = {},
): Promise<void> {
  const upstream = `http://127.0.0.1:${(provider.address() as AddressInfo).port}/v1`
  const t = await startGateway({
    ...options,
    yaml: url => {
      const providers = `  chat: { dialect: openai-chat, base_url: "${upstream}" }`
      const models =
        '  eb1-preview: { context_window: 400000, max_output_tokens: 4000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: chat, model: m }] }'
      const text = defaultYaml(url, { ...options, providers, models })
      return below === ''
        ? text.replace('completions: [', `completions: [${entry}, `)
        : text.replace(`${below},`, `${below}, ${entry},`)
    },
    gateway: { listener, ...options.gateway },
  })
  try {
    await use(t)
    await eventually(() => t.gateway.ingress.running.size === 0)
  } finally {
    await t.close()
  }
}

const tools = {
  '/v1/chat/completions': [{ type: 'function', function: { name: 'send', parameters: { type: 'object' } } }],
  '/v1/responses': [{ type: 'function', name: 'send', parameters: { type: 'object' } }],
  '/v1/messages': [{ name: 'send', input_schema: { type: 'object' } }],
}
const ENDS = {
  '/v1/chat/completions': /^data: \[DONE\]$/gm,
  '/v1/responses': /^event: response\.completed$/gm,
  '/v1/messages': /^event: message_stop$/gm,
}

for (const listener of LISTENERS) {
  describe(`listener ${listener}`, () => {
    test('pii-mask: the provider sees tokens, every client its data, and the books what was sent', async () => {
      await withPlugin(listener, 'conversation', 'pii-mask', async t => {
        for (const [path, body] of Object.entries(SURFACES)) {
          prompts.length = 0
          const ask = { model: 'eb1-preview', tools: tools[path as keyof typeof tools], ...body }
          const whole = await (await t.post(path, ask)).text()
          const stream = await (await t.post(path, { ...ask, stream: true })).text()
          assert.equal(prompts.length, 2)
          for (const prompt of prompts) assert.ok(!prompt.includes(MAIL) && /\[EMAIL_/.test(prompt), prompt)
          assert.ok(!/\[EMAIL_/.test(whole) && !/\[EMAIL_/.test(stream), `${path}\n${stream}`)
          assert.equal(whole.split(MAIL).length - 1, 2, `${path} ${whole}`)
          const said = stream
            .split('\n')
            .filter(line => line.startsWith('data: {'))
            .map(line => deltaOf(JSON.parse(line.slice(6))))
            .join('')
          assert.equal(said, `é ${MAIL}, yes{"to":"${MAIL}"}`, path)
          assert.equal(stream.match(ENDS[path as keyof typeof ENDS])?.length, 1, 'one terminal event')
        }
        const rows = await t.ledger()
        assert.equal(rows.length, 6)
        assert.deepEqual([...new Set(rows.map(row => row.outcome))], ['completed'])
        // The same text and call on every surface, whole or streamed: one count.
        assert.equal(new Set(rows.map(row => row.output)).size, 1)
      })
    })

    test('[STR-4] pii-mask: a slow client holds the provider back, little is kept for it, and nothing is lost', async t => {
      t.after(() => {
        flow = null
      })
      const stream = async (gateway: TestGateway) => {
        const { url } = gateway
        const headers = { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' }
        const sent = httpRequest(`${url}/v1/chat/completions`, { method: 'POST', agent: false, headers })
        sent.end(JSON.stringify({ model: 'eb1-preview', stream: true, ...SURFACES['/v1/chat/completions'] }))
        const [response] = (await once(sent, 'response')) as [IncomingMessage]
        return response
      }
      /** The text, from the frames as they came, and how many of them end the stream. */
      const read = async (response: IncomingMessage) => {
        let whole = ''
        for await (const chunk of response.setEncoding('utf8')) whole += chunk
        const frames = whole.split('\n\n').filter(line => line.startsWith('data: {'))
        const text = frames.map(line => deltaOf(JSON.parse(line.slice(6)))).join('')
        return { text, ends: whole.match(ENDS['/v1/chat/completions'])?.length, last: whole.trimEnd().slice(-6) }
      }
      const server = 'drain: 2s, stall_timeout: 10m'
      const use = async (gateway: TestGateway) => {
        const slowly = new Flow(Number.POSITIVE_INFINITY)
        flow = slowly
        const before = await memory()
        // Nobody reads it yet: node takes one buffer of it and then no more.
        const slow = await stream(gateway)
        await eventually(() => slowly.pieces > 0)
        await standsStill(() => slowly.pieces)
        assert.equal(gateway.gateway.ingress.running.size, 1)
        // Gateway, provider and client are in this process; kernel buffers are not. The reply's own text is kept once.
        const length = Flow.text(MAIL).length
        const held = (await memory()) - before - slowly.pieces * length
        assert.ok(held < 1024 * 1024, `${Math.round(held / 1024)} KiB are held for the reader`)
        slowly.most = slowly.pieces + 1
        const got = await read(slow)
        assert.equal(got.text, Flow.text(MAIL).repeat(slowly.pieces))
        assert.deepEqual([got.ends, got.last], [1, '[DONE]'])

        // The same reply to a client that reads at once: the books say the same of both.
        flow = new Flow(slowly.pieces)
        assert.equal((await read(await stream(gateway))).text, got.text)
        const rows = await gateway.ledger()
        const books = rows.map(({ outcome, input, output, cost }) => [outcome, input, output, cost])
        assert.equal(books.length, 2)
        assert.deepEqual(books[0], books[1])
        assert.equal(rows[0]!.outcome, 'completed')
      }
      await withPlugin(listener, 'conversation', 'pii-mask', use, { server })
    })
  })
}

/** Text or arguments of a frame of any of the three APIs. */
function deltaOf(frame: any): string {
  if (frame.choices) {
    const delta = frame.choices[0]?.delta ?? {}
    return (delta.content ?? '') + (delta.tool_calls?.[0]?.function?.arguments ?? '')
  }
  if (typeof frame.delta === 'string') return frame.delta
  return frame.delta?.text ?? frame.delta?.partial_json ?? ''
}

for (const listener of LISTENERS) {
  test(`cors on ${listener}: preflight, replies, refusals before and after the chain begins, and other origins`, async () => {
    const entry = '{ cors: { origins: ["https://app.example"], credentials: true } }'
    await withPlugin(listener, '', entry, async t => {
      const path = '/v1/chat/completions'
      const from = (origin: string, more: object = {}) => ({ headers: { origin, ...more } })
      const allowed = (response: Response) => response.headers.get('access-control-allow-origin')
      const preflight = (origin: string) =>
        fetch(t.url + path, {
          method: 'OPTIONS',
          ...from(origin, {
            'access-control-request-method': 'POST',
            'access-control-request-headers': 'authorization, content-type',
          }),
        })
      const yes = await preflight('https://app.example')
      assert.equal(yes.status, 204)
      assert.equal(allowed(yes), 'https://app.example')
      assert.match(yes.headers.get('access-control-allow-methods')!, /POST/)
      assert.equal(yes.headers.get('access-control-allow-headers'), 'authorization, content-type')
      assert.equal(yes.headers.get('access-control-max-age'), '3600')
      assert.equal(yes.headers.get('access-control-allow-credentials'), 'true')
      const no = await preflight('https://evil.example')
      assert.deepEqual([no.status, allowed(no), no.headers.get('access-control-allow-methods')], [204, null, null])
      assert.match(no.headers.get('vary')!, /Origin/)

      const ask = { model: 'eb1-preview', messages: [{ role: 'user', content: 'x' }], stream: true }
      const served = await t.post(path, ask, { origin: 'https://app.example' })
      assert.deepEqual([served.status, allowed(served)], [200, 'https://app.example'])
      assert.match(served.headers.get('access-control-expose-headers')!, /x-request-id/)
      await served.text()
      const own = { origin: 'https://app.example' }
      // Refused by auth, by the content type before the chain begins, and for a method that the path does not take.
      const refused = [
        await t.post(path, ask, { ...own, authorization: 'Bearer wrong' }),
        await t.post(path, ask, { ...own, 'content-type': 'text/plain' }),
        await fetch(t.url + path, { method: 'DELETE', headers: own }),
      ]
      assert.deepEqual(
        refused.map(response => [response.status, allowed(response)]),
        [401, 415, 405].map(status => [status, 'https://app.example']),
      )
      const other = await t.post(path, ask, { origin: 'https://app.example.evil' })
      assert.deepEqual([other.status, allowed(other)], [200, null])
      await other.text()
      // A pipeline without the plugin is as it was.
      const plain = await fetch(`${t.url}/v1/models`, { method: 'OPTIONS', headers: own })
      assert.deepEqual([plain.status, allowed(plain), plain.headers.get('vary')], [204, null, null])
    })
  })
}
