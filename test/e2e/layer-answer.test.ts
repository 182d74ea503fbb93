/** A layer that answers a call with the events of an earlier reply, on every surface, streamed and whole. */
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import type { Cell } from '../../core/ports/store.ts'
import { bodyOf, DIALECTS, type DialectName, read, type Said, SURFACES, type SurfaceName } from './conversations.ts'
import { defaultYaml, KEY, startGateway, stillClock, type TestGateway } from './harness.ts'

/** Keeps each reply in memory by the words of its question, whatever the surface, and sells it again for a half. */
const AGAIN = `import { answerCall, definePlugin, EventRecorder } from 'sluice'
const kept = new Map()
export default definePlugin({
  name: 'again',
  summary: 'Answers with an earlier reply.',
  layers: ['call'],
  create: () => ({
    callLayer: next => (call, sink) => {
      const key = JSON.stringify([call.asked.model, call.asked.turns])
      const events = kept.get(key)
      if (events) return answerCall(call, sink, JSON.parse(events), { by: 'again', share: 0.5 })
      return next(call, new EventRecorder(sink, 1_000_000, found => {
        if (found) kept.set(key, JSON.stringify(found))
      }))
    },
  }),
})
`

// No limit refills between two looks.
const clock = stillClock()
let t: TestGateway
let folder: string
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sluice-layer-'))
  const file = join(folder, 'again.ts')
  await writeFile(file, AGAIN)
  t = await startGateway({
    yaml: url =>
      `${defaultYaml(url, { organization: '    limits: { tokens_per_minute: 1000000, daily_spend_usd: 50 }' })}plugins: [${JSON.stringify(file)}]\n`.replace(
        ' admission,',
        ' admission, again,',
      ),
    gateway: { clock },
  })
})
after(async () => {
  await t.close()
  await rm(folder, { recursive: true, force: true })
})

const WEATHER = {
  name: 'get_weather',
  schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
}
const REASON: Record<SurfaceName, Record<string, unknown>> = {
  chat: { reasoning_effort: 'high' },
  responses: { reasoning: { effort: 'high', summary: 'auto' } },
  messages: { thinking: { type: 'adaptive' }, output_config: { effort: 'high' } },
}

/** The reply, whole or put together of a stream by the API's own SDK, with its id. */
async function ask(
  surface: SurfaceName,
  body: any,
  stream: boolean,
): Promise<Said & { id: string; requestId: string }> {
  if (!stream) {
    const path = { chat: 'chat/completions', responses: 'responses', messages: 'messages' }[surface]
    const response = await t.post(`/v1/${path}`, body)
    const json: any = await response.json()
    assert.equal(response.status, 200, JSON.stringify(json))
    return { ...read(surface, json), id: json.id, requestId: response.headers.get('x-request-id')! }
  }
  let requestId = ''
  const fetched: typeof fetch = async (...args) => {
    const response = await fetch(...args)
    requestId = response.headers.get('x-request-id')!
    return response
  }
  const options = { fetch: fetched }
  const whole: any =
    surface === 'chat'
      ? await t
          .openai(options)
          .chat.completions.stream({ ...body, stream_options: { include_usage: true } })
          .finalChatCompletion()
      : surface === 'responses'
        ? await t.openai(options).responses.stream(body).finalResponse()
        : await t.anthropic(options).messages.stream(body).finalMessage()
  return { ...read(surface, whole), id: whole.id, requestId }
}

const rowOf = async (id: string) => (await t.ledger()).find(row => row.request_id === id)!

for (const [dialect, model] of Object.entries(DIALECTS) as [DialectName, string][])
  for (const first of SURFACES)
    test(`a reply of ${dialect} to ${first} is given again on every surface, at half its price`, async () => {
      const words = `[[sim: reason 2; text "It is sunny, ${dialect} ${first}."; call get_weather {"city":"Oslo"}]] weather?`
      const body = (surface: SurfaceName) =>
        bodyOf(surface, model, [{ user: words }], { tools: [WEATHER], more: REASON[surface] })
      const original = await ask(first, body(first), false)
      const asked = t.simulator.requests.length
      const source = await rowOf(original.requestId)
      const ids = new Set([original.id, ...original.calls.map(({ id }) => id)])
      for (const surface of SURFACES)
        for (const stream of [false, true]) {
          const again = await ask(surface, body(surface), stream)
          assert.equal(again.text, original.text)
          assert.deepEqual(
            again.calls.map(({ name, input }) => [name, input]),
            original.calls.map(({ name, input }) => [name, input]),
          )
          for (const id of [again.id, ...again.calls.map(({ id }) => id)]) {
            assert.equal(ids.has(id), false, 'each reply has ids of its own')
            ids.add(id)
          }
          const row = await rowOf(again.requestId)
          assert.deepEqual([row.provider, row.provider_cost, row.outcome], ['again', 0, 'completed'])
          assert.deepEqual([row.output, row.reasoning], [source.output, source.reasoning])
          assert.equal(row.price_used, 'model*0.5')
          assert.equal(row.cost, Math.round(source.cost / 2))
        }
      assert.equal(t.simulator.requests.length, asked, 'no backend is asked')
    })

test('the log names the layer; limits of tokens and their headers count nothing, spend has the bill', async () => {
  const body = bodyOf('chat', 'eb1-preview', [{ user: 'once more' }])
  const first = await ask('chat', body, false)
  const cells: Cell[] = [
    { id: 'o:tpm', scope: 'org', dimension: 'tokens', kind: 'bucket', capacity: 1_000_000, windowMs: 60_000 },
    { id: 'o:day', scope: 'org', dimension: 'spend', kind: 'spend', capacity: 50e9, period: 'day' },
  ]
  const remaining = async () =>
    (await t.gateway.store.limits.peek('acme', cells, clock.now())).map(({ remaining }) => remaining)
  const [tokens, spend] = await remaining()
  assert.ok(tokens! < 1_000_000, 'earlier requests have taken some')
  const response = await t.post('/v1/chat/completions', body)
  await response.json()
  assert.equal(Number(response.headers.get('x-ratelimit-remaining-tokens')), tokens)
  const row = await rowOf(response.headers.get('x-request-id')!)
  assert.ok(row.cost > 0)
  assert.deepEqual(await remaining(), [tokens, spend! - row.cost])
  const lines = t.log.filter(({ message, fields }) => message === 'exchange' && fields.request_id === row.request_id)
  assert.deepEqual([lines[0]!.fields.backend, lines[0]!.fields.cost], ['again', row.cost])
  assert.notEqual(first.requestId, row.request_id)
})

test('a replayed turn can be continued: its private data is kept under its new ids', async () => {
  const model = DIALECTS.gemini
  const question = { user: '[[sim: reason 2; call get_weather {"city":"Lima"}; next text "Warm."]] and there?' }
  const body = bodyOf('chat', model, [question], { tools: [WEATHER] })
  await ask('chat', body, false)
  const again = await ask('chat', body, true)
  const next = await t.post(
    '/v1/chat/completions',
    bodyOf(
      'chat',
      model,
      [question, { calls: again.calls }, { results: again.calls.map(({ id }) => ({ id, output: 'warm' })) }],
      { tools: [WEATHER] },
    ),
    { authorization: `Bearer ${KEY}` },
  )
  assert.equal(next.status, 200)
  await next.json()
  const sent = JSON.stringify(t.simulator.requests.at(-1)!.json)
  assert.match(sent, /"thoughtSignature":/)
  assert.doesNotMatch(sent, /skip_thought_signature_validator/)
})
