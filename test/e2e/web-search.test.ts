/**
 * Web search that the gateway runs for backends without one (decisions 34), and native search beside it, from the
 * official clients.
 */
import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { ConfigRefused } from '../../cli/assembly.ts'
import { buildGateway } from '../../cli/gateway.ts'
import { silent } from '../../cli/log.ts'
import type { SearchOptions } from '../../core/ports/search.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { eventually } from '../eventually.ts'
import { startFakeUpstream } from '../fake-upstream/server.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

const SEARCH = { type: 'web_search_20250305' as const, name: 'web_search' as const }
const WEATHER = { type: 'object' as const, properties: { city: { type: 'string' } }, required: ['city'] }
const CHAT = 'eb1-preview'

const lookFor = (...queries: string[]) =>
  `[[sim: ${queries.map(query => `call web_search ${JSON.stringify({ query })}`).join('; next ')}]] look it up`

/** Requests for completions that reached the upstream since the last call. */
function upstreamRequests(t: TestGateway): any[] {
  const all = t.simulator.requests as unknown as { method: string; path: string; json: any }[]
  const found = all.filter(request => request.method === 'POST').map(request => request.json)
  searchedFor = all
    .filter(request => request.method === 'GET')
    .map(request => new URL(request.path, 'http://x').searchParams.get('q')!)
  all.length = 0
  return found
}
let searchedFor: string[] = []

async function message(t: TestGateway, stream: boolean, body: object): Promise<any> {
  const whole = { model: CHAT, max_tokens: 4000, tools: [SEARCH], ...body } as any
  return stream ? t.anthropic().messages.stream(whole).finalMessage() : t.anthropic().messages.create(whole)
}
async function response(t: TestGateway, stream: boolean, body: object): Promise<any> {
  const whole = { model: CHAT, tools: [{ type: 'web_search' }], ...body } as any
  return stream ? t.openai().responses.stream(whole).finalResponse() : t.openai().responses.create(whole)
}
const user = (content: string) => [{ role: 'user' as const, content }]
const types = (blocks: any[]) => blocks.map(block => block.type)
const textOf = (blocks: any[]) => blocks.map(block => block.text ?? '').join('')

describe('a backend without a search of its own', () => {
  let t: TestGateway
  before(async () => {
    t = await startGateway({ plugins: { 'web-search': '{ provider: chat, max_turns: 3 }' } })
  })
  after(() => t.close())

  for (const stream of [false, true]) {
    const how = stream ? 'streamed' : 'buffered'

    test(`[MSG-3] [TOOL-1] messages ${how}: the search in place, hist ids, results, citations, one ledger row`, async () => {
      for (const type of ['web_search_20250305', 'web_search_20260209']) {
        upstreamRequests(t)
        const rows = (await t.ledger()).length
        const reply = await message(t, stream, {
          tools: [{ type, name: 'web_search' }],
          messages: user(lookFor('tide tables')),
        })
        assert.deepEqual(types(reply.content), ['server_tool_use', 'web_search_tool_result', 'text'])
        const [use, result, text] = reply.content
        assert.match(use.id, /^hist_eba1_[A-Za-z0-9]{24}$/)
        assert.equal(use.name, 'web_search')
        assert.deepEqual(use.input, { query: 'tide tables' })
        assert.equal(result.tool_use_id, use.id)
        assert.deepEqual(
          result.content.map((r: any) => r.url),
          [1, 2, 3].map(n => `https://example.com/tide-tables/${n}`),
        )
        assert.equal(result.content[0].title, 'An introduction to tide tables')
        assert.equal(reply.stop_reason, 'end_turn')
        assert.equal(reply.usage.server_tool_use.web_search_requests, 1)

        // The model repeats what it was told, so every page is cited where its URL stands, and nothing else is.
        assert.deepEqual(
          text.citations.map((c: any) => [c.type, c.url, c.title]),
          result.content.map((r: any) => ['web_search_result_location', r.url, r.title]),
        )
        for (const citation of text.citations) assert.ok(text.text.includes(citation.cited_text))

        const sent = upstreamRequests(t)
        assert.equal(sent.length, 2)
        assert.deepEqual(searchedFor, ['tide tables'])
        assert.deepEqual(
          sent[0].tools.map((tool: any) => tool.function.name),
          ['web_search'],
        )
        assert.equal(sent[1].messages.at(-1).role, 'tool')
        assert.match(sent[1].messages.at(-1).content, /page 1 of the simulated web/)

        const ledger = await t.ledger()
        assert.equal(ledger.length, rows + 1)
        const { input_tokens } = await t.anthropic().messages.countTokens({
          model: CHAT,
          tools: [{ type, name: 'web_search' } as any],
          messages: user(lookFor('tide tables')),
        })
        const { usage } = reply
        assert.equal(
          usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens,
          input_tokens,
          'the prompt is the client’s, once',
        )
      }
    })

    test(`[RESP-1] [MSG-3] responses ${how}: web_search_call items, sources when included, url_citation annotations`, async () => {
      upstreamRequests(t)
      const reply = await response(t, stream, {
        input: lookFor('red kites'),
        include: ['web_search_call.action.sources'],
      })
      assert.deepEqual(types(reply.output), ['web_search_call', 'message'])
      const [call, said] = reply.output
      assert.match(call.id, /^item_eba1_/)
      assert.equal(call.status, 'completed')
      assert.deepEqual(call.action, {
        type: 'search',
        query: 'red kites',
        queries: ['red kites'],
        sources: [1, 2, 3].map(n => ({ type: 'url', url: `https://example.com/red-kites/${n}` })),
      })
      const part = said.content[0]
      assert.equal(part.annotations.length, 3)
      for (const { type, url, title, start_index, end_index } of part.annotations) {
        assert.equal(type, 'url_citation')
        assert.equal(part.text.slice(start_index, end_index), url)
        assert.match(title, /red kites$/)
      }
      assert.equal(reply.status, 'completed')
      assert.equal(upstreamRequests(t).length, 2)
    })

    test(`[MSG-3] ${how}: a forced search is made once, then the model is free`, async () => {
      upstreamRequests(t)
      const byName = await message(t, stream, {
        messages: user('hi'),
        tool_choice: { type: 'tool', name: 'web_search' },
      })
      assert.deepEqual(types(byName.content), ['server_tool_use', 'web_search_tool_result', 'text'])
      let sent = upstreamRequests(t)
      assert.deepEqual(sent[0].tool_choice, { type: 'function', function: { name: 'web_search' } })
      assert.deepEqual(
        sent.slice(1).map(body => body.tool_choice),
        [undefined],
      )

      const any = await message(t, stream, { messages: user('hi'), tool_choice: { type: 'any' } })
      assert.deepEqual(types(any.content), ['server_tool_use', 'web_search_tool_result', 'text'])
      sent = upstreamRequests(t)
      assert.deepEqual(
        sent.map(body => body.tool_choice),
        ['required', undefined],
      )

      const hosted = await response(t, stream, { input: 'hi', tool_choice: { type: 'web_search' } })
      assert.deepEqual(types(hosted.output), ['web_search_call', 'message'])
      const subset = await response(t, stream, {
        input: 'hi',
        tools: [{ type: 'web_search' }, { type: 'function', name: 'get_weather', parameters: WEATHER, strict: false }],
        tool_choice: { type: 'allowed_tools', mode: 'required', tools: [{ type: 'web_search' }] },
      })
      assert.deepEqual(types(subset.output), ['web_search_call', 'message'])
    })

    test(`[MSG-3] ${how}: several searches in a round, and in several rounds, stay in order`, async () => {
      upstreamRequests(t)
      const ask =
        '[[sim: call web_search {"query":"a"}; call web_search {"query":"b"}; next call web_search {"query":"c"}]] go'
      const reply = await message(t, stream, { messages: user(ask) })
      assert.deepEqual(types(reply.content), [
        ...Array(3).fill(['server_tool_use', 'web_search_tool_result']).flat(),
        'text',
      ])
      assert.deepEqual(
        reply.content.filter((b: any) => b.type === 'server_tool_use').map((b: any) => b.input.query),
        ['a', 'b', 'c'],
      )
      assert.equal(reply.usage.server_tool_use.web_search_requests, 3)
      assert.equal(upstreamRequests(t).length, 3)
    })

    test(`[MSG-3] ${how}: text before a search stays before it`, async () => {
      const ask = '[[sim: text "Let me look."; call web_search {"query":"a"}]] go'
      const reply = await message(t, stream, { messages: user(ask) })
      assert.deepEqual(types(reply.content), ['text', 'server_tool_use', 'web_search_tool_result', 'text'])
      assert.equal(reply.content[0].text, 'Let me look.')
      const item = await response(t, stream, { input: ask })
      assert.deepEqual(types(item.output), ['message', 'web_search_call', 'message'])
    })

    test(`[MSG-3] [TOOL-1] ${how}: a round with searches and client calls ends the turn, and goes on from both results`, async () => {
      upstreamRequests(t)
      const tools = [SEARCH, { name: 'get_weather', input_schema: WEATHER }]
      const ask = user(
        '[[sim: call web_search {"query":"a"}; call get_weather {"city":"Oslo"}; call web_search {"query":"b"}; call get_weather {"city":"Lima"}]] go',
      )
      const first = await message(t, stream, { messages: ask, tools })
      assert.deepEqual(types(first.content), [
        'server_tool_use',
        'web_search_tool_result',
        'tool_use',
        'server_tool_use',
        'web_search_tool_result',
        'tool_use',
      ])
      assert.equal(first.stop_reason, 'tool_use')
      const uses = first.content.filter((b: any) => b.type === 'tool_use')
      assert.deepEqual(
        uses.map((b: any) => b.input),
        [{ city: 'Oslo' }, { city: 'Lima' }],
      )
      assert.equal(upstreamRequests(t).length, 1)

      const results = uses.map((b: any) => ({
        type: 'tool_result',
        tool_use_id: b.id,
        content: `sunny in ${b.input.city}`,
      }))
      const second = await message(t, stream, {
        messages: [...ask, { role: 'assistant', content: first.content }, { role: 'user', content: results }],
        tools,
      })
      assert.equal(second.stop_reason, 'end_turn')
      const [sent] = upstreamRequests(t)
      // What was replayed is the round as it was: four calls, four results, the pages' extracts among them.
      const [, assistant, ...told] = sent.messages
      assert.deepEqual(
        assistant.tool_calls.map((c: any) => c.function.name),
        ['web_search', 'get_weather', 'web_search', 'get_weather'],
      )
      assert.deepEqual(
        told.map((m: any) => m.tool_call_id),
        assistant.tool_calls.map((c: any) => c.id),
      )
      assert.match(told[0].content, /page 1 of the simulated web/)
      assert.equal(told[1].content, 'sunny in Oslo')
      assert.match(textOf(second.content), /sunny in Lima/)
    })

    test(`[MSG-3] ${how}: the loop's cap is a pause on Messages, and a paused reply that is sent back goes on`, async () => {
      upstreamRequests(t)
      const ask = user(lookFor('a', 'b', 'c', 'd'))
      const paused = await message(t, stream, { messages: ask })
      assert.equal(paused.stop_reason, 'pause_turn')
      assert.deepEqual(types(paused.content), Array(3).fill(['server_tool_use', 'web_search_tool_result']).flat())
      assert.equal(upstreamRequests(t).length, 4)
      const done = await message(t, stream, { messages: [...ask, { role: 'assistant', content: paused.content }] })
      assert.equal(done.stop_reason, 'end_turn')
      // What was one reply is one round to the model, so it goes on with its second.
      assert.deepEqual(
        done.content.filter((b: any) => b.type === 'server_tool_use').map((b: any) => b.input.query),
        ['b', 'c', 'd'],
      )
      const sent = upstreamRequests(t)
      assert.deepEqual(
        sent[0].messages.map((m: any) => m.role),
        ['user', 'assistant', 'tool', 'tool', 'tool'],
      )
    })

    test(`[MSG-3] ${how}: on Responses the model must answer at the cap`, async () => {
      upstreamRequests(t)
      const reply = await response(t, stream, { input: lookFor('a', 'b', 'c', 'd', 'e') })
      assert.equal(reply.status, 'completed')
      assert.deepEqual(types(reply.output), ['web_search_call', 'web_search_call', 'web_search_call', 'message'])
      const sent = upstreamRequests(t)
      assert.deepEqual(
        sent.map(body => body.tool_choice),
        [undefined, undefined, undefined, 'none'],
      )
    })

    test(`[MSG-3] ${how}: max_uses and max_tool_calls hold`, async () => {
      upstreamRequests(t)
      const ask =
        '[[sim: call web_search {"query":"a"}; call web_search {"query":"b"}; next call web_search {"query":"c"}]] go'
      const reply = await message(t, stream, { messages: user(ask), tools: [{ ...SEARCH, max_uses: 1 }] })
      assert.deepEqual(types(reply.content), [
        'server_tool_use',
        'web_search_tool_result',
        'server_tool_use',
        'web_search_tool_result',
        'text',
      ])
      assert.deepEqual(reply.content[3].content, {
        type: 'web_search_tool_result_error',
        error_code: 'max_uses_exceeded',
      })
      assert.deepEqual(reply.usage.server_tool_use, { web_search_requests: 1, web_fetch_requests: 0 })
      let sent = upstreamRequests(t)
      assert.deepEqual(searchedFor, ['a'])
      assert.equal(sent[1].tool_choice, 'none')
      assert.match(sent[1].messages.at(-1).content, /No more searches/)

      const item = await response(t, stream, { input: ask, max_tool_calls: 1 })
      assert.deepEqual(types(item.output), ['web_search_call', 'message'])
      sent = upstreamRequests(t)
      assert.deepEqual(searchedFor, ['a'])
      assert.equal(sent.length, 2)
    })

    test(`[METER-4] ${how}: reasoning is that of all rounds, and the output cap is one for all`, async () => {
      upstreamRequests(t)
      const ask = '[[sim: reason 1 tokens 40; call web_search {"query":"a"}]] go'
      const reply = await response(t, stream, { input: ask, reasoning: { effort: 'low' }, max_output_tokens: 1000 })
      assert.equal(reply.usage.output_tokens_details.reasoning_tokens, 80)
      const sent = upstreamRequests(t)
      assert.equal(sent[0].max_completion_tokens ?? sent[0].max_tokens, 1000)
      const second = sent[1].max_completion_tokens ?? sent[1].max_tokens
      assert.ok(second < 960 && second > 900, `${second}`)
      const cut = await response(t, stream, { input: ask, reasoning: { effort: 'low' }, max_output_tokens: 41 })
      assert.equal(cut.status, 'incomplete')
    })

    test(`[ERR-6] ${how}: a failure of a later round is an error, and never looks like an end`, async () => {
      const simulator = await startSimulator({
        directives: ({ json }) => (JSON.stringify(json).includes('"role":"tool"') ? 'status 500' : undefined),
      })
      const other = await startGateway({
        yaml: () => defaultYaml(simulator.url, { plugins: { 'web-search': '{ provider: chat }' } }),
      })
      try {
        const failed = message(other, stream, { messages: user(lookFor('a')) })
        await assert.rejects(failed, (error: any) => {
          assert.equal(error.error.error.code, 'upstream_server_error')
          if (!stream) assert.equal(error.status, 502)
          return true
        })
        await eventually(() => other.gateway.ingress.running.size === 0)
        assert.equal((await other.ledger()).length, 1)
      } finally {
        await other.close()
        await simulator.close()
      }
    })
  }

  test('[MSG-3] [CHAT-1] chat has no hosted search: web_search_options is refused, and a function of that name is the client’s own', async () => {
    const refused = await t.post('/v1/chat/completions', { model: CHAT, messages: user('x'), web_search_options: {} })
    assert.equal(refused.status, 400)
    for (const stream of [false, true]) {
      upstreamRequests(t)
      const body: any = {
        model: CHAT,
        messages: user(lookFor('mine')),
        tools: [
          {
            type: 'function',
            function: { name: 'web_search', parameters: { type: 'object', properties: { query: { type: 'string' } } } },
          },
        ],
      }
      const client = t.openai()
      const reply: any = stream
        ? await client.chat.completions.stream(body).finalChatCompletion()
        : await client.chat.completions.create(body)
      assert.equal(reply.choices[0].finish_reason, 'tool_calls')
      assert.equal(reply.choices[0].message.tool_calls[0].function.name, 'web_search')
      assert.equal(upstreamRequests(t).length, 1)
      assert.deepEqual(searchedFor, [])
    }
  })

  test('[TOOL-3] a client function named web_search stays apart from the hosted search', async () => {
    upstreamRequests(t)
    const tools = [
      { type: 'function', name: 'web_search', parameters: { type: 'object', properties: {} }, strict: false },
      { type: 'web_search' },
    ]
    const mine = await response(t, false, { input: lookFor('x'), tools })
    assert.deepEqual(types(mine.output), ['function_call'])
    const [sent] = upstreamRequests(t)
    assert.deepEqual(
      sent.tools.map((tool: any) => tool.function.name),
      ['web_search', 'web_search_2'],
    )
    const hosted = await response(t, false, { input: '[[sim: call web_search_2 {"query":"x"}]] go', tools })
    assert.deepEqual(types(hosted.output), ['web_search_call', 'message'])
  })

  test('[RESP-2] [TOOL-1] a later turn finds the search: by previous_response_id, and replayed on Messages, with what the pages said', async () => {
    const first = await response(t, false, { input: lookFor('otters') })
    upstreamRequests(t)
    await response(t, false, { previous_response_id: first.id, input: 'and now?' })
    assert.match(
      JSON.stringify(upstreamRequests(t)[0].messages),
      /\[web search: otters\][^"]*page 1 of the simulated web/,
    )

    const ask = user(lookFor('seals'))
    const reply = await message(t, true, { messages: ask })
    upstreamRequests(t)
    await message(t, false, { messages: [...ask, { role: 'assistant', content: reply.content }, ...user('and now?')] })
    assert.match(
      JSON.stringify(upstreamRequests(t)[0].messages),
      /\[web search: seals\][^"]*page 1 of the simulated web/,
    )
    // Nothing of the pages' text leaves: a replayed block holds titles and URLs.
    assert.doesNotMatch(JSON.stringify(reply.content.slice(0, 2)), /simulated web/)
  })

  test('[MSG-3] a call without a query is told to client and model, and the exchange ends well', async () => {
    for (const args of ['{}', '{"query":7}', '{"query":"  "}']) {
      const reply = await message(t, true, { messages: user(`[[sim: call web_search ${args}]] go`) })
      assert.deepEqual(types(reply.content), ['server_tool_use', 'web_search_tool_result', 'text'])
      assert.equal(reply.content[1].content.error_code, 'invalid_tool_input')
    }
    const long = await message(t, true, { messages: user(lookFor('x'.repeat(1001))) })
    assert.equal(long.content[1].content.error_code, 'query_too_long')
  })

  test('[MSG-3] a search call that the output cap cut is not run', async () => {
    upstreamRequests(t)
    const ask = '[[sim: chunk 4; call web_search {"query":"a long enough query"}]] go'
    const reply = await message(t, true, { messages: user(ask), max_tokens: 3 })
    assert.equal(reply.stop_reason, 'max_tokens')
    assert.deepEqual(reply.content, [])
    assert.equal(upstreamRequests(t).length, 1)
    assert.deepEqual(searchedFor, [])
  })

  test('[STR-6] the frames of a stream with searches and client calls are one well-formed sequence', async () => {
    const answer = await t.post('/v1/messages', {
      model: CHAT,
      max_tokens: 2000,
      stream: true,
      tools: [SEARCH, { name: 'get_weather', input_schema: WEATHER }],
      messages: user(
        '[[sim: text "First."; call web_search {"query":"a"}; next call get_weather {"city":"Oslo"}; call web_search {"query":"b"}]] go',
      ),
    })
    const frames = (await answer.text())
      .split('\n\n')
      .filter(frame => frame.includes('data: '))
      .map(frame => JSON.parse(frame.slice(frame.indexOf('data: ') + 6)))
    const starts = frames.filter(f => f.type === 'content_block_start')
    assert.deepEqual(
      starts.map(f => f.index),
      starts.map((_, i) => i),
    )
    assert.equal(frames.filter(f => f.type === 'content_block_stop').length, starts.length)
    assert.equal(frames.at(-1).type, 'message_stop')
    assert.equal(frames.filter(f => f.type === 'message_delta').length, 1)
  })

  test('[MSG-3] the search runs beside native ones: they stay native, and tools a native search can’t stand with don’t refuse it', async () => {
    for (const [model, tool] of [
      ['eb1-efficient-preview', /"type":"web_search"/],
      ['eb1-fast-preview', /"type":"web_search_20\d{6}"/],
      ['eb1-frontier-preview', /"googleSearch":\{\}/],
    ] as const) {
      for (const stream of [false, true]) {
        upstreamRequests(t)
        const reply = await message(t, stream, { model, messages: user('[[sim: search "native"]] go') })
        assert.ok(types(reply.content).includes('server_tool_use'), model)
        const sent = upstreamRequests(t)
        assert.equal(sent.length, 1, model)
        assert.match(JSON.stringify(sent[0].tools), tool)
        assert.deepEqual(searchedFor, [], 'the provider’s own search was used')
      }
    }
    // A bound on the number of searches, which this provider cannot be told, is no reason to search in its place.
    for (const stream of [false, true]) {
      upstreamRequests(t)
      const ask = user('[[sim: search "native"]] go')
      const tools = [{ ...SEARCH, max_uses: 8 }]
      const limited = await message(t, stream, { model: 'eb1-frontier-preview', messages: ask, tools })
      assert.deepEqual(limited.usage.server_tool_use, { web_search_requests: 1, web_fetch_requests: 0 })
      const item = await response(t, stream, { model: 'eb1-frontier-preview', input: ask, max_tool_calls: 8 })
      assert.equal(item.output.filter((out: any) => out.type === 'web_search_call').length, 1)
      for (const sent of upstreamRequests(t)) assert.match(JSON.stringify(sent.tools), /googleSearch/)
      assert.deepEqual(searchedFor, [])
      // What is reported behind the text stands before it where nothing was sent yet (MSG-3).
      const order = limited.content.map(({ type }: { type: string }) => type)
      const blocks = ['server_tool_use', 'web_search_tool_result', 'text']
      assert.deepEqual(order, stream ? ['text', 'server_tool_use', 'web_search_tool_result'] : blocks)
    }
    // Responses upstreams can't leave domains out: the gateway can.
    upstreamRequests(t)
    const blocked = await message(t, false, {
      model: 'eb1-efficient-preview',
      messages: user(lookFor('x')),
      tools: [{ ...SEARCH, blocked_domains: ['example.com'] }],
    })
    assert.deepEqual(types(blocked.content), ['server_tool_use', 'web_search_tool_result', 'text'])
    assert.deepEqual(blocked.content[1].content, [])
    assert.match(JSON.stringify(upstreamRequests(t)[0].tools), /"type":"function"/)
  })
})

test('[GEN-7] [MSG-3] [RESP-1] pages that a provider gives by links of its own are shown by their site', async () => {
  const t = await startGateway()
  try {
    const model = 'eb1-frontier-preview'
    const ask = '[[sim: search "tides"]] look it up'
    for (const stream of [false, true]) {
      const reply = await message(t, stream, { model, messages: user(ask) })
      const found = reply.content.find((block: any) => block.type === 'web_search_tool_result').content
      assert.deepEqual(
        found.map((page: any) => [page.title, page.url]),
        [['example.com', 'https://example.com/']],
      )
      const cited = reply.content.flatMap((block: any) => block.citations ?? [])
      assert.deepEqual(
        cited.map((citation: any) => citation.url),
        ['https://example.com/'],
      )
      const item = await response(t, stream, { model, input: ask, include: ['web_search_call.action.sources'] })
      const call = item.output.find((out: any) => out.type === 'web_search_call')
      assert.deepEqual(call.action.sources, [{ type: 'url', url: 'https://example.com/' }])
      const { annotations } = item.output.find((out: any) => out.type === 'message').content[0]
      assert.deepEqual(
        annotations.map((annotation: any) => annotation.url),
        ['https://example.com/'],
      )
      // The next turn has what the client was shown.
      await response(t, stream, { model, previous_response_id: item.id, input: 'and now?' })
      assert.match(t.simulator.requests.at(-1)!.body, /\[web search: tides\]\\n- example\.com https:\/\/example\.com\//)
    }
    assert.ok(t.leaks.scanned > 0)
  } finally {
    await t.close()
  }
})

describe('a backend whose own search does not fit', () => {
  test('[TOOL-6] [MSG-3] what it signed in a round goes back with the next', async () => {
    const t = await startGateway({
      plugins: { 'web-search': '{ provider: chat }' },
      models: `  signed: { context_window: 400000, price: { input: 1, output: 1 }, backends: [{ provider: gemini, model: gemini-3-pro }] }
  sealed: { context_window: 400000, price: { input: 1, output: 1 }, backends: [{ provider: responses, model: gpt-5.4 }] }`,
    })
    try {
      for (const stream of [false, true]) {
        upstreamRequests(t)
        const ask = user(
          '[[sim: reason 1; call web_search {"query":"a"}; next call web_search {"query":"b"}; next call get_weather {"city":"Oslo"}]] go',
        )
        const tools = [SEARCH, { name: 'get_weather', input_schema: WEATHER }]
        const first = await message(t, stream, { model: 'signed', messages: ask, tools })
        assert.equal(first.stop_reason, 'tool_use')
        const sent = upstreamRequests(t)
        assert.equal(sent.length, 3)
        assert.match(JSON.stringify(sent[0].tools), /"functionDeclarations"/)
        assert.doesNotMatch(JSON.stringify(sent[0].tools), /googleSearch/)
        const signatures = JSON.stringify(sent[2].contents).match(/"thoughtSignature":"[^"]+"/g)!
        assert.equal(signatures.length, 2)
        assert.ok(!signatures.some(signature => signature.includes('skip_thought_signature_validator')))

        const sealed = await message(t, stream, {
          model: 'sealed',
          messages: user('[[sim: reason 1; call web_search {"query":"a"}]] go'),
          tools: [{ ...SEARCH, blocked_domains: ['other.org'] }],
          output_config: { effort: 'high' },
        })
        assert.equal(sealed.stop_reason, 'end_turn')
        const [, second] = upstreamRequests(t)
        assert.match(JSON.stringify(second.input), /"type":"reasoning"[^}]*"encrypted_content":"[^"]+"/)
      }
    } finally {
      await t.close()
    }
  })
})

describe('a search provider from a plugin', () => {
  /** What the plugin below was asked, and how it behaves. */
  interface Probe {
    asked: { query: string; options: SearchOptions }[]
    answer: (query: string, options: SearchOptions) => Promise<any>
  }
  const probe: Probe = { asked: [], answer: async () => [] }
  const source = `import { definePlugin } from 'sluice'
export default definePlugin({
  name: 'probe-search',
  summary: 'A search provider that the test drives.',
  create(_, { searchProviders }) {
    searchProviders.register('probe-search', {
      search(query, options) {
        const probe = globalThis.sluiceSearchProbe
        probe.asked.push({ query, options })
        return probe.answer(query, options)
      },
    })
    return {}
  },
})
`
  let folder: string
  let t: TestGateway
  before(async () => {
    ;(globalThis as any).sluiceSearchProbe = probe
    folder = await mkdtemp(join(tmpdir(), 'sluice-search-'))
    await writeFile(join(folder, 'probe-search.ts'), source)
    t = await startGateway({
      yaml: url =>
        `${defaultYaml(url, { plugins: { 'web-search': '{ provider: probe-search }' } })}plugins: [${join(folder, 'probe-search.ts')}]\n`.replace(
          'auth,',
          'auth, probe-search,',
        ),
    })
  })
  after(async () => {
    await t.close()
    await rm(folder, { recursive: true, force: true })
    delete (globalThis as any).sluiceSearchProbe
  })

  const page = (url: string, more = {}) => ({ title: `Page ${url}`, url, text: 'words', ...more })

  test('[MSG-3] domains are enforced whatever the provider answers, and rubbish is left out', async () => {
    probe.answer = async () => [
      page('https://docs.example.com/a'),
      page('https://example.com/b'),
      page('https://notexample.com/c'),
      page('https://example.com.evil.org/d'),
      page('javascript:alert(1)'),
      page('https://example.com/b'),
      page('http://other.org/blog/post'),
      page('http://other.org/blogs'),
      null,
      { title: 7, url: 'https://example.com/untitled' },
    ]
    const found = async (limits: object) => {
      const reply = await message(t, false, { messages: user(lookFor('x')), tools: [{ ...SEARCH, ...limits }] })
      return reply.content[1].content.map((r: any) => r.url)
    }
    assert.deepEqual(await found({ allowed_domains: ['example.com'] }), [
      'https://docs.example.com/a',
      'https://example.com/b',
      'https://example.com/untitled',
    ])
    assert.deepEqual(probe.asked.at(-1)!.options.allowedDomains, ['example.com'])
    assert.deepEqual(await found({ allowed_domains: ['other.org/blog'] }), ['http://other.org/blog/post'])
    assert.deepEqual(await found({ blocked_domains: ['example.com', 'other.org'] }), [
      'https://notexample.com/c',
      'https://example.com.evil.org/d',
    ])
    assert.equal((await found({})).length, 5, 'at most five without a search_context_size')
    const low = await response(t, false, {
      input: lookFor('x'),
      tools: [{ type: 'web_search', search_context_size: 'low', filters: { allowed_domains: ['other.org'] } }],
      include: ['web_search_call.action.sources'],
    })
    assert.deepEqual(
      low.output[0].action.sources.map((s: any) => s.url),
      ['http://other.org/blog/post', 'http://other.org/blogs'],
    )
    assert.equal(probe.asked.at(-1)!.options.maxResults, 3)
  })

  test('[MSG-3] a search that fails is told as unavailable, the model goes on without it', async () => {
    for (const stream of [false, true]) {
      for (const answer of [
        async () => Promise.reject(new Error('down at 10.0.0.7')),
        async () => 'rubbish' as any,
        (() => {
          throw new Error('at once')
        }) as Probe['answer'],
      ]) {
        probe.answer = answer
        const reply = await message(t, stream, { messages: user(lookFor('x')) })
        assert.deepEqual(types(reply.content), ['server_tool_use', 'web_search_tool_result', 'text'])
        const { content } = reply.content[1]
        if (!Array.isArray(content))
          assert.deepEqual(content, { type: 'web_search_tool_result_error', error_code: 'unavailable' })
        else assert.deepEqual(content, [])
        assert.equal(reply.stop_reason, 'end_turn')
        assert.doesNotMatch(JSON.stringify(reply), /10\.0\.0\.7/)
        const item = await response(t, stream, { input: lookFor('x') })
        assert.equal(item.status, 'completed')
      }
    }
    upstreamRequests(t)
    probe.answer = async () => Promise.reject(new Error('down'))
    const item = await response(t, true, { input: lookFor('x') })
    assert.equal(item.output[0].status, 'failed')
    assert.match(upstreamRequests(t)[1].messages.at(-1).content, /could not be made/)
    assert.equal((await t.ledger()).at(-1)!.searches, 0, '[BILL-1] a search that failed is not counted')
    const reply = await message(t, true, { messages: user(lookFor('x')) })
    assert.equal(reply.usage.server_tool_use, null)
  })

  test('[MSG-3] citations: only of URLs that stand in the text, whole', async () => {
    probe.answer = async () => [
      page('https://a.example/1'),
      page('https://a.example/10'),
      page('https://a.example/1/more'),
      page('https://b.example/'),
    ]
    const text =
      'See https://a.example/10, (https://a.example/1). Not https://a.example/1/other or https://c.example/ or https://a.example/100.'
    upstreamRequests(t)
    const reply = await message(t, true, {
      messages: user(`[[sim: chunk 5; call web_search {"query":"x"}]] [[sim: text ${JSON.stringify(text)}]] go`),
    })
    const last = reply.content.at(-1)
    assert.equal(last.text, text)
    assert.deepEqual(
      last.citations.map((c: any) => c.url),
      ['https://a.example/10', 'https://a.example/1'],
    )
  })

  test('[STR-6] text behind a slow search waits for it, and a client that leaves cancels it', async () => {
    upstreamRequests(t)
    const started = Promise.withResolvers<AbortSignal>()
    probe.answer = (_, { signal }) => {
      started.resolve(signal)
      return new Promise(() => {})
    }
    const gone = new AbortController()
    const stream = t
      .anthropic()
      .messages.stream({ model: CHAT, max_tokens: 100, tools: [SEARCH], messages: user(lookFor('x')) } as any, {
        signal: gone.signal,
      })
    const seen: string[] = []
    stream.on(
      'streamEvent',
      event => void seen.push(event.type === 'content_block_start' ? event.content_block.type : event.type),
    )
    const ended = assert.rejects(stream.finalMessage())
    const signal = await started.promise
    await eventually(() => seen.includes('server_tool_use'))
    assert.equal(signal.aborted, false)
    gone.abort()
    await ended
    await eventually(() => t.gateway.ingress.running.size === 0)
    assert.equal(signal.aborted, true)
    assert.equal(upstreamRequests(t).length, 1, 'no further round')
    assert.equal((await t.ledger()).at(-1)!.outcome, 'client_gone')
  })
})

describe('configuration', () => {
  test('[REQ-1] [MSG-3] without a search provider such a request is refused, with the tool as param', async () => {
    const t = await startGateway()
    try {
      const answer = await t.post('/v1/messages', { model: CHAT, max_tokens: 10, tools: [SEARCH], messages: user('x') })
      assert.equal(answer.status, 400)
      const { error } = (await answer.json()) as any
      assert.equal(error.code, 'request_requirements_unsatisfied')
      assert.equal(error.param, 'tools[0]')
    } finally {
      await t.close()
    }
  })

  test('[REQ-1] a plan without web search has none of the gateway’s either', async () => {
    const t = await startGateway({
      organization: '    capabilities: [tools]',
      plugins: { 'web-search': '{ provider: chat }' },
    })
    try {
      const answer = await t.post('/v1/messages', { model: CHAT, max_tokens: 10, tools: [SEARCH], messages: user('x') })
      assert.equal(answer.status, 400)
      assert.equal(((await answer.json()) as any).error.code, 'request_requirements_unsatisfied')
    } finally {
      await t.close()
    }
  })

  test('[MSG-3] provider: simulator needs nothing else', async () => {
    const t = await startGateway({ plugins: { 'web-search': '{ provider: simulator }' } })
    try {
      const reply = await message(t, false, { messages: user(lookFor('bees')) })
      assert.equal(reply.content[1].content[0].url, 'https://example.com/bees/1')
    } finally {
      await t.close()
    }
  })

  test('a name that nothing answers to is an error before anything listens', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'sluice-search-'))
    const file = join(folder, 'gateway.yaml')
    const refused = async (yaml: string, expected: RegExp) => {
      await writeFile(file, yaml)
      await assert.rejects(buildGateway(file, { log: silent, watch: false, admin: false }), error => {
        assert.ok(error instanceof ConfigRefused)
        assert.match(error.message, expected)
        return true
      })
    }
    try {
      await refused(
        defaultYaml('http://127.0.0.1:9', { plugins: { 'web-search': '{ provider: chta }' } }),
        /there is no provider 'chta'; did you mean 'chat'\?/,
      )
      await writeFile(
        join(folder, 'mute.ts'),
        "import { definePlugin } from 'sluice'\nexport default definePlugin({ name: 'mute', summary: 'Nothing.', create: () => ({}) })\n",
      )
      await refused(
        `${defaultYaml('http://127.0.0.1:9', { plugins: { 'web-search': '{ provider: mute }' } })}plugins: [./mute.ts]\n`,
        /'mute', but that plugin registers no search provider/,
      )
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  })

  test('the plugin of docs/web-search.md searches', async () => {
    const page = await readFile(join(import.meta.dirname, '../../docs/web-search.md'), 'utf8')
    const code = /```ts\n\/\/ my-plugins\/searxng\.ts\n([\s\S]*?)```/.exec(page)![1]!
    const folder = await mkdtemp(join(tmpdir(), 'sluice-search-'))
    await writeFile(join(folder, 'searxng.ts'), code)
    const asked: string[] = []
    const engine = await startFakeUpstream(turn => {
      const { path } = turn.request
      asked.push(path)
      if (path.includes('busy')) return turn.answer(429, '')
      return turn.answer(200, { results: [{ title: 'Bees', url: 'https://bees.example/', content: 'Bees hum.' }] })
    })
    const t = await startGateway({
      yaml: url =>
        `${defaultYaml(url, { plugins: { 'web-search': '{ provider: searxng }' } })}plugins: [${join(folder, 'searxng.ts')}]\n`.replace(
          'auth,',
          `auth, { searxng: { url: "${engine.url}" } },`,
        ),
    })
    try {
      const reply = await message(t, false, { messages: user(lookFor('bees')) })
      assert.deepEqual(
        reply.content[1].content.map((r: any) => r.url),
        ['https://bees.example/'],
      )
      assert.match(asked[0]!, /^\/search\?q=bees&format=json/)
      const busy = await message(t, false, { messages: user(lookFor('busy')) })
      assert.equal(busy.content[1].content.error_code, 'too_many_requests')
    } finally {
      await t.close()
      await engine.close()
      await rm(folder, { recursive: true, force: true })
    }
  })
})

describe('a native search that its provider pauses', () => {
  test('[MSG-3] goes on inside the gateway, and is a pause to the client only at the cap', async () => {
    let pauses = 2
    let left = pauses
    const simulator = await startSimulator({
      apiKey: 'k',
      directives: () => (left-- > 0 ? 'finish pause_turn; search "tides"; text "So far."' : 'text "Done."'),
    })
    const t = await startGateway({
      yaml: () => defaultYaml(simulator.url, { plugins: { 'web-search': '{ max_turns: 3 }' } }),
    })
    try {
      for (const stream of [false, true]) {
        left = pauses = 2
        const from = simulator.requests.length
        const reply = await message(t, stream, { model: 'eb1-fast-preview', messages: user('go') })
        assert.equal(reply.stop_reason, 'end_turn')
        assert.match(textOf(reply.content), /Done\.$/)
        const sent = simulator.requests.slice(from).map(request => request.json as any)
        assert.equal(sent.length, 3)
        // The provider gets its own blocks back, signed content and all.
        assert.equal(sent[1].messages.at(-1).role, 'assistant')
        assert.match(JSON.stringify(sent[1].messages.at(-1)), /"encrypted_content":"[^"]+"/)

        left = pauses = 9
        const paused = await message(t, stream, { model: 'eb1-fast-preview', messages: user('go on and on') })
        assert.equal(paused.stop_reason, 'pause_turn')
        left = 0
        const resumed = await message(t, stream, {
          model: 'eb1-fast-preview',
          messages: [...user('go on and on'), { role: 'assistant', content: paused.content }],
        })
        assert.equal(resumed.stop_reason, 'end_turn')
      }
    } finally {
      await t.close()
      await simulator.close()
    }
  })

  test('[MSG-3] [TOOL-6] a pause between a search and its result: the client sees one search, and every later request has both or neither', async () => {
    const page = (n: number) => ({
      type: 'web_search_result',
      url: `https://tides.example/${n}`,
      title: `Page ${n}`,
      encrypted_content: `sealed-${n}`,
      page_age: null,
    })
    const call = (id: string, query: string) => ({ type: 'server_tool_use', id, name: 'web_search', input: { query } })
    const result = (id: string, n: number) => ({ type: 'web_search_tool_result', tool_use_id: id, content: [page(n)] })
    const text = (said: string) => ({ type: 'text', text: said })
    const replies = [
      { stop: 'pause_turn', content: [text('Let me look.'), call('srvtoolu_A1', 'tides')] },
      { stop: 'pause_turn', content: [result('srvtoolu_A1', 1), text('High.'), call('srvtoolu_B2', 'moon')] },
      { stop: 'end_turn', content: [result('srvtoolu_B2', 2), text('Full.')] },
      { stop: 'end_turn', content: [text('You are welcome.')] },
    ]
    const asked: any[] = []
    const upstream = await startFakeUpstream(turn => {
      asked.push(JSON.parse(turn.request.body))
      const { stop, content } = replies[(asked.length - 1) % replies.length]!
      const usage = { input_tokens: 10, output_tokens: 5 }
      const message = { id: 'msg_1', type: 'message', role: 'assistant', model: 'm', content: [], usage }
      const frames: object[] = [{ type: 'message_start', message }]
      for (const [index, block] of content.entries()) {
        const { input, ...rest } = block as any
        const start = { ...rest, ...(input && { input: {} }), ...(rest.type === 'text' && { text: '' }) }
        frames.push({ type: 'content_block_start', index, content_block: start })
        const delta = input
          ? { type: 'input_json_delta', partial_json: JSON.stringify(input) }
          : { type: 'text_delta', text: rest.text }
        if (input || rest.text) frames.push({ type: 'content_block_delta', index, delta })
        frames.push({ type: 'content_block_stop', index })
      }
      frames.push({ type: 'message_delta', delta: { stop_reason: stop, stop_sequence: null }, usage })
      frames.push({ type: 'message_stop' })
      return turn.stream(frames.map(frame => `data: ${JSON.stringify(frame)}\n\n`).join(''))
    })
    const t = await startGateway({ yaml: () => defaultYaml(upstream.url) })
    /** Calls without a result right behind them, but for one that ends the conversation. */
    const dangling = ({ messages }: any): string[] => {
      const blocks: any[] = messages.flatMap((turn: any) => turn.content)
      const open = (block: any, next: any): boolean =>
        block.type === 'server_tool_use' && next?.tool_use_id !== block.id
      return blocks.filter((block, at) => at < blocks.length - 1 && open(block, blocks[at + 1])).map(block => block.id)
    }
    try {
      for (const stream of [false, true]) {
        asked.length = 0
        const body = { model: 'eb1-fast-preview', messages: user('tides and moon?') }
        const reply = await message(t, stream, body)
        assert.deepEqual(types(reply.content), [
          'text',
          'server_tool_use',
          'web_search_tool_result',
          'text',
          'server_tool_use',
          'web_search_tool_result',
          'text',
        ])
        const [, first, found, , second, other] = reply.content
        assert.deepEqual([first.input.query, second.input.query], ['tides', 'moon'])
        assert.deepEqual([found.tool_use_id, other.tool_use_id], [first.id, second.id])
        assert.deepEqual([found.content[0].url, other.content[0].url], [page(1).url, page(2).url])
        assert.equal(reply.usage.server_tool_use.web_search_requests, 2)
        assert.equal(asked.length, 3)
        assert.deepEqual(asked[1].messages.at(-1).content.at(-1), call('srvtoolu_A1', 'tides'))
        assert.deepEqual(
          asked[2].messages.at(-1).content.map((block: any) => block.id ?? block.tool_use_id ?? block.text),
          ['Let me look.', 'srvtoolu_A1', 'srvtoolu_A1', 'High.', 'srvtoolu_B2'],
        )
        const turns = [...body.messages, { role: 'assistant' as const, content: reply.content }, ...user('thanks')]
        const last = await message(t, stream, { ...body, messages: turns })
        assert.equal(textOf(last.content), 'You are welcome.')
        assert.match(JSON.stringify(asked[3].messages), /sealed-1.*sealed-2/)
        for (const sent of asked) assert.deepEqual(dangling(sent), [])
      }
      // Without a round left the pause is the client's, and goes on when it comes back.
      asked.length = 0
      const short = await startGateway({
        yaml: () => defaultYaml(upstream.url, { plugins: { 'web-search': '{ max_turns: 1 }' } }),
      })
      try {
        const body = { model: 'eb1-fast-preview', messages: user('tides and moon?') }
        const paused = await message(short, true, body)
        assert.equal(paused.stop_reason, 'pause_turn')
        assert.equal(paused.usage.server_tool_use.web_search_requests, 1)
        const turns = [...body.messages, { role: 'assistant' as const, content: paused.content }]
        const resumed = await message(short, true, { ...body, messages: turns })
        assert.equal(resumed.stop_reason, 'end_turn')
        assert.equal(resumed.content[0].input.query, 'moon')
        assert.deepEqual(asked.at(-1).messages.at(-1).content.at(-1), call('srvtoolu_B2', 'moon'))
        for (const sent of asked) assert.deepEqual(dangling(sent), [])
      } finally {
        await short.close()
      }
    } finally {
      await t.close()
      await upstream.close()
    }
  })
})
