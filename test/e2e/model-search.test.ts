/** `web-search: { provider, model }`: searches that a model makes, beside the call of a client (docs/web-search.md). */
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { ConfigRefused } from '../../cli/assembly.ts'
import { buildGateway } from '../../cli/gateway.ts'
import { silent } from '../../cli/log.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

const QUERY = 'tide tables'
const ask = `[[sim: call web_search ${JSON.stringify({ query: QUERY })}]] look it up`
const SEARCH = { type: 'web_search_20250305' as const, name: 'web_search' as const }
const CHAT = 'eb1-preview'

/** Costs 1 USD a million input tokens, 2 output, and a cent a search. */
const COST = 'cost: { input: 1.00, output: 2.00, search: 0.01, cached: 1.00, cache_write: 1.00 }'
const searcher = (provider: string, cost = COST) =>
  `  eb1-preview: { context_window: 400000, max_output_tokens: 128000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: chat, model: sim-large, cost: { input: 0.10, output: 0.20, cached: 0.10, cache_write: 0.10 } }] }
  searcher: { listed: false, context_window: 400000, price: { input: 0, output: 0 }, backends: [{ provider: ${provider}, model: sim-small, ${cost} }] }`

/** What reached the upstream for the search: those requests that declare one. */
const searches = (t: TestGateway): any[] =>
  (t.simulator.requests as any[])
    .filter(({ method, json }) => method === 'POST' && JSON.stringify(json).match(/"web_search|googleSearch/))
    .map(({ json }) => json)
    .filter(json => !JSON.stringify(json.messages ?? '').includes('look it up'))

const message = (t: TestGateway, body: object = {}) =>
  t.anthropic().messages.create({
    ...{ model: CHAT, max_tokens: 4000, tools: [SEARCH], messages: [{ role: 'user', content: ask }] },
    ...body,
  } as any) as Promise<any>

for (const provider of ['responses', 'messages', 'gemini']) {
  describe(`searches by ${provider}`, () => {
    let t: TestGateway
    before(async () => {
      // Gemini cannot be told to search; its model does where it likes.
      const simulator = await startSimulator({
        directives: ({ json }) =>
          JSON.stringify(json).includes('googleSearch') ? `search ${JSON.stringify(QUERY)}` : undefined,
      })
      t = await startGateway({
        yaml: () =>
          defaultYaml(simulator.url, {
            models: searcher(provider),
            plugins: { 'web-search': `{ provider: ${provider}, model: sim-small }` },
          }),
      })
      Object.assign(t, { simulator })
    })
    after(async () => {
      await t.simulator.close()
      await t.close()
    })

    test('the client sees one search with pages; the model that asked reads what the other wrote of them', async () => {
      const reply = await message(t)
      assert.deepEqual(
        reply.content.map((block: any) => block.type),
        ['server_tool_use', 'web_search_tool_result', 'text'],
      )
      assert.deepEqual(reply.content[0].input, { query: QUERY })
      assert.ok(
        reply.content[1].content.length > 0,
        JSON.stringify([
          reply.content[1],
          t.log.filter(l => l.level === 'warn').map(l => String(l.fields.err?.stack) + l.message),
        ]),
      )
      for (const page of reply.content[1].content) assert.match(page.url, /^https:/)
      assert.equal(reply.usage.server_tool_use.web_search_requests, 1)
      const asked = searches(t)
      assert.equal(asked.length, 1)
      assert.match(JSON.stringify(asked[0]), /tide tables/)
      assert.doesNotMatch(JSON.stringify(asked[0]), /look it up/, 'the search gets the query alone')
    })

    test('the row has one request, with the cost of both calls and the counts of the one that the client pays for', async () => {
      const before = (await t.ledger()).length
      await message(t)
      const rows = await t.ledger()
      assert.equal(rows.length, before + 1)
      const row = rows.find(each => each.request_id === rows.at(-1)!.request_id)!
      assert.equal(row.provider_model, 'sim-large')
      const own = row.provider_input! * 100 + row.provider_output! * 200
      // A cent for the search, and the tokens of its small prompt and reply.
      const apart = row.provider_cost! - own
      assert.ok(apart > 10_000_000 && apart < 14_000_000, `${row.provider_cost} - ${own}`)
    })
  })
}

describe('searches by a model that costs what nobody says', () => {
  test('the cost of the request is unknown then', async () => {
    const t = await startGateway({
      models: searcher('messages', 'weight: 1'),
      plugins: { 'web-search': '{ provider: messages, model: another-model }' },
    })
    try {
      await message(t)
      const [row] = await t.ledger()
      assert.equal(row!.provider_cost ?? null, null)
      assert.equal(searches(t)[0].model, 'another-model')
      await message(t, { messages: [{ role: 'user', content: 'no search' }], tools: [] })
      const rows = await t.ledger()
      assert.equal(typeof rows.find(each => each.request_id !== row!.request_id)!.provider_cost, 'number')
    } finally {
      await t.close()
    }
  })

  test('a search that fails is unavailable, and the client gets an answer', async () => {
    const simulator = await startSimulator({
      directives: ({ json }) => (json && (json as any).model === 'sim-small' ? 'status 500' : undefined),
    })
    const t = await startGateway({
      yaml: () =>
        defaultYaml(simulator.url, {
          models: searcher('messages'),
          plugins: { 'web-search': '{ provider: messages, model: sim-small }' },
        }),
    })
    try {
      const reply = await message(t)
      assert.equal(reply.content[1].content.error_code, 'unavailable')
      assert.equal(reply.stop_reason, 'end_turn')
      const [row] = await t.ledger()
      assert.equal(row!.code, '')
      assert.equal(row!.provider_cost, row!.provider_input! * 100 + row!.provider_output! * 200)
    } finally {
      await t.close()
      await simulator.close()
    }
  })

  test('a file that names a provider that cannot search does not load', async t => {
    const folder = await mkdtemp(join(tmpdir(), 'sluice-test-'))
    t.after(() => rm(folder, { recursive: true, force: true }))
    for (const [options, words] of [
      [
        '{ provider: chat, model: sim-large }',
        /chat\/sim-large does not search by itself: name a provider that speaks/,
      ],
      ['{ provider: simulator, model: sim-large }', /needs the name of one of 'providers'/],
      ['{ model: sim-large }', /needs the name of one of 'providers'/],
    ] as const) {
      const file = join(folder, 'gateway.yaml')
      await writeFile(file, defaultYaml('http://127.0.0.1:9', { plugins: { 'web-search': options } }))
      await assert.rejects(buildGateway(file, { log: silent, watch: false }), (error: unknown) => {
        assert.ok(error instanceof ConfigRefused)
        assert.match(error.message, words)
        return true
      })
    }
  })
})
