import assert from 'node:assert/strict'
import { DIALECTS } from '../kit/gateways.ts'
import { SURFACES, type Surface } from '../kit/reply.ts'
import { section } from '../kit/row.ts'
import { documents, history, image, SCHEMA, searching, type Turn, tool, WEB_SEARCH } from '../kit/shapes.ts'
import type { World } from '../kit/world.ts'

const models = Object.values(DIALECTS)
const CALL = '[[sim: call weather {"city":"Ulm"}]] go'

/** Histories that are not consistent, and the call that is at fault. */
const BROKEN: Record<string, { turns: Turn[]; call: string }> = {
  'a duplicated call': {
    turns: [
      { user: 'go' },
      { calls: ['call_a'] },
      { results: ['call_a'] },
      { calls: ['call_a'] },
      { results: ['call_a'] },
    ],
    call: 'call_a',
  },
  'a result for an unknown call': {
    turns: [{ user: 'go' }, { calls: ['call_a'] }, { results: ['call_a', 'call_b'] }],
    call: 'call_b',
  },
  'a second result': {
    turns: [{ user: 'go' }, { calls: ['call_a'] }, { results: ['call_a', 'call_a'] }],
    call: 'call_a',
  },
  'a call without a result': { turns: [{ user: 'go' }, { calls: ['call_a'] }, { user: 'on' }], call: 'call_a' },
}
const NATIVE = [
  { type: 'bash_20250124', name: 'bash' },
  { type: 'text_editor_20250124', name: 'str_replace_editor' },
  { type: 'text_editor_20250728', name: 'str_replace_based_edit_tool' },
  { type: 'memory_20250818', name: 'memory' },
]

export const endpoints = section('Endpoints', 'endpoints', [
  {
    at: 'before the table',
    says: 'all requests carry a Bearer key',
    async check(w) {
      const headers = { authorization: undefined }
      for (const surface of SURFACES) assert.equal((await w.ask(surface, { headers })).status, 401)
      assert.equal((await w.count({ headers })).status, 401)
      assert.equal((await w.get('/models', { headers })).status, 401)
      return '401 on five endpoints'
    },
  },
  {
    at: 'before the table',
    says: 'bodies are JSON, with its content type',
    async check(w) {
      for (const surface of SURFACES) {
        const typed = await w.ask(surface, { headers: { 'content-type': 'text/plain' } })
        assert.deepEqual([typed.status, typed.code], [415, 'unsupported_media_type'])
        assert.equal((await w.ask(surface, { body: '{' })).code, 'invalid_json')
      }
      return '415 for another type, 400 invalid_json for no JSON'
    },
  },
  {
    at: 'table: /responses',
    says: 'takes input, previous_response_id, store, tools, tool_choice, stream and reasoning; gives output and usage',
    async check(w) {
      const first = await w.well('responses')
      const more = {
        previous_response_id: first.json.id,
        store: true,
        tools: [tool('responses')],
        tool_choice: 'auto',
        reasoning: { effort: 'low' },
      }
      for (const model of models) {
        for (const stream of [false, true]) {
          const { json } = await w.well('responses', { model, stream, more })
          assert.ok(json.output.length > 0 && json.usage.total_tokens > 0)
        }
      }
      return 'all at once, on four dialects, buffered and streamed'
    },
  },
  {
    at: 'table: /chat/completions',
    says: 'gives choices and usage, or chunks',
    async check(w) {
      for (const model of models) {
        const { json } = await w.well('chat', { model })
        assert.ok(json.choices.length === 1 && json.usage)
        const { frames } = await w.well('chat', { model, stream: true })
        assert.ok(frames.slice(0, -1).every(({ data }) => data.object === 'chat.completion.chunk'))
        assert.equal(frames.at(-1)!.data, '[DONE]')
      }
      return 'on four dialects'
    },
  },
  {
    at: 'table: /messages',
    says: 'takes system, tools, thinking, output_config and stream; gives content, stop_reason and usage',
    async check(w) {
      const thinking = { type: 'enabled', budget_tokens: 1024 }
      const more = { system: 'be brief', tools: [tool('messages')], thinking, output_config: { effort: 'low' } }
      for (const model of models) {
        for (const stream of [false, true]) {
          const { json } = await w.well('messages', { model, stream, more })
          assert.ok(json.content.length > 0 && json.stop_reason && json.usage)
        }
      }
      return 'all at once, on four dialects, buffered and streamed'
    },
  },
  {
    at: 'table: /messages/count_tokens',
    says: 'takes a body of Messages, and estimates its prompt',
    async check(w) {
      const reply = await w.count()
      assert.ok(reply.status === 200 && reply.json.input_tokens > 0, String(reply))
      return reply.raw
    },
  },
  {
    at: 'table: /models',
    says: 'lists the public ids of the key',
    async check(w) {
      const ids = (await w.models()).map(({ id }) => id)
      assert.deepEqual(ids, models)
      return ids.join(', ')
    },
  },
  {
    at: 'rule 1',
    says: 'a reused Idempotency-Key replays the first reply, and nothing is executed',
    check: w =>
      w.surfaces(async (surface, stream) => {
        const headers = { 'idempotency-key': `${surface}-${stream}-bytes` }
        const first = await w.well(surface, { stream, headers })
        const sent = w.sent.length
        const again = await w.well(surface, { stream, headers })
        assert.deepEqual([again.raw, w.sent.length], [first.raw, sent])
        w.bill(again, row => assert.ok(row === undefined || row.cost === 0))
      }),
  },
  {
    at: 'rule 1',
    says: 'a replay has X-Idempotent-Replay and X-Original-Request-Id',
    check: w =>
      w.surfaces(async (surface, stream) => {
        const headers = { 'idempotency-key': `${surface}-${stream}` }
        const first = await w.well(surface, { stream, headers })
        assert.equal(first.header('x-idempotent-replay'), null)
        const again = await w.well(surface, { stream, headers })
        assert.deepEqual(
          [again.header('x-idempotent-replay'), again.header('x-original-request-id')],
          ['true', first.id],
        )
        assert.notEqual(again.id, first.id)
      }),
  },
  {
    at: 'rule 1',
    says: 'a key for another body is 409 idempotency_key_conflict',
    check: w =>
      w.surfaces(async (surface, stream) => {
        const headers = { 'idempotency-key': `${surface}-${stream}-other` }
        await w.well(surface, { stream, headers })
        const other = await w.ask(surface, { stream, headers, say: 'something else' })
        assert.deepEqual([other.status, other.code], [409, 'idempotency_key_conflict'])
        assert.equal(other.header('x-should-retry'), 'false')
      }),
  },
  {
    at: 'rule 2',
    says: 'count_tokens counts as the request is billed: text, tools, history, images and documents',
    async check(w) {
      const model = DIALECTS['anthropic-messages']
      const turns = [{ user: 'go' }, { calls: ['call_1'] }, { results: ['call_1'] }]
      const bodies = [
        {},
        { system: 'be brief', tools: [tool('messages')] },
        { tools: [tool('messages')], ...history('messages', turns) },
        image('messages', 'look', 2),
        documents(2),
      ]
      const counts: number[] = []
      for (const more of bodies) {
        const counted = (await w.count({ model, more })).json.input_tokens
        const reply = await w.well('messages', { model, more })
        assert.equal(reply.input, counted)
        w.bill(reply, row => assert.equal(row?.input, counted))
        counts.push(counted)
      }
      return counts.join(', ')
    },
  },
  {
    at: 'rule 2',
    says: 'a body that Messages would reject has an advisory estimate',
    async check(w) {
      const bodies = [
        {},
        { messages: 'hi' },
        { model: 'none', messages: [{ role: 'user', content: 'hi' }] },
        { messages: [{ role: 'nobody', content: 'hi' }], frobnicate: 1 },
        { model: 7, messages: [{ content: [{ type: 'what' }] }] },
      ]
      for (const body of bodies) {
        const reply = await w.count({ body: JSON.stringify(body) })
        assert.ok(reply.status === 200 && reply.json.input_tokens >= 0, `${JSON.stringify(body)} ${reply}`)
      }
      return 'an object without messages, messages that are a text, an unknown model, role, member and block'
    },
  },
  {
    at: 'rule 4',
    says: 'previous_response_id continues without the earlier turns, on any eb1 model',
    async check(w) {
      for (const model of [...models, 'eb1-delta-preview']) {
        const first = await w.well('responses', { model, say: 'my name is Ada' })
        await w.well('responses', { model, say: 'who am I', more: { previous_response_id: first.json.id } })
        assert.match(JSON.stringify(w.forwarded), /my name is Ada.*who am I/)
      }
      return 'five models get the earlier turns'
    },
  },
  {
    at: 'rule 4',
    says: 'an unknown or expired id is 400 previous_response_not_found',
    async check(w) {
      const first = await w.well('responses')
      const ask = (id: string) => w.ask('responses', { more: { previous_response_id: id } })
      const unknown = await ask('resp_none')
      assert.deepEqual([unknown.status, unknown.code], [400, 'previous_response_not_found'])
      assert.equal(unknown.error.param, 'previous_response_id')
      await w.pass(86_400 + 600)
      assert.equal((await ask(first.json.id)).code, 'previous_response_not_found')
      return unknown.error.message
    },
  },
  {
    at: 'rule 4',
    says: 'allowed_tools, replayed refusals, lists as custom_tool_call_output and detail original are accepted',
    async check(w) {
      const refusal = { type: 'refusal', refusal: 'no' }
      const part = { type: 'input_text', text: 'done' }
      const url = image('responses').input[0].content[1].image_url
      const bodies = [
        {
          tools: [tool('responses')],
          tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'weather' }] },
        },
        {
          input: [
            { type: 'message', role: 'assistant', content: [refusal] },
            { role: 'user', content: 'why' },
          ],
        },
        {
          tools: [{ type: 'custom', name: 'note' }],
          input: [
            { role: 'user', content: 'go' },
            { type: 'custom_tool_call', call_id: 'call_1', name: 'note', input: 'x' },
            { type: 'custom_tool_call_output', call_id: 'call_1', output: [part] },
          ],
        },
        { input: [{ role: 'user', content: [{ type: 'input_image', image_url: url, detail: 'original' }] }] },
      ]
      for (const model of models) for (const more of bodies) await w.well('responses', { model, more })
      return 'on four dialects'
    },
  },
  {
    at: 'rule 4',
    says: 'item_reference and conversation are 400 that names the parameter',
    async check(w) {
      const item = await w.ask('responses', { more: { input: [{ type: 'item_reference', id: 'item_1' }] } })
      assert.equal(item.status, 400)
      assert.match(item.error.param, /^input\[0\]/)
      const named = await w.ask('responses', { more: { conversation: 'conv_1' } })
      assert.deepEqual([named.status, named.error.param], [400, 'conversation'])
      return `${item.error.param}, conversation`
    },
  },
  {
    at: 'rule 5',
    says: 'output_config.effort and adaptive thinking are forwarded as reasoning effort',
    async check(w) {
      const level = /"(reasoning_effort|effort|thinkingLevel)":"(low|medium|high|LOW|MEDIUM|HIGH)"|"thinkingBudget":\d/
      for (const model of models) {
        for (const more of [{ output_config: { effort: 'low' } }, { thinking: { type: 'adaptive' } }]) {
          await w.well('messages', { model, more })
          const sent = JSON.stringify(w.forwarded)
          const adaptive = 'thinking' in more && /"type":"adaptive"|"includeThoughts":true/.test(sent)
          assert.ok(level.test(sent) || adaptive, `${model} ${JSON.stringify(more)} is sent as ${sent.slice(0, 300)}`)
        }
      }
      return 'on four dialects'
    },
  },
  {
    at: 'rule 5',
    says: 'an effort above the model’s ceiling is lowered to it',
    async check(w) {
      for (const stream of [false, true]) {
        await w.well('messages', { model: 'low', stream, more: { output_config: { effort: 'max' } } })
        assert.match(JSON.stringify(w.forwarded), /"effort":"low"/)
      }
      return 'max is sent as low'
    },
  },
  {
    at: 'rule 5',
    says: 'both versions of web search are accepted on every eb1 model, with the cap that agents send',
    async check(w) {
      for (const model of models) {
        for (const type of ['web_search_20250305', 'web_search_20260209']) {
          const more = { tools: [{ type, name: 'web_search', max_uses: 8 }] }
          const reply = await w.well('messages', { model, say: searching(model), more })
          assert.match(reply.raw, /web_search_tool_result/, `${model} ${type}`)
        }
      }
      return 'searched on four dialects, max_uses: 8'
    },
  },
  {
    at: 'rule 5',
    says: 'server_tool_use and web_search_tool_result come back in place, before the text',
    async check(w) {
      for (const model of models) {
        for (const stream of [false, true]) {
          if (stream && model === DIALECTS.gemini) continue
          const reply = await w.well('messages', { model, stream, say: searching(model), more: WEB_SEARCH })
          const types = reply.json.content.map(({ type }: any) => type).filter((type: string) => type !== 'thinking')
          assert.deepEqual(types.slice(0, 2), ['server_tool_use', 'web_search_tool_result'], `${model} ${types}`)
        }
      }
      return 'on four dialects; a stream of gemini tells its searches at its end'
    },
  },
  {
    at: 'rule 5',
    says: 'bash, text editors and memory are accepted, and native where the route has them',
    async check(w) {
      for (const model of models) {
        for (const native of NATIVE) await w.well('messages', { model, more: { tools: [native] } })
      }
      await w.well('messages', { model: 'native', more: { tools: [NATIVE[0], NATIVE[2], NATIVE[3]] } })
      assert.match(JSON.stringify(w.forwarded), /bash_20250124.*text_editor_20250728.*memory_20250818/)
      return 'four tools on four dialects; three of them natively'
    },
  },
  {
    at: 'rule 5',
    says: 'validation errors name messages[i].content[j]',
    async check(w) {
      const bad = [
        { type: 'text', text: 'a' },
        { type: 'text', text: 7 },
      ]
      const messages = [
        { role: 'user', content: 'a' },
        { role: 'assistant', content: 'b' },
        { role: 'user', content: bad },
      ]
      const reply = await w.ask('messages', { more: { messages } })
      assert.match(reply.error.param, /^messages\[2\]\.content\[1\]/)
      return reply.error.param
    },
  },
  {
    at: 'rule 5',
    says: 'summaries of thinking are unsigned, and do not go back as signed ones',
    async check(w) {
      const more = { thinking: { type: 'adaptive', display: 'summarized' }, output_config: { effort: 'high' } }
      const model = DIALECTS['anthropic-messages']
      for (const stream of [false, true]) {
        const reply = await w.well('messages', { model, stream, more, say: '[[sim: reason 1]]' })
        assert.doesNotMatch(reply.raw, /"signature":"[^"]|signature_delta/)
        const assistant = reply.json.content.map(({ json: _, ...block }: any) => block)
        const messages = [
          { role: 'user', content: 'a' },
          { role: 'assistant', content: assistant },
          { role: 'user', content: 'b' },
        ]
        await w.well('messages', { model, more: { ...more, messages } })
        assert.doesNotMatch(JSON.stringify(w.forwarded.messages), /Reading the request/)
      }
      return 'no signature in reply or stream; a replayed summary is not sent as thinking'
    },
  },
  {
    at: 'rule 6',
    says: 'strict is honoured by all backends: a call that breaks its schema does not pass',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        const more = { tools: [tool(surface, 'weather', SCHEMA, true)] }
        await w.well(surface, { model, stream, more, say: CALL })
        const broken = await w.ask(surface, { model, stream, more, say: '[[sim: call weather {"town":7}]]' })
        assert.ok(broken.error, String(broken))
        assert.match(broken.error.message, /weather|argument/)
      }),
  },
  {
    at: 'rule 6',
    says: 'a strict schema closes its objects and requires every property, else 400',
    async check(w) {
      const { additionalProperties: _, ...open } = SCHEMA
      for (const surface of SURFACES) {
        for (const model of models) {
          for (const schema of [open, { ...SCHEMA, required: [] }]) {
            const reply = await w.ask(surface, { model, more: { tools: [tool(surface, 'weather', schema, true)] } })
            assert.deepEqual([reply.status, reply.error?.type], [400, 'invalid_request_error'], String(reply))
          }
        }
      }
      return 'an open object and an optional property, three surfaces, four dialects'
    },
  },
  {
    at: 'rule 6',
    says: 'long and odd tool names are accepted, and calls carry the declared name',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        for (const name of ['n'.repeat(100), 'wetter/über Ulm']) {
          const more = { tools: [tool(surface, name)] }
          const reply = await w.well(surface, { model, stream, more, say: '[[sim: call #1 {"city":"Ulm"}]]' })
          assert.equal(reply.calls[0]?.name, name)
        }
      }),
  },
  ...Object.entries(BROKEN).map(([what, { turns, call }]) => ({
    at: 'rule 7',
    says: `${what} is 400 conversation_invariant with its call_id`,
    check: (w: World) => brokenOn(w, turns, call),
  })),
  {
    at: 'rule 7',
    says: 'the history that a response recalls is checked, too',
    async check(w) {
      const more = { tools: [tool('responses')] }
      const first = await w.well('responses', { say: CALL, more })
      const sent = w.sent.length
      const reply = await w.ask('responses', { say: 'on', more: { ...more, previous_response_id: first.json.id } })
      assert.deepEqual([reply.code, reply.error.details.call_id], ['conversation_invariant', first.calls[0]!.id])
      assert.equal(w.sent.length, sent)
      return reply.error.message
    },
  },
  {
    at: 'rule 8',
    says: 'the client runs the function and sends its result in the next turn',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        const more = { tools: [tool(surface)] }
        const sent = w.sent.length
        const { calls } = await w.well(surface, { model, stream, say: CALL, more })
        assert.equal(w.sent.length - sent, 1)
        const turns = [{ user: CALL }, { calls: [calls[0]!.id] }, { results: [calls[0]!.id] }]
        const last = await w.well(surface, { model, stream, more: { ...more, ...history(surface, turns, 'snowing') } })
        assert.match(last.text, /snowing/)
      }),
  },
  {
    at: 'rule 8',
    says: 'in a stream the terminal reason follows the calls',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        if (!stream) return
        const { frames } = await w.well(surface, { model, stream, say: CALL, more: { tools: [tool(surface)] } })
        const kinds = frames.map(({ data }) => JSON.stringify(data))
        const call = kinds.findLastIndex(text => /tool_calls":\[|input_json_delta|function_call_arguments/.test(text))
        const end = kinds.findIndex(text => /finish_reason":"tool|"stop_reason":"tool|response\.completed/.test(text))
        assert.ok(call !== -1 && end > call, `${call} ${end}`)
      }),
  },
  {
    at: 'rule 9',
    says: 'on Chat images are image_url parts inside of a user message',
    async check(w) {
      await w.well('chat', { more: image('chat') })
      const { content } = image('chat').messages[0]
      const reply = await w.ask('chat', {
        more: {
          messages: [
            { role: 'system', content },
            { role: 'user', content: 'a' },
          ],
        },
      })
      assert.equal(reply.status, 400)
      return reply.error.message
    },
  },
  {
    at: 'rule 9',
    says: 'images need a model and an account with vision',
    accounts: { blind: { capabilities: ['tools'] } },
    async check(w) {
      for (const surface of SURFACES) {
        for (const ask of [{ model: 'bare' }, { as: 'blind' }]) {
          const reply = await w.ask(surface, { ...ask, more: image(surface) })
          assert.equal(reply.code, 'request_requirements_unsatisfied')
          assert.match(reply.error.param, /^(messages|input)\[0\]/)
        }
      }
      return '400 for a model without, and for an account without'
    },
  },
  {
    at: 'rule 10',
    says: 'too many images, documents, replayed bytes or nodes are 400 invalid_request_error',
    async check(w) {
      const refuse = async (surface: Surface, more: object) => {
        const reply = await w.ask(surface, { model: DIALECTS['anthropic-messages'], more })
        assert.deepEqual([reply.status, reply.error?.type], [400, 'invalid_request_error'], String(reply))
      }
      for (const surface of SURFACES) await refuse(surface, image(surface, 'look', 4))
      await refuse('messages', documents(3))
      const nodes = Array.from({ length: 20_001 }, () => 1)
      await refuse('chat', { tools: [tool('chat', 'weather', { ...SCHEMA, enum: nodes })] })
      assert.equal(w.sent.length, 0)
      return 'images on three surfaces, documents, nodes; nothing is sent'
    },
  },
  {
    at: 'rule 11',
    says: 'requirements that no backend meets together are 400 request_requirements_unsatisfied, before dispatch',
    check: async w => {
      for (const surface of SURFACES) {
        for (const stream of [false, true]) {
          const more = { ...image(surface), tools: [tool(surface)] }
          const reply = await w.ask(surface, { model: 'apart', stream, more })
          assert.deepEqual([reply.status, reply.code], [400, 'request_requirements_unsatisfied'])
          assert.match(reply.error.message, /image/)
          assert.match(reply.error.message, /tool/)
        }
        await w.well(surface, { model: 'apart', more: image(surface) })
        await w.well(surface, { model: 'apart', more: { tools: [tool(surface)] } })
      }
      assert.equal(w.sent.length, 6)
      return 'each alone is served; together they are refused, and the message names both'
    },
  },
])

async function brokenOn(w: World, turns: Turn[], call: string) {
  return w.everywhere(async (surface, model, stream) => {
    const reply = await w.ask(surface, { model, stream, more: { tools: [tool(surface)], ...history(surface, turns) } })
    assert.deepEqual([reply.status, reply.code], [400, 'conversation_invariant'], String(reply))
    assert.equal(reply.error.details.call_id, call)
    assert.equal(w.sent.length, 0)
  })
}
