/** Responses over WebSocket: one `response.create` after another on a connection, each as a POST would have been. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { describe, test } from 'node:test'
import { eventually, standsStill } from '../eventually.ts'
import { startFakeUpstream } from '../fake-upstream/server.ts'
import { TableClock } from '../faults/table.ts'
import {
  defaultYaml,
  KEY,
  ShiftedClock,
  sha256,
  startGateway,
  stillClock,
  type TestGateway,
  type TestOptions,
} from './harness.ts'
import { memory } from './memory.ts'
import { type Frame, refusal, SocketClient, textOf } from './socket-client.ts'

async function using(options: TestOptions, body: (t: TestGateway) => Promise<void>): Promise<void> {
  const t = await startGateway({ ...options, gateway: { listener: 'uws', ...options.gateway } })
  try {
    await body(t)
  } finally {
    await t.close()
  }
}

/** The events of the same request as POST. */
async function posted(t: TestGateway, body: object): Promise<Frame[]> {
  const response = await t.post('/v1/responses', { model: 'eb1-preview', stream: true, ...body })
  assert.equal(response.status, 200)
  return (await response.text())
    .split('\n\n')
    .map(frame => /^data: (.*)$/m.exec(frame)?.[1])
    .filter(data => data !== undefined)
    .map(data => JSON.parse(data) as Frame)
}

/** Ids and clocks are of one response alone: ids become their number in it, times become 0. */
function comparable(frames: Frame[]): unknown {
  const ids = new Map<string, string>()
  const text = JSON.stringify(frames)
    .replace(/(resp|item_eba1|call_eba1|hist_eba1|req|ws)_[A-Za-z0-9]{24}/g, (id, kind) => {
      if (!ids.has(id)) ids.set(id, `${kind}_${ids.size}`)
      return ids.get(id)!
    })
    .replace(/"(created_at|completed_at)":\d+/g, '"$1":0')
  return JSON.parse(text)
}

function without(frame: Frame, ...members: string[]): Frame {
  return Object.fromEntries(Object.entries(frame).filter(([name]) => !members.includes(name))) as Frame
}

const tools = [
  { type: 'function', name: 'look', parameters: { type: 'object', properties: { at: { type: 'string' } } } },
  { type: 'custom', name: 'patch' },
]

describe('frames', () => {
  const CASES: Record<string, object> = {
    text: { input: '[[sim: text "Grüße, \\"hello\\" \\n\\n there 😀"]] x' },
    'tool calls': {
      input: '[[sim: call look {"at":"x"}; call patch "a\\nb"]] x',
      tools,
      model: 'eb1-efficient-preview',
    },
    'reasoning with a summary': {
      input: '[[sim: reason 2 tokens 40; text "done"]] x',
      reasoning: { effort: 'high', summary: 'auto' },
      model: 'eb1-efficient-preview',
    },
    'a refusal': { input: '[[sim: refuse "no"]] x' },
    'a search': { input: '[[sim: search "cats"]] x', tools: [{ type: 'web_search' }], model: 'eb1-efficient-preview' },
    'an output cap': { input: '[[sim: tokens 50]] x', max_output_tokens: 16 },
    'a failure in the middle': { input: '[[sim: tokens 20; error server after 5]] x' },
    'a cut in the middle': { input: '[[sim: tokens 20; cut 5]] x' },
  }
  for (const [name, body] of Object.entries(CASES)) {
    test(`[RESP-5] [ERR-8] ${name}: the frames are the data of the events that POST streams, and the first has the head's headers`, async () => {
      await using({}, async t => {
        // Asked twice, since an upstream caches what it has seen.
        await posted(t, body)
        const expected = await posted(t, body)
        const client = await SocketClient.open(t)
        client.send({ type: 'response.create', model: 'eb1-preview', ...body })
        const frames = await client.response()
        const first = frames[0]!
        assert.equal(first.type, 'response.created')
        assert.match(first['headers']['x-request-id'], /^req_/)
        assert.ok(frames.slice(1).every(frame => !('headers' in frame)))
        assert.deepEqual(comparable([without(first, 'headers'), ...frames.slice(1)]), comparable(expected))
        const rows = (await t.ledger()).sort((a, b) => a.time - b.time)
        assert.equal(rows.length, 3)
        const [, post, socket] = rows.map(row => ({ ...row, request_id: '', time: 0, duration_ms: 0, ttfb_ms: 0 }))
        assert.deepEqual(socket, post, 'and the ledger knows no difference')
        assert.equal(rows[2]!.request_id, first['headers']['x-request-id'])
        client.close()
      })
    })
  }

  test('[LIM-9] the limits of an admitted request are in the headers of its first frame', async () => {
    const gateway = { clock: stillClock() }
    await using({ organization: '    limits: { requests_per_minute: 60 }', gateway }, async t => {
      const client = await SocketClient.open(t)
      for (const left of ['59', '58']) {
        client.create('[[sim: text "x"]] x')
        const [first] = await client.response()
        assert.equal(first!['headers']['x-ratelimit-limit-requests'], '60')
        assert.equal(first!['headers']['x-ratelimit-remaining-requests'], left)
      }
      client.close()
    })
  })

  test('[GEN-2] `stream` is taken as true whatever it says, members of the envelope are of messages alone, unknown ones are refused', async () => {
    await using({}, async t => {
      const client = await SocketClient.open(t)
      client.create('[[sim: text "x"]] x', { stream: false })
      assert.equal((await client.response()).at(-1)!.type, 'response.completed')
      client.create('x', { nonsense: 1 })
      const [unknown] = await client.response()
      assert.deepEqual(
        [unknown!['status'], unknown!['error'].code, unknown!['error'].param],
        [400, 'unknown_parameter', 'nonsense'],
      )
      client.create('x', { background: true })
      assert.equal((await client.response())[0]!['error'].param, 'background')
      for (const member of [{ generate: false }, { stream_id: 'a' }, { type: 'response.create' }]) {
        const response = await t.post('/v1/responses', { model: 'eb1-preview', input: 'x', ...member })
        assert.equal(response.status, 400)
        assert.equal(((await response.json()) as any).error.code, 'unknown_parameter')
      }
      client.close()
    })
  })
})

describe('conversations', () => {
  for (const store of [true, false]) {
    test(`[RESP-2] [RESP-3] a tool loop continues by previous_response_id with store: ${store}`, async () => {
      await using({}, async t => {
        const client = await SocketClient.open(t)
        client.create('[[sim: call look {"at":"a"}; next call look {"at":"b"}]] go', { tools, store })
        let last = (await client.response()).at(-1)!
        const ats: string[] = []
        for (let turn = 0; turn < 2; turn++) {
          const call = last['response'].output.find((item: any) => item.type === 'function_call')
          ats.push(call.arguments)
          const output = [{ type: 'function_call_output', call_id: call.call_id, output: `result ${turn}` }]
          client.create(output, { tools, store, previous_response_id: last['response'].id })
          last = (await client.response()).at(-1)!
          assert.equal(last.type, 'response.completed')
        }
        assert.deepEqual(ats, ['{"at":"a"}', '{"at":"b"}'])
        assert.equal(last['response'].output[0].type, 'message')
        // Every turn is upstream, although only the new ones were sent.
        assert.equal((t.simulator.requests.at(-1)!.json as any).messages.length, 5)
        // What was not to be stored is gone with its connection; what was is not.
        client.close()
        const again = await SocketClient.open(t)
        again.create('and?', { tools, previous_response_id: last['response'].id })
        const end = (await again.response()).at(-1)!
        if (store) assert.equal(end.type, 'response.completed')
        else
          assert.deepEqual(
            [end['status'], end['error'].code, end['error'].param],
            [400, 'previous_response_not_found', 'previous_response_id'],
          )
        again.close()
      })
    })
  }

  test('[RESP-2] what one connection keeps for itself no other can continue, and neither can POST', async () => {
    await using({}, async t => {
      const [mine, other] = [await SocketClient.open(t), await SocketClient.open(t)]
      mine.create('[[sim: text "x"]] x', { store: false })
      const { id } = (await mine.response()).at(-1)!['response']
      other.create('y', { previous_response_id: id })
      assert.equal((await other.response())[0]!['error'].code, 'previous_response_not_found')
      const response = await t.post('/v1/responses', { model: 'eb1-preview', input: 'y', previous_response_id: id })
      assert.equal(((await response.json()) as any).error.code, 'previous_response_not_found')
      mine.create('y', { previous_response_id: id })
      assert.equal((await mine.response()).at(-1)!.type, 'response.completed')
      mine.close()
      other.close()
    })
  })

  // Warm-ups took from no limit and wrote no row: four sockets of an account with two requests a day made the gateway
  // parse, count and store 35 MB/s.
  test('[CNT-1] warm-ups take from the bucket of counts, and are refused in its words before the body is parsed', () =>
    using({ organization: '    limits: { requests_per_minute: 2 }', gateway: { clock: stillClock() } }, async t => {
      const client = await SocketClient.open(t)
      const warmUp = async (more: object = {}) => {
        client.create('x', { generate: false, ...more })
        return (await client.response()).at(-1)!
      }
      for (const store of [true, false]) assert.equal((await warmUp({ store })).type, 'response.completed')
      const refused = await warmUp()
      const count = await t.post('/v1/messages/count_tokens', { model: 'eb1-preview', messages: [] })
      const { error } = (await count.json()) as { error: { message: string } }
      assert.deepEqual([refused['status'], refused['error'].code], [429, 'requests_limit_exceeded'])
      assert.equal(refused['error'].message, error.message)
      assert.equal(refused['headers']['x-ratelimit-limit-requests'], count.headers.get('x-ratelimit-limit-requests'))
      // A fault of the body is not looked for.
      assert.equal((await warmUp({ model: 5 }))['status'], 429)
      client.send('{"type":"response.create","gener\\u0061te":false,"input":nope}')
      assert.equal((await client.response()).at(-1)!['status'], 429)
      // Requests that ask a model have their own limit.
      client.create('x')
      assert.equal((await client.response()).at(-1)!.type, 'response.completed')
      client.close()
    }))

  for (const store of [true, false]) {
    test(`[RESP-2] generate: false takes the input in, asks no model, bills nothing, and can be continued (store: ${store})`, async () => {
      await using({}, async t => {
        const client = await SocketClient.open(t)
        client.create([{ role: 'user', content: 'remember the number 7' }], { store, generate: false, tools })
        const warm = await client.response()
        assert.deepEqual(
          warm.map(frame => frame.type),
          ['response.created', 'response.in_progress', 'response.completed'],
        )
        const { id, output, usage, status } = warm.at(-1)!['response']
        assert.deepEqual([output, usage.total_tokens, status], [[], 0, 'completed'])
        assert.equal(t.simulator.requests.length, 0)
        assert.deepEqual(await t.ledger(), [])
        client.create([], { store, previous_response_id: id })
        assert.equal((await client.response()).at(-1)!.type, 'response.completed')
        assert.match(t.simulator.requests[0]!.body, /remember the number 7/)
        // Without any input too: what an agent does before its user has said a word.
        client.create([], { store, generate: false })
        assert.equal((await client.response()).at(-1)!.type, 'response.completed')
        client.close()
      })
    })
  }
})

describe('errors', () => {
  test('[AUTH-1] the handshake is refused as a POST would be: 401 with its code and WWW-Authenticate, before the socket opens', async () => {
    await using({}, async t => {
      for (const [authorization, code] of [
        ['', 'missing_authorization'],
        ['Basic abc', 'bearer_scheme_required'],
        ['Bearer sk-wrong-00000000', 'invalid_api_key'],
      ] as const) {
        const ws = await refusal(t, { authorization })
        assert.equal(ws.status, 401)
        assert.equal(ws.body.error.code, code)
        assert.equal(ws.headers['www-authenticate'], 'Bearer')
        assert.equal(ws.headers['x-request-id'], ws.body.error.request_id)
        assert.equal(ws.headers['connection'], 'close')
      }
      await eventually(() => t.gateway.listener.connections === 0)
    })
  })

  test('[ERR-1] [ERR-2] [ERR-3] [ERR-5] a request that is refused is one error frame with status, error and headers; the connection goes on', async () => {
    const server = 'drain: 2s'
    const organization = '    limits: { requests_per_minute: 3 }'
    const gateway = { clock: stillClock() }
    await using({ server, organization, gateway, plugins: { validation: '{ max_body: 20KiB }' } }, async t => {
      const client = await SocketClient.open(t)
      const seen: Frame[] = []
      const ask = async (input: unknown, more?: object) => {
        client.create(input, more)
        seen.push((await client.response()).at(-1)!)
        return seen.at(-1)!
      }
      const field = await ask('x', { temperature: 3 })
      assert.deepEqual(
        [field['status'], field['error'].code, field['error'].param],
        [400, 'invalid_value', 'temperature'],
      )
      assert.equal(field['headers']['x-should-retry'], 'false')
      assert.equal(field['error'].retryable, false)
      const model = await ask('x', { model: 'none' })
      assert.deepEqual([model['status'], model['error'].code], [404, 'model_not_found'])
      const large = await ask('x'.repeat(20 * 1024))
      assert.deepEqual([large['status'], large['error'].code], [413, 'request_too_large'])
      const upstream = await ask('[[sim: status 500]] x', { model: 'eb1-frontier-preview' })
      assert.deepEqual([upstream['status'], upstream['error'].code], [502, 'upstream_server_error'])
      for (let i = 0; i < 2; i++) assert.equal((await ask('[[sim: text "x"]] x')).type, 'response.completed')
      const limited = await ask('x')
      assert.deepEqual([limited['status'], limited['error'].code], [429, 'requests_limit_exceeded'])
      assert.equal(limited['headers']['x-ratelimit-limit-requests'], '3')
      assert.equal(limited['headers']['x-ratelimit-scope'], 'org')
      assert.ok(Number(limited['headers']['retry-after']) >= 1)
      assert.equal(Math.ceil(limited['error'].details.retry_after_seconds), Number(limited['headers']['retry-after']))
      for (const frame of seen.filter(frame => frame.type === 'error')) {
        assert.equal(frame['error'].request_id, frame['headers']['x-request-id'])
        // The official types have them within the error, Codex reads them beside it.
        assert.deepEqual(frame['error'].headers, frame['headers'])
        assert.equal(typeof frame['error'].message, 'string')
      }
      assert.equal(client.closed, undefined)
      assert.equal((await t.ledger()).length, 3)
      client.close()
    })
  })

  test('a gauge counts the connections that are open', async () => {
    await using({}, async t => {
      const gauge = async () =>
        /^sluice_open_websockets (\d+)$/m.exec(await (await fetch(`${t.gateway.adminAddress}/metrics`)).text())?.[1]
      assert.equal(await gauge(), '0')
      const clients = [await SocketClient.open(t), await SocketClient.open(t)]
      assert.equal(await gauge(), '2')
      for (const client of clients) client.close()
      await eventually(async () => (await gauge()) === '0')
    })
  })

  test('[AUTH-5] a key that is revoked while its connection is open is refused at the next request', async () => {
    await using({}, async t => {
      const client = await SocketClient.open(t)
      client.create('[[sim: text "x"]] x')
      assert.equal((await client.response()).at(-1)!.type, 'response.completed')
      await writeFile(
        t.file,
        defaultYaml(t.simulator.url).replace(`${sha256(KEY)}", status: active`, `${sha256(KEY)}", status: revoked`),
      )
      assert.equal((await t.gateway.reload()).applied, true)
      client.create('x')
      const [refused] = await client.response()
      assert.deepEqual([refused!['status'], refused!['error'].code], [401, 'invalid_api_key'])
      assert.equal(refused!['headers']['www-authenticate'], 'Bearer')
      client.close()
    })
  })

  test('a reload holds from the next request on: a route that is gone is 404; a gateway that has too much to do says so', async () => {
    await using({ extra: 'platform: { max_concurrent_requests: 4 }' }, async t => {
      const client = await SocketClient.open(t)
      for (let i = 0; i < 5; i++) client.create('[[sim: delay 60s]] x', { stream_id: `lane${i}` })
      await eventually(() => t.gateway.ingress.running.size + client.frames.length === 5)
      client.create('x', { stream_id: 'more' })
      await eventually(() => client.frames.some(frame => frame['stream_id'] === 'more'))
      const full = client.frames.find(frame => frame['stream_id'] === 'more')!
      assert.ok(['capacity_exceeded', 'route_capacity'].includes(full['error'].code), JSON.stringify(full))
      client.close()
      const other = await SocketClient.open(t)
      const yaml = defaultYaml(t.simulator.url).replace(/^ {2}- \{ match: POST \/v1\/responses,.*$/m, '')
      await writeFile(t.file, yaml)
      assert.equal((await t.gateway.reload()).applied, true)
      other.create('x')
      const [gone] = await other.response()
      assert.deepEqual([gone!['status'], gone!['error'].code], [404, 'not_found'])
      other.close()
    })
  })

  test('[GEN-2] messages that are no request get an error frame that says why, and the connection goes on', async () => {
    await using({}, async t => {
      const client = await SocketClient.open(t)
      const CASES: [message: string | Buffer, code: string, param: string | null][] = [
        ['', 'invalid_json', null],
        ['nonsense', 'invalid_json', null],
        ['[]', 'invalid_json', null],
        ['"response.create"', 'invalid_json', null],
        ['{"type":"response.create"', 'invalid_json', null],
        ['{"type":"response.create","model":"eb1-preview","input":}', 'invalid_json', null],
        ['{"type":"response.create",}', 'invalid_json', null],
        [Buffer.from('{"type":"response.create"}'), 'invalid_json', null],
        ['{}', 'missing_required_parameter', 'type'],
        ['{"type":7}', 'unsupported_value', 'type'],
        ['{"type":"response.steer","previous_response_id":"resp_1","input":"x"}', 'unsupported_value', 'type'],
        ['{"\\u0074ype":"response.create"}', 'missing_required_parameter', 'model'],
        ['{"input":"}{\\"","type":"response.create","stream_id":""}', 'invalid_stream_id', 'stream_id'],
        ['{"type":"response.create","stream_id":"a b"}', 'invalid_stream_id', 'stream_id'],
        ['{"type":"response.create","stream_id":7}', 'invalid_stream_id', 'stream_id'],
      ]
      for (const [message, code, param] of CASES) {
        client.ws.send(message)
        const frame = await client.next()
        assert.deepEqual(
          [frame.type, frame['status'], frame['error'].code, frame['error'].param],
          ['error', 400, code, param],
          String(message),
        )
        assert.match(frame['headers']['x-request-id'], /^req_/)
      }
      // Codex's receipt wants no answer.
      client.send({ type: 'response.processed', response_id: 'resp_1' })
      client.create('[[sim: text "still here"]] x', { stream_id: null })
      assert.equal(textOf(await client.response()), 'still here')
      client.close()
    })
  })

  test('[GEN-5] a message far over max_body, and text that is no UTF-8, cut the connection; the gateway goes on', async () => {
    await using({ plugins: { validation: '{ max_body: 1MiB }' } }, async t => {
      const large = await SocketClient.open(t)
      large.create('x'.repeat(1024 * 1024 + 1))
      assert.equal((await large.response())[0]!['error'].code, 'request_too_large')
      large.create('x'.repeat(2 * 1024 * 1024 + 1))
      assert.equal((await large.ended()).code, 1006)
      const broken = await SocketClient.open(t)
      broken.ws.send(Buffer.from([0x7b, 0xff, 0x7d]), { binary: false })
      assert.equal((await broken.ended()).code, 1006)
      const client = await SocketClient.open(t)
      client.create('[[sim: text "x"]] x')
      assert.equal((await client.response()).at(-1)!.type, 'response.completed')
      client.close()
      await eventually(() => t.gateway.listener.connections === 0)
    })
  })
})

describe('lanes', () => {
  test('requests of one lane run one after the other, in their order; named lanes run beside it, and their frames say so', async () => {
    await using({}, async t => {
      const client = await SocketClient.open(t)
      client.create('[[sim: tokens 30; pace 50ms]] x')
      client.create('[[sim: text "second"]] x')
      client.create('[[sim: text "third"]] x')
      client.create('[[sim: text "aside"]] x', { stream_id: 'side.1_a-B' })
      const order: string[] = []
      while (order.length < 4) {
        const frame = await client.next()
        if (frame.type === 'response.created') assert.equal('stream_id' in frame, frame['stream_id'] !== undefined)
        if (frame.type === 'response.completed') {
          const { output } = frame['response']
          order.push(frame['stream_id'] ?? output[0].content[0].text.slice(0, 6))
        }
      }
      assert.equal(order[0], 'side.1_a-B', 'the named lane does not wait for the other')
      assert.deepEqual(order.slice(2), ['second', 'third'])
      const unnamed = client.frames
        .filter(frame => frame['stream_id'] === undefined)
        .map(frame => frame['sequence_number'])
      // Three responses, each counted from 0 and never mixed.
      assert.equal(unnamed.filter((n, i) => n !== 0 && n !== unnamed[i - 1] + 1).length, 0)
      client.close()
    })
  })

  test('a long message is read in pieces and keeps its place before those behind it; one that is no JSON does not stop them', async () => {
    await using({}, async t => {
      const client = await SocketClient.open(t)
      const long = [
        { role: 'user', content: `"[{${'a'.repeat(1_500_000)}` },
        { role: 'user', content: '[[sim: text "long"]] x' },
      ]
      client.create(long)
      client.create('[[sim: text "short"]] x')
      assert.equal(textOf(await client.response()), 'long')
      assert.equal(textOf(await client.response()), 'short')
      client.send(`{"input":[${'[[],'.repeat(500_000)}`)
      client.send(`{"input":"${'\\"'.repeat(1_000_000)}","type":"response.steer"}`)
      client.create('[[sim: text "after"]] x')
      assert.equal((await client.response())[0]!['error'].code, 'invalid_json')
      assert.equal((await client.response())[0]!['error'].param, 'type')
      assert.equal(textOf(await client.response()), 'after')
      client.close()
    })
  })

  test('[LIM-1] a lane never meets its own last request at concurrent_requests: 1; another lane does, and its error names it', async () => {
    await using({ organization: '    limits: { concurrent_requests: 1 }' }, async t => {
      const client = await SocketClient.open(t)
      for (let i = 0; i < 5; i++) client.create('[[sim: text "x"]] x')
      for (let i = 0; i < 5; i++) assert.equal((await client.response()).at(-1)!.type, 'response.completed')
      client.create('[[sim: text "x"; stall 2]] x')
      assert.equal((await client.next()).type, 'response.created')
      client.create('y', { stream_id: 'b' })
      await eventually(() => client.frames.some(frame => frame.type === 'error'))
      const error = client.frames.find(frame => frame.type === 'error')!
      assert.deepEqual(
        [error['status'], error['error'].code, error['stream_id']],
        [429, 'concurrency_limit_exceeded', 'b'],
      )
      client.close()
    })
  })

  test('a connection runs 16 at once, keeps 32 waiting and refuses the next; it knows 32 names', async () => {
    await using({}, async t => {
      const client = await SocketClient.open(t)
      for (let i = 0; i < 16; i++) client.create('[[sim: delay 60s]] x', { stream_id: `lane${i}` })
      await eventually(() => t.simulator.requests.length === 16)
      for (let i = 0; i < 32; i++) client.create('x', { stream_id: `lane${i % 20}` })
      client.create('x', { stream_id: 'lane19' })
      const full = await client.next()
      assert.deepEqual([full['status'], full['error'].code, full['stream_id']], [429, 'websocket_queue_full', 'lane19'])
      assert.ok(Number(full['headers']['retry-after']) >= 1)
      assert.equal(t.simulator.requests.length, 16)
      const names = await SocketClient.open(t)
      for (let i = 0; i < 32; i++) {
        names.create('[[sim: text "x"]] x', { stream_id: `n${i}` })
        await names.response()
      }
      names.create('x', { stream_id: 'n32' })
      const [one] = await names.response()
      assert.deepEqual(
        [one!['status'], one!['error'].code, one!['stream_id']],
        [400, 'websocket_stream_limit_reached', 'n32'],
      )
      names.create('[[sim: text "x"]] x', { stream_id: 'n31' })
      assert.equal((await names.response()).at(-1)!.type, 'response.completed')
      client.close()
      names.close()
      // Those that ran are cancelled, those that waited never begin.
      await eventually(() => t.gateway.ingress.running.size === 0)
      await eventually(() => t.simulator.requests.every(request => request.state !== 'open'))
      assert.equal(t.simulator.requests.length, 16 + 33)
    })
  })
})

describe('slow and gone', () => {
  /** A gateway whose upstream has no end of text until it is told that it is enough. */
  async function endless(
    server: string,
    body: (t: TestGateway, flow: { pushed: number; enough: boolean }) => Promise<void>,
  ) {
    const upstream = await startFakeUpstream()
    const flow = { pushed: 0, enough: false }
    upstream.script = async turn => {
      const { events } = await turn.open()
      await turn.chunk(events[0]!)
      const piece = events[1]!.replace(/"content":"[^"]*"/, `"content":"${'word '.repeat(400)}"`).repeat(20)
      while (!flow.enough && (await turn.chunk(piece))) flow.pushed += 20 * 'word '.repeat(400).length
      for (const event of events.slice(2)) await turn.chunk(event)
      await turn.end()
    }
    const options: TestOptions = {
      server,
      providers: `  one: { dialect: openai-chat, base_url: "${upstream.url}" }`,
      models:
        '  eb1-preview: { context_window: 400000, price: { input: 1, output: 1 }, backends: [{ provider: one, model: sim-aaaa }] }',
    }
    await using(options, t => body(t, flow))
    await upstream.close()
  }

  test('[STR-4] slow readers hold the upstream back, little is kept for them, and every frame arrives in the end', async () => {
    await endless('drain: 2s, stall_timeout: 10m', async (t, flow) => {
      const clients = await Promise.all(Array.from({ length: 2 }, () => SocketClient.open(t)))
      const before = await memory()
      for (const client of clients) {
        client.create('[[sim: text "one two three"]] x')
        client.ws.pause()
      }
      await eventually(() => flow.pushed > 0)
      await standsStill(() => flow.pushed)
      assert.equal(t.gateway.ingress.running.size, 2)
      // A reply's own text is kept by encoder and recorder; gateway, upstream and clients are all in this process,
      // kernel buffers are not.
      const each = ((await memory()) - before - 3 * flow.pushed) / 2
      assert.ok(each < 1024 * 1024, `${Math.round(each / 1024)} KiB of buffers for each reader`)
      flow.enough = true
      for (const client of clients) client.ws.resume()
      for (const client of clients) {
        const frames = await client.response()
        assert.equal(frames.at(-1)!.type, 'response.completed')
        assert.equal(textOf(frames), frames.at(-1)!['response'].output[0].content[0].text)
        for (const [i, frame] of frames.entries()) assert.equal(frame['sequence_number'], i)
        client.close()
      }
    })
  })

  test('a reader that takes nothing for stall_timeout is gone', async () => {
    await endless('drain: 2s, stall_timeout: 1s', async t => {
      const client = await SocketClient.open(t)
      client.create('[[sim: text "one two three"]] x')
      await client.next()
      client.ws.pause()
      await eventually(() => t.gateway.ingress.running.size === 0)
      await eventually(() => t.gateway.listener.connections === 0)
      assert.equal((await t.ledger())[0]!.outcome, 'client_gone')
      client.close()
    })
  })

  test('[BILL-3] [STR-4] a client that leaves cancels every response on the connection; what was delivered is billed', async () => {
    // No timer of the gateway ever fires: what cancels is that the client has left.
    await using({ gateway: { clock: new TableClock() } }, async t => {
      const client = await SocketClient.open(t)
      client.create('[[sim: text "some words"; stall 4]] x')
      client.create('[[sim: delay 60s]] x', { stream_id: 'b' })
      await eventually(() => client.frames.some(frame => frame.type === 'response.output_text.delta'))
      await eventually(() => t.simulator.requests.length === 2)
      const requests = [...t.simulator.requests]
      client.close()
      await Promise.all(requests.map(request => request.settled))
      assert.deepEqual(
        requests.map(request => request.state),
        ['aborted', 'aborted'],
      )
      await eventually(() => t.gateway.ingress.running.size === 0)
      const rows = await t.ledger()
      assert.deepEqual(
        rows.map(row => row.outcome),
        ['client_gone', 'client_gone'],
      )
      assert.equal(rows.filter(row => row.cost > 0).length, 1)
      await eventually(() => t.gateway.listener.connections === 0)
    })
  })

  test('[STR-4] and so it does when the message is large enough to be read and counted off the event loop', async () => {
    await using({}, async t => {
      const client = await SocketClient.open(t)
      client.create(`${'word '.repeat(100_000)} [[sim: text "some words"; stall 4]] x`)
      await eventually(() => client.frames.some(frame => frame.type === 'response.output_text.delta'))
      client.close()
      await t.simulator.requests[0]!.settled
      await eventually(() => t.gateway.ingress.running.size === 0)
      assert.equal((await t.ledger())[0]!.outcome, 'client_gone')
    })
  })

  test('[STR-5] silence is filled by pings, during a response and between two; a client that answers none is cut', async () => {
    const options = { server: 'drain: 2s, keep_alive: 50ms', plugins: { validation: '{ body_timeout: 3s }' } }
    await using(options, async t => {
      const client = await SocketClient.open(t)
      await eventually(() => client.pings >= 2)
      client.create('[[sim: delay 300ms; text "x"]] x')
      const before = client.pings
      assert.equal((await client.response()).at(-1)!.type, 'response.completed')
      assert.ok(client.pings > before)
      assert.ok(client.frames.every(frame => frame.type !== 'keepalive'))
      assert.deepEqual(
        client.frames.map(frame => frame['sequence_number']),
        client.frames.map((_, i) => i),
      )
      assert.equal(client.closed, undefined)
      // Reads nothing any more, so it answers no ping: as if the wire had been cut.
      client.ws._socket.pause()
      await eventually(() => t.gateway.listener.connections === 0)
      client.close()
    })
  })

  test('a connection that has been open for 60 minutes ends with its error frame; a response that runs is not cut short', async () => {
    const clock = new ShiftedClock()
    await using({ gateway: { clock }, server: 'drain: 2s, keep_alive: 100ms' }, async t => {
      const [idle, busy] = [await SocketClient.open(t), await SocketClient.open(t)]
      busy.create('[[sim: tokens 40; pace 50ms]] x')
      await busy.next()
      busy.create('waits')
      clock.shift = 60 * 60_000
      const last = await idle.next()
      assert.deepEqual(
        [last.type, last['status'], last['error'].code],
        ['error', 400, 'websocket_connection_limit_reached'],
      )
      assert.deepEqual(await idle.ended(), { code: 1000, reason: 'open for 60 minutes' })
      await busy.ended()
      const errors = busy.frames.filter(frame => frame.type === 'error')
      assert.deepEqual(
        errors.map(frame => frame['error'].code),
        Array(2).fill('websocket_connection_limit_reached'),
      )
      assert.ok(['response.completed', 'response.incomplete'].includes(busy.frames.at(-1)!.type))
      assert.equal(t.simulator.requests.length, 1)
    })
  })
})

describe('drain', () => {
  test('idle connections are closed with 1012 at once; a running response ends well first, and what waits is refused', async () => {
    await using({ server: 'drain: 10s' }, async t => {
      const [idle, busy] = [await SocketClient.open(t), await SocketClient.open(t)]
      busy.create('[[sim: tokens 30; pace 50ms]] x')
      await busy.next()
      busy.create('waits')
      await eventually(() => t.simulator.requests.length === 1)
      const drained = t.gateway.drain()
      assert.deepEqual(await idle.ended(), { code: 1012, reason: 'service restart' })
      assert.deepEqual(await busy.ended(), { code: 1012, reason: 'service restart' })
      const refused = busy.frames.find(frame => frame.type === 'error')!
      assert.deepEqual([refused['status'], refused['error'].code], [503, 'route_unavailable'])
      assert.ok(Number(refused['headers']['retry-after']) >= 1)
      assert.equal(busy.frames.at(-1)!.type, 'response.completed')
      await drained
    })
  })

  test('[STR-6] what still runs at the deadline ends with the error frame of its surface, then the connection is closed', async () => {
    await using({ server: 'drain: 100ms' }, async t => {
      const client = await SocketClient.open(t)
      client.create('[[sim: text "some words"; stall 4]] x')
      await eventually(() => client.frames.some(frame => frame.type === 'response.output_text.delta'))
      const drained = t.gateway.drain()
      assert.deepEqual(await client.ended(), { code: 1012, reason: 'service restart' })
      const [error, failed] = client.frames.slice(-2)
      assert.deepEqual([error!.type, error!['code'], failed!.type], ['error', 'route_unavailable', 'response.failed'])
      await drained
    })
  })
})

describe('handshakes that open no socket', () => {
  test('websocket: off answers 426, and so does listener: node', async () => {
    for (const options of [{ server: 'drain: 2s, websocket: off' }, { gateway: { listener: 'node' as const } }]) {
      await using(options, async t => {
        const ws = await refusal(t)
        assert.equal(ws.status, 426)
        assert.equal(ws.body.error.code, 'upgrade_required')
        assert.equal(ws.headers['connection'], 'close')
      })
    }
  })

  test('the other surfaces answer 426, an unknown path 404; a key for one request is refused with 400', async () => {
    await using({}, async t => {
      for (const path of [
        '/v1/chat/completions',
        '/v1/messages',
        '/v1/messages/count_tokens',
        '/v1/responses/input_tokens',
      ]) {
        assert.equal((await refusal(t, {}, path)).status, 426, path)
      }
      assert.equal((await refusal(t, {}, '/v1/nothing')).status, 404)
      const keyed = await refusal(t, { 'idempotency-key': 'a' })
      assert.deepEqual([keyed.status, keyed.body.error.code], [400, 'bad_request'])
    })
  })

  test('a handshake that is not whole is answered 426, and nothing behind it is served', async () => {
    await using({}, async t => {
      const whole = {
        Host: 'a',
        Authorization: `Bearer ${KEY}`,
        Connection: 'keep-alive, Upgrade',
        Upgrade: 'WebSocket',
        'Sec-WebSocket-Version': '13',
        'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
      }
      const ask = async (headers: Record<string, string | undefined>, behind = ''): Promise<string> => {
        const socket = connect(t.gateway.port, '127.0.0.1')
        const lines = Object.entries(headers).filter(([, value]) => value !== undefined)
        socket.write(
          `GET /v1/responses HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${behind}`,
        )
        let received = ''
        socket.on('data', data => {
          received += data.toString('latin1')
          if (received.startsWith('HTTP/1.1 101')) socket.destroy()
        })
        socket.on('error', () => {})
        await once(socket, 'close')
        return received
      }
      assert.match(await ask(whole), /^HTTP\/1\.1 101 [\s\S]*sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=\r\n/i)
      for (const broken of [
        { 'Sec-WebSocket-Version': '8' },
        { 'Sec-WebSocket-Version': undefined },
        { 'Sec-WebSocket-Key': undefined },
        { 'Sec-WebSocket-Key': 'short' },
        { 'Sec-WebSocket-Key': '!!!!!!!!!!!!!!!!!!!!!!==' },
        { Connection: 'keep-alive' },
      ]) {
        assert.match(await ask({ ...whole, ...broken }), /^HTTP\/1\.1 426 /, JSON.stringify(broken))
      }
      const tail = `GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\n\r\n`
      assert.doesNotMatch(await ask(whole, tail), /HTTP\/1\.1 200/)
    })
  })

  test('[R13] connections count towards max_connections for as long as they are open', async () => {
    await using({ server: 'drain: 2s, max_connections: 2' }, async t => {
      const [a, b] = [await SocketClient.open(t), await SocketClient.open(t)]
      assert.equal(t.gateway.listener.connections, 2)
      await assert.rejects(SocketClient.open(t))
      a.ws.close()
      await eventually(() => t.gateway.listener.connections === 1)
      const c = await SocketClient.open(t)
      for (const client of [b, c]) client.close()
      await eventually(() => t.gateway.listener.connections === 0)
    })
  })
})
