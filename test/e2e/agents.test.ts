/**
 * The coding agents' request shapes (wire.md H): fixtures go through on the surface they use, and a Codex-style loop
 * runs to its end.
 */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { DIALECTS, type DialectName, PNG } from './conversations.ts'
import { KEY, startGateway, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  // For the dialect without a search of its own, and for limits that one can't keep.
  t = await startGateway({ plugins: { 'web-search': '{ provider: simulator }' } })
})
after(() => t.close())

interface Fixture {
  client: string
  path: string
  headers: Record<string, string>
  body: Record<string, any>
}
const read = (folder: URL) =>
  readdirSync(folder)
    .filter(name => name.endsWith('.json'))
    .map(name => ({ name, json: JSON.parse(readFileSync(new URL(name, folder), 'utf8')) }))
const FIXTURES: Fixture[] = [
  ...read(new URL('./fixtures/', import.meta.url)).map(f => f.json as Fixture),
  // Of the Messages surface: bodies alone.
  ...read(new URL('../surfaces/fixtures/', import.meta.url)).map(({ name, json }) => ({
    client: name.replace('.json', ''),
    path: name.includes('count-tokens') ? '/v1/messages/count_tokens?beta=true' : '/v1/messages?beta=true',
    headers: {
      'anthropic-version': '2023-06-01',
      'anthropic-beta':
        'claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,prompt-caching-scope-2026-01-05,mid-conversation-system-2026-04-07,effort-2025-11-24,unheard-of-2030-01-01',
      'x-app': 'cli',
      'user-agent': 'claude-cli/2.1.40 (external, cli)',
      'x-claude-code-session-id': '0b9c2f9e-7f0a-4f4e-9d5e-2f7f3a1f0c11',
      'anthropic-dangerous-direct-browser-access': 'true',
      'x-stainless-lang': 'js',
      'x-stainless-timeout': '600',
      'accept-language': '*',
    },
    body: json,
  })),
]

const CARRIED_BETAS = [
  'interleaved-thinking-2025-05-14',
  'context-management-2025-06-27',
  'mid-conversation-system-2026-04-07',
  'effort-2025-11-24',
]

/** What the reply came to: its text, and that it ended. */
async function finished(path: string, response: Response): Promise<void> {
  const text = await response.text()
  assert.equal(response.status, 200, text)
  if (path.includes('count_tokens')) assert.ok(JSON.parse(text).input_tokens > 0)
  else if (!response.headers.get('content-type')!.startsWith('text/event-stream')) assert.ok(JSON.parse(text).id)
  else if (path.includes('responses')) assert.match(text, /event: response\.(completed|incomplete)\n/)
  else if (path.includes('messages')) assert.match(text, /event: message_stop\n/)
  else assert.match(text, /data: \[DONE\]\n\n$/)
}

for (const { client, path, headers, body } of FIXTURES) {
  describe(client, () => {
    for (const [dialect, model] of Object.entries(DIALECTS) as [DialectName, string][]) {
      test(`[GEN-2] to ${dialect}`, async () => {
        const response = await t.post(path, { ...body, model }, headers)
        await finished(path, response)
        if (path.includes('count_tokens')) return
        const sent = t.simulator.requests.at(-1)!
        assert.equal(sent.dialect, dialect)
        // Nothing of the client's own bookkeeping goes on.
        const secrets = [
          KEY,
          'x-anthropic-billing-header',
          'session_id',
          'installation-id',
          'user-1',
          'proj_1',
          'org-abc',
          'from-elsewhere',
        ]
        const whole = sent.body + JSON.stringify(sent.headers)
        for (const secret of secrets) assert.ok(!whole.includes(secret), `${secret} in ${whole}`)
        // Preview features: those that the upstream's own dialect carries, of its own clients.
        const betas = dialect === 'anthropic-messages' ? headers['anthropic-beta']?.split(',') : undefined
        assert.deepEqual(
          String(sent.headers['anthropic-beta'] ?? '').split(','),
          betas?.filter(name => CARRIED_BETAS.includes(name)) ?? [''],
        )
        for (const id of ['call_A1', 'call_vs1', 'call_lc1', 'call_cl1', 'call_oc1', 'item_eba1'])
          assert.ok(!sent.body.includes(id), id)
      })
    }
  })
}

for (const [dialect, model] of Object.entries(DIALECTS) as [DialectName, string][]) {
  const client = (name: string): Fixture => FIXTURES.find(fixture => fixture.client.includes(name))!
  const query = '{"query":"tides"}'
  /** Its own search where it has one and can keep to what is asked, else the gateway's. */
  const look = (own: readonly DialectName[]): string =>
    `[[sim: ${own.includes(dialect) ? 'search "tides"' : `call web_search ${query}`}]] look up the tides`

  test(`[MSG-3] Claude Code’s web search finds something over ${dialect}`, async () => {
    const { path, headers, body } = client('claude-code-web-search')
    const prompt = look(['openai-responses', 'anthropic-messages'])
    const response = await t.post(path, { ...body, model, messages: [{ role: 'user', content: prompt }] }, headers)
    const text = await response.text()
    assert.equal(response.status, 200, text)
    assert.match(text, /"type":"server_tool_use","id":"hist_eba1_/)
    assert.match(text, /\\"query\\":\\"tides\\"/)
    assert.match(text, /"type":"web_search_tool_result".*"url":"https:\/\/example\.com\/tides\/1"/)
    assert.match(text, /"web_search_requests":1/)
    assert.match(text, /event: message_stop\n/)
  })

  test(`[RESP-1] [MSG-3] Codex’s web search, beside its tools, finds something over ${dialect}`, async () => {
    const { body } = client('first turn')
    const content = [{ type: 'input_text', text: look(['openai-responses', 'anthropic-messages', 'gemini']) }]
    const tools = [
      ...body['tools'].filter((tool: any) => tool.type !== 'web_search'),
      { type: 'web_search', external_web_access: true },
    ]
    const { items } = await turn({
      ...body,
      model,
      tools,
      parallel_tool_calls: true,
      input: [{ role: 'user', content }],
    })
    const search = items.find(item => item.type === 'web_search_call')
    assert.deepEqual([search.status, search.action.query], ['completed', 'tides'])
    assert.equal(items.at(-1).type, dialect === 'gemini' ? 'web_search_call' : 'message')
  })
}

// It was refused while structured output was, and agents went on without a title.
test('[GEN-3] Claude Code’s request for a title gets an object of its schema', async () => {
  const response = await t.post('/v1/messages?beta=true', {
    model: 'eb1-preview',
    max_tokens: 512,
    messages: [{ role: 'user', content: 'Title this' }],
    output_config: {
      format: { type: 'json_schema', schema: { type: 'object', properties: { title: { type: 'string' } } } },
    },
  })
  assert.equal(response.status, 200)
  const { content } = (await response.json()) as any
  assert.equal(typeof JSON.parse(content.at(-1).text), 'object')
})

test('[GEN-1] probes and model pickers of agents', async () => {
  for (const [method, path] of [
    ['HEAD', '/'],
    ['HEAD', '/api/hello'],
    ['GET', '/api/hello'],
  ] as const) {
    const response = await fetch(`${t.url}${path}`, { method })
    assert.deepEqual([response.status, await response.text()], [200, ''], `${method} ${path}`)
  }
  const headers = { authorization: `Bearer ${KEY}` }
  const codex: any = await (await fetch(`${t.url}/v1/models?client_version=0.151.0`, { headers })).json()
  assert.ok(Array.isArray(codex.models), 'Codex decodes {models}')
  // To a client that sends no header of Anthropic's, the query changes nothing.
  const other: any = await (await fetch(`${t.url}/v1/models?limit=1&after_id=x`, { headers })).json()
  assert.deepEqual([other.data.length > 1, other.has_more], [true, false])
  const twice = await t.post('/v1/v1/messages', {})
  assert.equal(twice.status, 404)
  assert.match(((await twice.json()) as any).error.message, /base URL/i)
})

// ---- a Codex-style loop ---------------------------------------------------------------------------------------------

/** Reads a stream as Codex does: only output_item.done and the terminal event count. */
async function turn(body: Record<string, unknown>): Promise<{ items: any[]; response: any }> {
  const response = await t.post(
    '/v1/responses',
    { ...body, stream: true },
    { originator: 'codex_cli_rs', 'session-id': 's-1' },
  )
  const text = await response.text()
  assert.equal(response.status, 200, text)
  const events = text
    .split('\n\n')
    .filter(f => f.startsWith('event:'))
    .map(f => JSON.parse(f.slice(f.indexOf('data: ') + 6)))
  assert.deepEqual(
    events.map(e => e.sequence_number),
    events.map((_, i) => i),
  )
  const last = events.at(-1)
  assert.equal(last.type, 'response.completed')
  const items = events.filter(e => e.type === 'response.output_item.done').map(e => e.item)
  assert.deepEqual(items, last.response.output)
  return { items, response: last.response }
}

/** As Codex keeps them: no item ids, reasoning with content null. */
function kept(item: any): any {
  const { id: _, ...rest } = item
  if (item.type === 'reasoning') {
    const { status: __, ...reasoning } = rest
    return { ...reasoning, content: null }
  }
  return rest
}

for (const [dialect, model] of Object.entries(DIALECTS) as [DialectName, string][]) {
  test(`[RESP-1] [TOOL-1] [TOOL-6] [RESP-5] a Codex-style loop over ${dialect}: namespaces, a patch tool, tool search, images, encrypted reasoning`, async () => {
    const fixture = FIXTURES.find(f => f.client.includes('first turn'))!
    const { input: opening, ...rest } = fixture.body
    const body = { ...rest, model }
    const patch = '*** Begin Patch\n*** Add File: a.txt\n+hello "world"\n*** End Patch\n'
    const rounds = [
      `reason 2; call exec_command {"cmd":"ls"}; call mcp__github__search_issues {"query":"bug"}; call agents__search_issues {}`,
      `next call apply_patch ${JSON.stringify(patch)}`,
      'next call tool_search {"query":"calendar"}',
      'next call view_image {"path":"a.png"}',
    ]
    const input: any[] = [
      ...opening,
      {
        type: 'message',
        role: 'user',
        content: [{ type: 'input_text', text: `[[sim: ${rounds.join('; ')}]] Fix the test` }],
      },
    ]
    const back = (): string => t.simulator.requests.at(-1)!.body

    const first = await turn({ ...body, input })
    const calls = first.items.filter(i => i.type === 'function_call')
    assert.deepEqual(
      calls.map(c => [c.namespace, c.name]),
      [
        [undefined, 'exec_command'],
        ['mcp__github', 'search_issues'],
        ['agents', 'search_issues'],
      ],
    )
    const reasoning = first.items.find(i => i.type === 'reasoning')
    if (dialect === 'openai-responses' || dialect === 'anthropic-messages') {
      assert.match(reasoning.encrypted_content, /^item_eba1_[A-Za-z0-9]+$/, 'a handle, without data')
      assert.ok(reasoning.summary.length > 0)
    }
    input.push(
      ...first.items.map(kept),
      ...calls.map(c => ({ type: 'function_call_output', call_id: c.call_id, output: `${c.name} done` })),
    )

    const second = await turn({ ...body, input })
    if (dialect === 'openai-responses') assert.match(back(), /gAAAAA/)
    if (dialect === 'anthropic-messages')
      assert.match(back(), /"type":"thinking","thinking":"[^"]+","signature":"[^"]+"/)
    if (dialect === 'gemini') assert.doesNotMatch(back(), /skip_thought_signature_validator/)
    const custom = second.items.find(i => i.type === 'custom_tool_call')
    assert.deepEqual([custom.name, custom.input], ['apply_patch', patch])
    input.push(...second.items.map(kept), {
      type: 'custom_tool_call_output',
      call_id: custom.call_id,
      output: 'Success',
    })

    const third = await turn({ ...body, input })
    const search = third.items.find(i => i.type === 'tool_search_call')
    assert.deepEqual([search.execution, search.arguments], ['client', { query: 'calendar' }])
    const found = {
      type: 'namespace',
      name: 'mcp__calendar',
      description: 'Calendar.',
      tools: [
        { type: 'function', name: 'create_event', strict: false, parameters: { type: 'object', properties: {} } },
      ],
    }
    input.push(...third.items.map(kept), {
      type: 'tool_search_output',
      call_id: search.call_id,
      execution: 'client',
      status: 'completed',
      tools: [found],
    })

    const fourth = await turn({ ...body, input })
    assert.match(back(), /create_event/, 'a tool that was found is declared')
    const view = fourth.items.find(i => i.type === 'function_call')
    assert.equal(view.name, 'view_image')
    input.push(...fourth.items.map(kept), {
      type: 'function_call_output',
      call_id: view.call_id,
      output: [{ type: 'input_image', image_url: `data:image/png;base64,${PNG}` }],
    })

    const fifth = await turn({ ...body, input })
    const message = fifth.items.find(i => i.type === 'message')
    assert.match(message.content[0].text, /image\/png/, 'the image of a result is seen')
    input.push(...fifth.items.map(kept), {
      type: 'message',
      role: 'user',
      content: [{ type: 'input_text', text: '[[sim: call mcp__calendar__create_event {}]] and plan' }],
    })
    const sixth = await turn({ ...body, input })
    const event = sixth.items.find(i => i.type === 'function_call')
    assert.deepEqual([event.namespace, event.name], ['mcp__calendar', 'create_event'])
  })
}
