/**
 * Tools on every surface and dialect: ids, private data, names, strict schemas, choices, history, custom and client-run
 * tools.
 */
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'
import {
  bodyOf,
  type Call,
  DIALECTS,
  type DialectName,
  type Entry,
  PATHS,
  type read,
  refused,
  SURFACES,
  type SurfaceName,
  served,
  type Tool,
} from './conversations.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  t = await startGateway()
})
after(() => t.close())

const WEATHER: Tool = {
  name: 'get_weather',
  schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
}
const ASK: Entry = {
  user: '[[sim: reason 1; call get_weather {"city":"Oslo"}; call get_weather {"city":"Lima"}; next call get_weather {"city":"Rome"}]] weather?',
}
/** Makes every dialect reason, in the notation of each surface. */
const REASON: Record<SurfaceName, Record<string, unknown>> = {
  chat: { reasoning_effort: 'high' },
  responses: { reasoning: { effort: 'high' } },
  messages: { thinking: { type: 'adaptive' }, output_config: { effort: 'high' } },
}
const results = (calls: Call[], output = 'sunny') => ({ results: calls.map(({ id }) => ({ id, output })) })
const lastSent = (gateway = t): any => gateway.simulator.requests.at(-1)!.json

/** What the provider signed for the calls is in the request again. */
function assertPrivateDataIn(sent: string, dialect: DialectName): void {
  if (dialect === 'openai-responses') assert.match(sent, /"type":"reasoning"[^}]*gAAAAA|gAAAAA[^}]*/)
  if (dialect === 'anthropic-messages') assert.match(sent, /"type":"thinking","thinking":"[^"]+","signature":"[^"]+"/)
  if (dialect === 'gemini') {
    assert.match(sent, /"thoughtSignature":/)
    assert.doesNotMatch(sent, /skip_thought_signature_validator/)
  }
}

// ---- ids ------------------------------------------------------------------------------------------------------------

for (const [dialect, model] of Object.entries(DIALECTS) as [DialectName, string][]) {
  test(`[TOOL-1] [TOOL-6] ${dialect}: a call made on any surface is answered on any other, and private data goes back`, async () => {
    for (const made of SURFACES) {
      const first = await served(t, made, bodyOf(made, model, [ASK], { tools: [WEATHER], more: REASON[made] }))
      assert.deepEqual(
        first.calls.map(c => c.input),
        [{ city: 'Oslo' }, { city: 'Lima' }],
      )
      for (const { id } of first.calls) assert.match(id, /^call_eba1_[A-Za-z0-9_-]{1,54}$/)
      for (const answered of SURFACES) {
        const entries: Entry[] = [ASK, { calls: first.calls }, results(first.calls)]
        const second = await served(
          t,
          answered,
          bodyOf(answered, model, entries, { tools: [WEATHER], more: REASON[answered] }),
        )
        assert.deepEqual(
          second.calls.map(c => c.input),
          [{ city: 'Rome' }],
          `${made} to ${answered}`,
        )
        const sent = JSON.stringify(lastSent())
        assert.doesNotMatch(sent, /_eba1_/, 'public ids stay on this side')
        assertPrivateDataIn(sent, dialect)
        const third = await served(
          t,
          answered,
          bodyOf(answered, model, [...entries, { calls: second.calls }, results(second.calls, 'warm')], {
            tools: [WEATHER],
            more: REASON[answered],
          }),
        )
        assert.match(third.text, /warm/)
      }
    }
  })
}

test('[TOOL-6] responses: private data goes back for a client that replays whole items, only ids, only encrypted_content, only calls, or nothing but the link', async () => {
  for (const [dialect, model] of Object.entries(DIALECTS) as [DialectName, string][]) {
    for (const stream of [false, true]) {
      const ask = {
        ...bodyOf('responses', model, [ASK], {
          tools: [WEATHER],
          more: { reasoning: { effort: 'high', summary: 'auto' }, include: ['reasoning.encrypted_content'] },
        }),
      }
      const first: any = stream
        ? await t
            .openai()
            .responses.stream(ask as any)
            .finalResponse()
        : await t.openai().responses.create(ask as any)
      const output: any[] = first.output
      const reasoning = output.find(o => o.type === 'reasoning')
      if (dialect !== 'openai-chat' && dialect !== 'gemini') {
        assert.equal(reasoning.encrypted_content, reasoning.id, 'one handle, which holds no data')
        assert.match(reasoning.id, /^item_eba1_/)
      }
      const calls = output.filter(o => o.type === 'function_call')
      const outputs = calls.map(o => ({ type: 'function_call_output', call_id: o.call_id, output: 'sunny' }))
      const replays: Record<string, unknown[]> = {
        whole: output,
        'without content': output.map(({ encrypted_content: _, ...rest }) => rest),
        'without ids': output.map(({ id: _, status: __, ...rest }) => rest),
        'calls only': calls.map(({ call_id, name, arguments: args, type }) => ({
          type,
          call_id,
          name,
          arguments: args,
        })),
      }
      for (const [name, items] of Object.entries(replays)) {
        const second: any = await t.openai().responses.create({
          ...ask,
          stream: false,
          store: false,
          input: [...(ask['input'] as any[]), ...items, ...outputs],
        } as any)
        assert.equal(second.status, 'completed', `${dialect}: ${name}`)
        assertPrivateDataIn(JSON.stringify(lastSent()), dialect)
      }
      const linked: any = await t
        .openai()
        .responses.create({ ...ask, stream: false, previous_response_id: first.id, input: outputs } as any)
      assert.equal(linked.status, 'completed')
      assertPrivateDataIn(JSON.stringify(lastSent()), dialect)
    }
  }
})

test('[TOOL-6] reasoning without a call goes back too, from its item', async () => {
  const model = DIALECTS['openai-responses']
  const ask = {
    model,
    reasoning: { effort: 'high' as const, summary: 'auto' as const },
    include: ['reasoning.encrypted_content' as const],
    store: false,
  }
  const first = await t.openai().responses.create({ ...ask, input: '[[sim: reason 2]] think' })
  for (const strip of [[], ['encrypted_content'], ['id']]) {
    const items = first.output.map(item => Object.fromEntries(Object.entries(item).filter(([k]) => !strip.includes(k))))
    const second = await t.openai().responses.create({
      ...ask,
      input: [{ role: 'user', content: 'think' }, ...(items as any[]), { role: 'user', content: 'more' }],
    })
    assert.equal(second.status, 'completed')
    assert.match(JSON.stringify(lastSent()), /gAAAAA/, `without ${strip}`)
  }
})

test('[TOOL-6] another model, another organization or a forged id: plain history, never an error', async () => {
  for (const [dialect, model] of Object.entries(DIALECTS) as [DialectName, string][]) {
    const first = await served(t, 'chat', bodyOf('chat', model, [ASK], { tools: [WEATHER], more: REASON.chat }))
    const entries: Entry[] = [ASK, { calls: first.calls }, results(first.calls)]
    for (const other of Object.values(DIALECTS)) {
      const said = await served(
        t,
        'messages',
        bodyOf('messages', other, entries, { tools: [WEATHER], more: REASON.messages }),
      )
      assert.equal(said.calls.length, 1, `${dialect} to ${other}`)
      if (other !== model) assert.doesNotMatch(JSON.stringify(lastSent()), /gAAAAA|"thinking":"/)
    }
    const theirs = await t.post(
      '/v1/chat/completions',
      bodyOf('chat', model, entries, { tools: [WEATHER], more: REASON.chat }),
      { authorization: 'Bearer sk-other-0001-secret' },
    )
    assert.equal(theirs.status, 200, await theirs.text())
    assert.doesNotMatch(JSON.stringify(lastSent()), /gAAAAA|"thinking":"[^"]|"thoughtSignature":"(?!skip_)/)
    const forged = first.calls.map((c, i) => ({ ...c, id: `call_eba1_forged${i}` }))
    const said = await served(
      t,
      'responses',
      bodyOf('responses', model, [ASK, { calls: forged }, results(forged)], { tools: [WEATHER] }),
    )
    assert.equal(said.calls.length, 1)
  }
})

test('[TOOL-1] call_eb2. ids and ids of others are accepted on every surface and never reach the upstream as they are', async () => {
  const ids = ['call_eb2.AbC-123_x', 'toolu_01ABC', 'call_abc123', 'weird id ü #1']
  for (const [, model] of Object.entries(DIALECTS)) {
    for (const surface of SURFACES) {
      const calls = ids.map((id, i) => ({ id, name: 'get_weather', input: { city: `c${i}` } }))
      const said = await served(
        t,
        surface,
        bodyOf(surface, model, [{ user: 'weather?' }, { calls }, results(calls, 'fine')], { tools: [WEATHER] }),
      )
      assert.match(said.text, /fine; fine; fine; fine/)
      assert.doesNotMatch(t.simulator.requests.at(-1)!.body, /call_eb2\.|weird id|toolu_01ABC/)
    }
  }
})

describe('what outlives a process', () => {
  test('[TOOL-1] [RESP-2] [TOOL-6] a restart on the same file: calls are answered, responses continued, private data goes back', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'sluice-restart-'))
    const yaml = (url: string) =>
      defaultYaml(url, { store: `{ url: "sqlite:${join(folder, 'store.db')}", timeout: 10s }` })
    try {
      const before = await startGateway({ yaml })
      const made: { dialect: DialectName; model: string; surface: SurfaceName; first: ReturnType<typeof read> }[] = []
      for (const [dialect, model] of Object.entries(DIALECTS) as [DialectName, string][]) {
        for (const surface of SURFACES)
          made.push({
            dialect,
            model,
            surface,
            first: await served(
              before,
              surface,
              bodyOf(surface, model, [ASK], { tools: [WEATHER], more: REASON[surface] }),
            ),
          })
      }
      await before.close()
      const again = await startGateway({ yaml })
      try {
        for (const { dialect, model, surface, first } of made) {
          const other = SURFACES[(SURFACES.indexOf(surface) + 1) % 3]!
          const entries: Entry[] = [ASK, { calls: first.calls }, results(first.calls)]
          const second = await served(
            again,
            other,
            bodyOf(other, model, entries, { tools: [WEATHER], more: REASON[other] }),
          )
          assert.equal(second.calls.length, 1)
          assertPrivateDataIn(JSON.stringify(lastSent(again)), dialect)
          if (surface !== 'responses') continue
          const linked = await served(
            again,
            'responses',
            bodyOf('responses', model, [results(first.calls)], {
              tools: [WEATHER],
              more: { previous_response_id: first.body.id, ...REASON.responses },
            }),
          )
          assert.equal(linked.calls.length, 1)
          assertPrivateDataIn(JSON.stringify(lastSent(again)), dialect)
        }
      } finally {
        await again.close()
      }
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  })

  test('[TOOL-1] [RESP-2] [TOOL-6] another instance on the same redis', { skip: skipWithoutRedis }, async () => {
    const redis = await RedisServer.start()
    const yaml = (url: string) => defaultYaml(url, { store: `{ url: "${redis.url}", timeout: 10s }` })
    const one = await startGateway({ yaml })
    const two = await startGateway({ yaml })
    try {
      for (const [dialect, model] of Object.entries(DIALECTS) as [DialectName, string][]) {
        for (const surface of SURFACES) {
          const first = await served(
            one,
            surface,
            bodyOf(surface, model, [ASK], { tools: [WEATHER], more: REASON[surface] }),
          )
          const other = SURFACES[(SURFACES.indexOf(surface) + 1) % 3]!
          const second = await served(
            two,
            other,
            bodyOf(other, model, [ASK, { calls: first.calls }, results(first.calls)], {
              tools: [WEATHER],
              more: REASON[other],
            }),
          )
          assert.equal(second.calls.length, 1)
          assertPrivateDataIn(JSON.stringify(lastSent(two)), dialect)
          if (surface !== 'responses') continue
          const linked = await served(
            two,
            'responses',
            bodyOf('responses', model, [results(first.calls)], {
              tools: [WEATHER],
              more: { previous_response_id: first.body.id },
            }),
          )
          assert.equal(linked.calls.length, 1)
        }
      }
    } finally {
      await one.close()
      await two.close()
      await redis.stop()
    }
  })
})

// ---- declarations ---------------------------------------------------------------------------------------------------

test('[TOOL-2] strict needs every property required and additional ones closed, at every depth; the path names the schema', async () => {
  const strictAt: Record<SurfaceName, (rest: string) => string> = {
    chat: rest => `tools[0].function.parameters${rest}`,
    responses: rest => `tools[0].parameters${rest}`,
    messages: rest => `tools[0].input_schema${rest}`,
  }
  const closed = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'], additionalProperties: false }
  const bad: [Record<string, unknown>, RegExp][] = [
    [{ ...closed, required: [] }, /^$|required|properties/],
    [{ type: 'object', properties: { a: { type: 'string' } }, required: ['a'] }, /^$|additionalProperties/],
    [
      {
        ...closed,
        properties: { a: { type: 'object', properties: { b: {} }, required: [], additionalProperties: false } },
      },
      /properties\.a/,
    ],
    [
      { ...closed, properties: { a: { type: 'array', items: { type: 'object', properties: {} } } } },
      /properties\.a\.items/,
    ],
  ]
  for (const surface of SURFACES) {
    for (const [schema, rest] of bad) {
      const error = await refused(
        t,
        surface,
        bodyOf(surface, 'eb1-preview', [{ user: 'x' }], { tools: [{ name: 'f', schema, strict: true }] }),
      )
      assert.equal(error.type, 'invalid_request_error')
      assert.ok(error.param.startsWith(strictAt[surface]('')), error.param)
      assert.match(error.param.slice(strictAt[surface]('').length), rest)
      await served(t, surface, bodyOf(surface, 'eb1-preview', [{ user: 'x' }], { tools: [{ name: 'f', schema }] }))
    }
    for (const model of Object.values(DIALECTS)) {
      const said = await served(
        t,
        surface,
        bodyOf(surface, model, [{ user: '[[sim: call f {"a":"1"}]] x' }], {
          tools: [{ name: 'f', schema: closed, strict: true }],
        }),
      )
      assert.deepEqual(said.calls[0]!.input, { a: '1' })
    }
  }
})

test('[TOOL-3] names that no upstream takes: declared names back, buffered and streamed; choice and history by them; no two alike', async () => {
  const stem = 'x'.repeat(70)
  const names = [
    `järn.${stem}`,
    `${stem}1`,
    `${stem}2`,
    'mcp__server/tool with spaces',
    '日本語のツール',
    'a.b:c',
    'a_b_c',
    'a/b/c',
  ]
  for (const [dialect, model] of Object.entries(DIALECTS)) {
    for (const surface of SURFACES) {
      const tools = names.map(name => ({ name }))
      const all = names.map((_, i) => `call #${i + 1} {}`).join('; ')
      const first = await served(t, surface, bodyOf(surface, model, [{ user: `[[sim: ${all}]] x` }], { tools }))
      assert.deepEqual(
        first.calls.map(c => c.name),
        names,
        `${surface} to ${dialect}`,
      )
      const upstream = namesIn(dialect as DialectName, lastSent())
      assert.equal(new Set(upstream).size, names.length)
      for (const name of upstream)
        assert.match(name, dialect === 'anthropic-messages' ? /^[A-Za-z0-9_-]{1,128}$/ : /^[A-Za-z0-9_.:-]{1,64}$/)
      const second = await served(
        t,
        surface,
        bodyOf(surface, model, [{ user: 'x' }, { calls: first.calls }, results(first.calls, 'ok')], { tools }),
      )
      assert.match(second.text, /ok; ok/)
      assert.deepEqual(namesIn(dialect as DialectName, lastSent()), upstream, 'the same alias every turn')
      const choice = {
        chat: { type: 'function', function: { name: names[4] } },
        responses: { type: 'function', name: names[4] },
        messages: { type: 'tool', name: names[4] },
      }[surface]
      const forced = await served(
        t,
        surface,
        bodyOf(surface, model, [{ user: 'x' }], { tools, more: { tool_choice: choice } }),
      )
      assert.deepEqual(
        forced.calls.map(c => c.name),
        [names[4]],
      )
      const streamed = await t.post(
        PATHS[surface],
        bodyOf(surface, model, [{ user: `[[sim: ${all}]] x` }], { tools, more: { stream: true } }),
      )
      const text = await streamed.text()
      for (const name of names)
        assert.ok(text.includes(`"name":${JSON.stringify(name)}`), `${surface} to ${dialect}: ${name}`)
    }
  }
})

function namesIn(dialect: DialectName, sent: any): string[] {
  if (dialect === 'gemini') return sent.tools[0].functionDeclarations.map((f: any) => f.name)
  return sent.tools.map((tool: any) => tool.function?.name ?? tool.name)
}

// ---- history --------------------------------------------------------------------------------------------------------

test('[TOOL-4] history that does not add up is refused once, before any model runs, on all three surfaces', async () => {
  const call = (id: string): Call => ({ id, name: 'get_weather', input: { city: 'Oslo' } })
  const cases: [string, Entry[], string][] = [
    [
      'issued twice',
      [{ user: 'x' }, { calls: [call('c1')] }, results([call('c1')]), { calls: [call('c1')] }, results([call('c1')])],
      'c1',
    ],
    ['unknown', [{ user: 'x' }, { calls: [call('c1')] }, results([call('c1'), call('c2')])], 'c2'],
    ['before its call', [{ user: 'x' }, results([call('c3')]), { calls: [call('c3')] }], 'c3'],
    ['second result', [{ user: 'x' }, { calls: [call('c1')] }, results([call('c1')]), results([call('c1')])], 'c1'],
    [
      'unanswered before the next user turn',
      [{ user: 'x' }, { calls: [call('c1'), call('c4')] }, results([call('c1')]), { user: 'y' }],
      'c4',
    ],
    ['unanswered at the end', [{ user: 'x' }, { calls: [call('c5')] }], 'c5'],
  ]
  const executed = t.simulator.requests.length
  for (const surface of SURFACES) {
    for (const [name, entries, id] of cases) {
      const error = await refused(t, surface, bodyOf(surface, 'eb1-preview', entries, { tools: [WEATHER] }))
      assert.deepEqual(
        [error.code, error.type, error.details.call_id],
        ['conversation_invariant', 'invalid_request_error', id],
        `${surface}: ${name}`,
      )
      assert.ok(error.message.includes(id))
    }
  }
  const both = {
    model: 'eb1-preview',
    input: [
      { type: 'function_call', call_id: 'd', name: 'f', arguments: '{}' },
      { type: 'custom_tool_call', call_id: 'd', name: 'g', input: '' },
    ],
  }
  assert.equal((await refused(t, 'responses', both)).details.call_id, 'd')
  assert.equal(t.simulator.requests.length, executed, 'no model has run')
  const stored = await served(t, 'responses', bodyOf('responses', 'eb1-preview', [ASK], { tools: [WEATHER] }))
  const open = await refused(t, 'responses', {
    model: 'eb1-preview',
    previous_response_id: stored.body.id,
    input: 'never mind',
  })
  assert.deepEqual([open.code, open.details.call_id], ['conversation_invariant', stored.calls[0]!.id])
})

test('[TOOL-4] any order of answers, text between call and result, and results after text are fine', async () => {
  const calls = ['a', 'b', 'c'].map(id => ({ id, name: 'get_weather', input: {} }))
  for (const model of Object.values(DIALECTS)) {
    for (const surface of SURFACES) {
      const said = await served(
        t,
        surface,
        bodyOf(surface, model, [{ user: 'x' }, { text: 'I look.', calls }, results([...calls].reverse(), 'fine')], {
          tools: [WEATHER],
        }),
      )
      assert.match(said.text, /fine; fine; fine/)
    }
    const late = {
      model,
      max_tokens: 99,
      tools: [{ name: 'get_weather', input_schema: WEATHER.schema }],
      messages: [
        { role: 'user', content: 'x' },
        { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'get_weather', input: {} }] },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'and now?' },
            { type: 'tool_result', tool_use_id: 'a' },
          ],
        },
      ],
    }
    assert.match((await served(t, 'messages', late)).text, /and now/)
  }
})

test('[GEN-2] replayed arguments that are no JSON are history like any other', async () => {
  for (const model of Object.values(DIALECTS)) {
    const chat = {
      model,
      messages: [
        { role: 'user', content: 'x' },
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'a', type: 'function', function: { name: 'get_weather', arguments: '{"city": "Os' } }],
        },
        { role: 'tool', tool_call_id: 'a', content: 'bad arguments' },
      ],
    }
    assert.match((await served(t, 'chat', chat)).text, /bad arguments/)
  }
})

// ---- choices --------------------------------------------------------------------------------------------------------

const SINGLE: Record<SurfaceName, Record<string, unknown>> = {
  chat: { parallel_tool_calls: false },
  responses: { parallel_tool_calls: false },
  messages: { tool_choice: { type: 'auto', disable_parallel_tool_use: true } },
}

describe('arguments that are no JSON', () => {
  const BROKEN = '{"city": Oslo, "days": [1, 2,]}'
  const ask = (args: string) => `[[sim: chunk 4; call get_weather ${args}]] go`
  const schema = {
    type: 'object' as const,
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false,
  }
  // The fourth dialect has arguments as an object.
  for (const dialect of ['openai-chat', 'openai-responses', 'anthropic-messages'] as const) {
    const model = DIALECTS[dialect]

    test(`[STR-6] [ERR-8] ${dialect}, messages: a typed error in a stream, wrapped in a buffered reply`, async () => {
      const tools = [{ name: 'get_weather', input_schema: schema }]
      const messages = [{ role: 'user' as const, content: ask(BROKEN) }]
      const body = { model, max_tokens: 500, tools, messages }
      await assert.rejects(t.anthropic().messages.stream(body).finalMessage(), (error: any) => {
        assert.ok(error instanceof Anthropic.APIError, `${error}`)
        assert.deepEqual([error.type, (error.error as any).error.code], ['api_error', 'upstream_server_error'])
        return true
      })
      assert.equal((await t.ledger()).at(-1)!.outcome, 'upstream_error')
      // That dialect's buffered replies have an object.
      if (dialect === 'anthropic-messages') return
      const whole = await t.anthropic().messages.create(body)
      const use: any = whole.content.find(block => block.type === 'tool_use')
      assert.deepEqual(use.input, { _raw: BROKEN })
      const result = { type: 'tool_result' as const, tool_use_id: use.id, is_error: true, content: 'invalid input' }
      const replayed = [...messages, { role: 'assistant' as const, content: whole.content }]
      const next = await t
        .anthropic()
        .messages.stream({ ...body, messages: [...replayed, { role: 'user', content: [result] }] })
        .finalMessage()
      assert.equal(next.stop_reason, 'end_turn')
    })

    test(`[STR-6] [ERR-8] ${dialect}, chat and responses: the text as it is; of a strict tool, whose calls the client parses, a typed error`, async () => {
      for (const strict of [false, true]) {
        const chat = {
          model,
          messages: [{ role: 'user' as const, content: ask(BROKEN) }],
          tools: [{ type: 'function' as const, function: { name: 'get_weather', parameters: schema, strict } }],
        }
        const responses = {
          model,
          input: ask(BROKEN),
          tools: [{ type: 'function' as const, name: 'get_weather', parameters: schema, strict }],
        }
        const streams = [
          () => t.openai().chat.completions.stream(chat).finalChatCompletion(),
          () => t.openai().responses.stream(responses).finalResponse(),
        ]
        if (strict) {
          for (const stream of streams) {
            await assert.rejects(stream(), (error: any) => {
              assert.ok(error instanceof OpenAI.APIError, `${error}`)
              assert.equal(error.code, 'upstream_server_error')
              // It was "The upstream failed": nothing told that the model's arguments were at fault.
              assert.match(error.message, /arguments that the model wrote for a call of the tool 'get_weather'/)
              return true
            })
          }
          if (dialect === 'anthropic-messages') continue
          await assert.rejects(t.openai().chat.completions.parse(chat), OpenAI.InternalServerError)
          await assert.rejects(t.openai().responses.parse(responses), OpenAI.InternalServerError)
          continue
        }
        const completion: any = await streams[0]!()
        assert.equal(completion.choices[0].message.tool_calls[0].function.arguments, BROKEN)
        assert.equal(completion.choices[0].finish_reason, 'tool_calls')
        const response: any = await streams[1]!()
        assert.equal(response.output.find((item: any) => item.type === 'function_call').arguments, BROKEN)
      }
    })
  }
})

test('[REQ-1] a backend with `tool_schema: openapi` gets what those words can say, and is passed over for the rest', async () => {
  const gateway = await startGateway({
    models: `  both: { context_window: 100000, price: { input: 1, output: 1 }, backends: [{ provider: gemini, model: sim-old, tool_schema: openapi }, { provider: chat, model: sim-large }] }
  alone: { context_window: 100000, price: { input: 1, output: 1 }, backends: [{ provider: gemini, model: sim-old, tool_schema: openapi }] }`,
  })
  const places = {
    chat: 'tools[0].function.parameters',
    responses: 'tools[0].parameters',
    messages: 'tools[0].input_schema',
  }
  const plain = { type: 'object', properties: { city: { $ref: '#/$defs/city' } }, $defs: { city: { const: 'Oslo' } } }
  const recursive = { type: 'object', properties: { child: { $ref: '#' } } }
  const ask = '[[sim: call get_weather {"city":"Oslo"}]] go'
  try {
    for (const surface of SURFACES) {
      const body = (model: string, schema: object) =>
        bodyOf(surface, model, [{ user: ask }], { tools: [{ name: 'get_weather', schema: schema as never }] })
      const sent = () => gateway.simulator.requests.at(-1)!
      assert.equal((await gateway.post(PATHS[surface], body('both', plain))).status, 200)
      assert.deepEqual(JSON.parse(sent().body).tools[0].functionDeclarations[0].parameters, {
        type: 'OBJECT',
        properties: { city: { type: 'STRING', enum: ['Oslo'] } },
      })
      assert.equal((await gateway.post(PATHS[surface], body('both', recursive))).status, 200)
      assert.equal(sent().dialect, 'openai-chat')
      const { error }: any = await (await gateway.post(PATHS[surface], body('alone', recursive))).json()
      assert.deepEqual([error.code, error.param], ['request_requirements_unsatisfied', places[surface]])
      assert.match(error.message, /a schema that contains itself/)
    }
  } finally {
    await gateway.close()
  }
})

test('[TOOL-5] one call at a time goes to a backend that can do it, whatever the order', async () => {
  const gateway = await startGateway({
    models: `  mixed: { context_window: 1000, price: { input: 1, output: 1 }, backends: [{ provider: gemini, model: sim-first }, { provider: chat, model: sim-limited, supports: [tools] }, { provider: messages, model: sim-third }] }`,
  })
  try {
    for (const surface of SURFACES) {
      const free = await served(gateway, surface, bodyOf(surface, 'mixed', [ASK], { tools: [WEATHER] }))
      assert.equal(free.calls.length, 2)
      assert.equal(gateway.simulator.requests.at(-1)!.dialect, 'gemini')
      const single = await served(
        gateway,
        surface,
        bodyOf(surface, 'mixed', [ASK], { tools: [WEATHER], more: SINGLE[surface] }),
      )
      assert.equal(single.calls.length, 1)
      assert.equal(gateway.simulator.requests.at(-1)!.dialect, 'anthropic-messages')
    }
  } finally {
    await gateway.close()
  }
})

// LangChain, llama-index and instructor force one tool and ask for one call: on a model with gemini backends alone each of
// their requests was 400 request_requirements_unsatisfied.
test('[TOOL-5] where no backend can be told, the client gets the first call alone; later ones are billed as output', async () => {
  const gateway = await startGateway({
    models: `  alone: { context_window: 1000, price: { input: 1, output: 1 }, backends: [{ provider: gemini, model: sim-first }] }
  bare: { context_window: 1000, price: { input: 1, output: 1 }, backends: [{ provider: chat, model: sim-bare, supports: [tools] }] }`,
  })
  const billed = async (): Promise<number> => (await gateway.ledger()).at(-1)!.output
  try {
    for (const model of ['alone', 'bare']) {
      for (const surface of SURFACES) {
        const body = (more: Record<string, unknown>) => bodyOf(surface, model, [ASK], { tools: [WEATHER], more })
        const free = await served(gateway, surface, body({}))
        assert.equal(free.calls.length, 2)
        const all = await billed()
        const { calls } = await served(gateway, surface, body(SINGLE[surface]))
        const place = `${model} ${surface}`
        assert.deepEqual(
          calls.map(({ name, input }) => ({ name, input })),
          [{ name: 'get_weather', input: { city: 'Oslo' } }],
          place,
        )
        assert.equal(await billed(), all, place)
        assert.equal('parallel_tool_calls' in gateway.simulator.requests.at(-1)!.json!, false)
        const streamed = await gateway.post(PATHS[surface], body({ ...SINGLE[surface], stream: true }))
        const text = await streamed.text()
        assert.equal(new Set(text.match(/call_eba1_[\w-]+/g)).size, 1, text)
        assert.doesNotMatch(text, /Lima/)
        assert.equal(await billed(), all, place)
        // The history with one call of the turn continues, signatures included.
        const entries: Entry[] = [ASK, { calls }, results(calls)]
        const next = await served(gateway, surface, bodyOf(surface, model, entries, { tools: [WEATHER] }))
        assert.deepEqual(
          next.calls.map(call => call.input),
          [{ city: 'Rome' }],
          place,
        )
      }
    }
    // What is retained has the one call, too.
    const first = await served(
      gateway,
      'responses',
      bodyOf('responses', 'alone', [ASK], { tools: [WEATHER], more: SINGLE.responses }),
    )
    const next = await gateway.openai().responses.create({
      model: 'alone',
      previous_response_id: first.body.id,
      input: [{ type: 'function_call_output', call_id: first.calls[0]!.id, output: 'sunny' }],
    })
    assert.equal(next.status, 'completed')
  } finally {
    await gateway.close()
  }
})

test('[RESP-4] allowed_tools: only the subset may be called, on Chat and Responses, over every dialect', async () => {
  const tools = ['one', 'two', 'three'].map(name => ({ name }))
  for (const [dialect, model] of Object.entries(DIALECTS)) {
    for (const surface of ['chat', 'responses'] as const) {
      for (const mode of ['auto', 'required']) {
        const subset =
          surface === 'chat'
            ? ['two', 'three'].map(name => ({ type: 'function', function: { name } }))
            : ['two', 'three'].map(name => ({ type: 'function', name }))
        const choice =
          surface === 'chat'
            ? { type: 'allowed_tools', allowed_tools: { mode, tools: subset } }
            : { type: 'allowed_tools', mode, tools: subset }
        const said = await served(
          t,
          surface,
          bodyOf(surface, model, [{ user: '[[sim: call one {}; call two {}; call three {}]] x' }], {
            tools,
            more: { tool_choice: choice },
          }),
        )
        const called = said.calls.map(c => c.name)
        assert.ok(called.includes('two') && called.includes('three'), `${surface} to ${dialect}, ${mode}: ${called}`)
        const sent: any = lastSent()
        const open = dialect === 'openai-responses' || (dialect === 'gemini' && mode === 'required')
        if (!open) assert.equal(namesIn(dialect as DialectName, sent).includes('one'), false)
        assert.equal(
          said.calls.some(c => c.name === 'one' && dialect === 'openai-responses'),
          false,
        )
      }
    }
  }
})

test('[CHAT-1] [RESP-1] [MSG-1] tool choices: none, required, named; an undeclared one is refused', async () => {
  const tools: Tool[] = [WEATHER, { name: 'other' }]
  const forms: Record<SurfaceName, Record<string, unknown>> = {
    chat: {
      none: 'none',
      required: 'required',
      named: { type: 'function', function: { name: 'other' } },
      unknown: { type: 'function', function: { name: 'nope' } },
    },
    responses: {
      none: 'none',
      required: 'required',
      named: { type: 'function', name: 'other' },
      unknown: { type: 'function', name: 'nope' },
    },
    messages: {
      none: { type: 'none' },
      required: { type: 'any' },
      named: { type: 'tool', name: 'other' },
      unknown: { type: 'tool', name: 'nope' },
    },
  }
  for (const model of Object.values(DIALECTS)) {
    for (const surface of SURFACES) {
      const ask = (tool_choice: unknown, text: string) =>
        bodyOf(surface, model, [{ user: text }], { tools, more: { tool_choice } })
      const form = forms[surface]
      assert.equal((await served(t, surface, ask(form['none'], '[[sim: call other {}]] x'))).calls.length, 0)
      assert.equal((await served(t, surface, ask(form['required'], 'x'))).calls.length, 1)
      assert.deepEqual(
        (await served(t, surface, ask(form['named'], 'x'))).calls.map(c => c.name),
        ['other'],
      )
      const error = await refused(t, surface, ask(form['unknown'], 'x'))
      assert.ok(error.param.startsWith('tool_choice'), error.param)
    }
  }
})

// ---- custom and client-run tools ------------------------------------------------------------------------------------

test('[RESP-1] [TOOL-1] custom tools with free-form input and a grammar, over every dialect, streamed and buffered', async () => {
  const patch = '*** Begin Patch\n*** Update File: a.ts\n-"old" \\ ü\n+new 🌍\n*** End Patch'
  const tools = [
    {
      type: 'custom',
      name: 'apply_patch',
      description: 'Edits files.',
      format: { type: 'grammar', syntax: 'lark', definition: 'start: "x"' },
    },
    { type: 'custom', name: 'note' },
  ]
  for (const [dialect, model] of Object.entries(DIALECTS)) {
    for (const stream of [false, true]) {
      const ask = {
        model,
        input: [
          {
            role: 'user' as const,
            content: `[[sim: call apply_patch ${JSON.stringify(patch)}; call note "n"]] fix it`,
          },
        ],
        tools,
      } as any
      const first: any = stream
        ? await t.openai().responses.stream(ask).finalResponse()
        : await t.openai().responses.create(ask)
      const calls = first.output.filter((o: any) => o.type === 'custom_tool_call')
      assert.deepEqual(
        calls.map((c: any) => [c.name, c.input]),
        [
          ['apply_patch', patch],
          ['note', 'n'],
        ],
        dialect,
      )
      const declared = JSON.stringify(lastSent().tools)
      if (dialect === 'openai-responses') assert.match(declared, /"type":"grammar","syntax":"lark"/)
      else assert.match(declared, /start: \\\\?"x|start: /, 'the grammar is advice in the description')
      const outputs = calls.map((c: any, i: number) => ({
        type: 'custom_tool_call_output',
        call_id: c.call_id,
        output: i === 0 ? 'patched' : [{ type: 'input_text', text: 'noted' }],
      }))
      const second: any = await t.openai().responses.create({ ...ask, input: [...ask.input, ...calls, ...outputs] })
      assert.match(second.output_text, /patched; noted/)
      // The same history on a surface that knows functions only.
      const chat = await served(t, 'chat', {
        model,
        messages: [
          { role: 'user', content: 'fix it' },
          {
            role: 'assistant',
            tool_calls: calls.map((c: any) => ({
              id: c.call_id,
              type: 'function',
              function: { name: c.name, arguments: JSON.stringify({ input: c.input }) },
            })),
          },
          ...calls.map((c: any) => ({ role: 'tool', tool_call_id: c.call_id, content: 'done' })),
        ],
      })
      assert.match(chat.text, /done; done/)
    }
  }
})

test('[MSG-4] bash, text editors and memory on every model: native where the route has the version, a plain function elsewhere', async () => {
  const gateway = await startGateway({
    models: `${Object.entries({
      chat: 'openai-chat',
      responses: 'openai-responses',
      messages: 'anthropic-messages',
      gemini: 'gemini',
    })
      .map(
        ([provider, dialect]) =>
          `  ${dialect}: { context_window: 100000, price: { input: 1, output: 1 }, backends: [{ provider: ${provider}, model: sim-large }] }`,
      )
      .join('\n')}
  native: { context_window: 100000, price: { input: 1, output: 1 }, backends: [{ provider: messages, model: sim-large, native_tools: [bash_20250124, text_editor_20250728, memory_20250818] }] }`,
  })
  const tools = [
    { type: 'bash_20250124', name: 'bash' },
    { type: 'text_editor_20250728', name: 'str_replace_based_edit_tool', max_characters: 9000 },
    { type: 'memory_20250818', name: 'memory' },
  ]
  const versions = [
    ['text_editor_20250124', 'str_replace_editor'],
    ['text_editor_20250429', 'str_replace_based_edit_tool'],
    ['text_editor_20991231', 'str_replace_based_edit_tool'],
  ]
  try {
    for (const model of [...Object.keys(DIALECTS), 'native']) {
      const ask = [
        {
          role: 'user',
          content:
            '[[sim: call bash {"command":"ls"}; call str_replace_based_edit_tool {"command":"view","path":"/a"}; call memory {"command":"view","path":"/memories"}]] go',
        },
      ]
      const first: any = await gateway
        .anthropic()
        .messages.create({ model, max_tokens: 900, tools, messages: ask } as any)
      const uses = first.content.filter((b: any) => b.type === 'tool_use')
      assert.deepEqual(
        uses.map((u: any) => [u.name, u.input.command]),
        [
          ['bash', 'ls'],
          ['str_replace_based_edit_tool', 'view'],
          ['memory', 'view'],
        ],
        model,
      )
      const sent = JSON.stringify(gateway.simulator.requests.at(-1)!.json)
      if (model === 'native')
        assert.match(sent, /"type":"bash_20250124".*"max_characters":9000.*"type":"memory_20250818"/)
      else assert.match(sent, /"command"/)
      const second: any = await gateway.anthropic().messages.create({
        model,
        max_tokens: 900,
        tools,
        messages: [
          ...ask,
          { role: 'assistant', content: first.content },
          {
            role: 'user',
            content: uses.map((u: any) => ({ type: 'tool_result', tool_use_id: u.id, content: 'done' })),
          },
        ],
      } as any)
      assert.equal(second.stop_reason, 'end_turn')
      for (const [type, name] of versions) {
        const called: any = await gateway.anthropic().messages.create({
          model,
          max_tokens: 900,
          tools: [{ type, name }],
          messages: [{ role: 'user', content: `[[sim: call ${name} {"command":"view","path":"/a"}]] go` }],
        } as any)
        assert.equal(called.content.find((b: any) => b.type === 'tool_use').name, name, `${model}: ${type}`)
      }
    }
  } finally {
    await gateway.close()
  }
})

test('[MSG-2] effort above the ceiling is lowered on Messages and refused on Chat and Responses, with the ceiling in the message', async () => {
  // eb1-preview ends at xhigh.
  for (const effort of ['max', 'ultra']) {
    const message = await t.post(
      '/v1/messages',
      bodyOf('messages', 'eb1-preview', [{ user: 'x' }], { more: { output_config: { effort } } }),
    )
    assert.equal(message.status, 200, await message.text())
    assert.equal(lastSent().reasoning_effort, 'xhigh')
    const chat = await refused(
      t,
      'chat',
      bodyOf('chat', 'eb1-preview', [{ user: 'x' }], { more: { reasoning_effort: effort } }),
    )
    assert.deepEqual([chat.code, chat.param], ['unsupported_value', 'reasoning_effort'])
    const responses = await refused(
      t,
      'responses',
      bodyOf('responses', 'eb1-preview', [{ user: 'x' }], { more: { reasoning: { effort } } }),
    )
    assert.deepEqual([responses.code, responses.param], ['unsupported_value', 'reasoning.effort'])
    for (const error of [chat, responses]) assert.match(error.message, /xhigh/)
  }
})
