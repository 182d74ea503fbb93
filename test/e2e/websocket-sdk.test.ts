/** The official SDK's WebSocket client, as it is installed, and a coding agent's turns over one connection. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { after, before, describe, test } from 'node:test'
import OpenAI from 'openai'
import { KEY, startGateway, type TestGateway } from './harness.ts'
import { SocketClient } from './socket-client.ts'

// The SDK leaves its transport, the package `ws`, to be installed; here it is the one that playwright-core brings
// along.
registerHooks({
  resolve(specifier, context, next) {
    if (specifier !== 'ws') return next(specifier, context)
    return { url: new URL('../listener/web-socket.ts', import.meta.url).href, shortCircuit: true }
  },
})
// By variable: their types need those of `ws`.
const [transport, session] = ['openai/resources/responses/ws', 'openai/lib/responses/responses-websocket-session']
const { ResponsesWS } = (await import(transport!)) as any
const { ResponsesWebSocketSession } = (await import(session!)) as any

let t: TestGateway
before(async () => {
  t = await startGateway({ gateway: { listener: 'uws' } })
})
after(() => t.close())

const client = (apiKey = KEY) => new OpenAI({ baseURL: `${t.url}/v1`, apiKey, maxRetries: 0 })

async function response(ws: any): Promise<any> {
  for await (const event of ws) {
    if (event.type === 'error') throw event.error
    if (event.type !== 'message') continue
    t.leaks.look(JSON.stringify(event.message), 'SDK event')
    if (['response.completed', 'response.failed', 'response.incomplete'].includes(event.message.type))
      return event.message.response
  }
  throw new Error('closed before the response finished')
}

describe('openai, ResponsesWS', () => {
  test('[RESP-2] the guide’s tool loop runs on one connection, with store: false', async () => {
    const ws = new ResponsesWS(client())
    const tools = [
      {
        type: 'function',
        name: 'get_test_results',
        parameters: { type: 'object', properties: {}, additionalProperties: false },
        strict: true,
      },
    ]
    const turn = { type: 'response.create', stream_id: 'main', model: 'eb1-preview', store: false, tools }
    ws.send({
      ...turn,
      input: 'Find the failing test.',
      tool_choice: { type: 'function', name: 'get_test_results' },
      parallel_tool_calls: false,
    })
    const first = await response(ws)
    const call = first.output.find((item: any) => item.type === 'function_call')
    assert.equal(call.name, 'get_test_results')
    ws.send({
      ...turn,
      previous_response_id: first.id,
      input: [
        { type: 'function_call_output', call_id: call.call_id, output: '{"test":"a"}' },
        { role: 'user', content: '[[sim: text "Now optimized."]] Now optimize it.' },
      ],
      tool_choice: 'none',
    })
    const second = await response(ws)
    assert.equal(second.status, 'completed')
    assert.equal(second.output[0].content[0].text, 'Now optimized.')
    ws.close()
  })

  test('[ERR-1] a refused request is an error event with its code and status; the connection goes on', async () => {
    const ws = new ResponsesWS(client())
    ws.send({ type: 'response.create', model: 'none', input: 'x' })
    await assert.rejects(response(ws), (error: any) => {
      assert.equal(error.error.status, 404)
      assert.equal(error.error.error.code, 'model_not_found')
      assert.match(error.error.error.headers['x-request-id'], /^req_/)
      return true
    })
    ws.send({ type: 'response.create', model: 'eb1-preview', input: '[[sim: text "x"]] x' })
    assert.equal((await response(ws)).status, 'completed')
    ws.close()
  })

  test('[AUTH-1] a wrong key never opens', async () => {
    const ws = new ResponsesWS(client('sk-wrong-0000-secret'))
    const error: any = await new Promise(resolve => ws.on('error', resolve))
    assert.match(String(error), /401/)
  })

  test('lanes of a session run side by side, fork, and collect their responses', async () => {
    const ws = new ResponsesWS(client())
    const lanes = new ResponsesWebSocketSession(ws, {
      maxLanes: 4,
      maxBufferedEvents: 10_000,
      maxBufferedBytes: 1 << 24,
    })
    for await (const event of ws) if (event.type === 'open') break
    const [planner, critic, unnamed] = [lanes.lane('planner'), lanes.lane('critic'), lanes.lane()]
    const ask = (input: string, more: object = {}) => ({ model: 'eb1-preview', store: false, input, ...more })
    planner.create(ask('[[sim: text "a plan"; pace 5ms]] plan'))
    unnamed.create(ask('[[sim: text "beside"]] x'))
    const [plan, beside] = await Promise.all([planner.finalResponse(), unnamed.finalResponse()])
    assert.deepEqual([plan.output_text, beside.output_text], ['a plan', 'beside'])
    critic.create(ask('[[sim: text "gaps"]] find gaps', { previous_response_id: plan.id }))
    planner.create(ask('[[sim: text "more"]] go on', { previous_response_id: plan.id }))
    const [gaps, more] = await Promise.all([critic.finalResponse(), planner.finalResponse()])
    assert.deepEqual([gaps.output_text, more.output_text], ['gaps', 'more'])
    planner.create(ask('x', { previous_response_id: 'resp_unknown' }))
    const failed: any = await planner.receive()
    assert.deepEqual(
      [failed.type, failed.stream_id, failed.error.code],
      ['error', 'planner', 'previous_response_not_found'],
    )
    ws.close()
  })
})

describe('Codex', () => {
  const read = (name: string) => JSON.parse(readFileSync(new URL(`./fixtures/${name}.json`, import.meta.url), 'utf8'))

  test('[GEN-2] warms up, takes its first turn from there, and the next with only what is new', async () => {
    const { body, headers } = read('codex-first-turn')
    const socket = await SocketClient.open(t, {
      headers: { ...headers, 'openai-beta': 'responses_websockets=2026-02-06' },
    })
    const { stream: _, input, ...fields } = body
    const turn = { ...fields, type: 'response.create', model: 'eb1-efficient-preview', store: false }
    socket.send({ ...turn, input, generate: false })
    const warm = (await socket.response()).at(-1)!
    assert.equal(warm.type, 'response.completed', JSON.stringify(warm))
    socket.send({ ...turn, input: [], previous_response_id: warm['response'].id })
    const first = (await socket.response()).at(-1)!
    assert.equal(first.type, 'response.completed', JSON.stringify(first))
    socket.send({ type: 'response.processed', response_id: first['response'].id })
    const more = [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: 'and then?' }] }]
    socket.send({ ...turn, input: more, previous_response_id: first['response'].id })
    const second = (await socket.response()).at(-1)!
    assert.equal(second.type, 'response.completed', JSON.stringify(second))
    const sent = JSON.stringify(t.simulator.requests.at(-1)!.json)
    const texts = [...input, ...more].flatMap((item: any) =>
      (item.content ?? []).flatMap((part: any) => part.text ?? []),
    )
    assert.ok(texts.length > 1)
    for (const text of texts)
      assert.ok(sent.includes(JSON.stringify(text).slice(1, -1)), `upstream has the whole conversation: ${text}`)
    socket.close()
  })
})
