/**
 * A new dialect needs only a folder and one line in providers/index.ts. With no other change, the toy dialect can be
 * configured, gets requests, and is shown in the dashboard.
 */
import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import type { TestGateway } from '../e2e/harness.ts'
import { changeLine } from './one-line.ts'

changeLine(
  'providers/index.ts',
  'const all = [',
  'const all = [toy, ',
  "import { toy } from '../test/registries/toy-dialect/index.ts'",
)

const { startFakeUpstream } = await import('../fake-upstream/server.ts')
const asked: any[] = []
const upstream = await startFakeUpstream(async turn => {
  const body = JSON.parse(turn.request.body)
  asked.push({ path: turn.request.path, ...body })
  const said = `you said ${body.prompt}`
  if (!body.stream) return turn.answer(200, { said, tokens: [3, 4] })
  const end = body.prompt === 'too long' ? { said: 'x'.repeat(1 << 21) } : { tokens: [3, 4] }
  const lines = [...said.split(/(?= )/).map(said => ({ said })), end].map(line => `${JSON.stringify(line)}\n`)
  await turn.head(200, { 'content-type': 'application/x-ndjson', 'transfer-encoding': 'chunked' })
  // Cut anywhere, within characters too. The last line end is missing.
  const bytes = Buffer.from(lines.join('').trimEnd())
  for (let at = 0; at < bytes.length && at < 100; at += 5) await turn.chunk(bytes.subarray(at, at + 5))
  if (bytes.length > 100) await turn.chunk(bytes.subarray(100))
  await turn.end()
})
let g: TestGateway

before(async () => {
  const { startGateway } = await import('../e2e/harness.ts')
  g = await startGateway({
    providers: `  nursery: { dialect: toy, base_url: "${upstream.url}" }`,
    models:
      '  eb1-toy: { context_window: 1000, price: { input: 1, output: 2 }, backends: [{ provider: nursery, model: bear, voice: loud }] }',
  })
})
after(async () => {
  await g?.close()
  await upstream.close()
})

test('requests on every surface are written and replies read in the toy dialect', async () => {
  const messages = [{ role: 'user', content: 'hello' }]
  const chat: any = await (await g.post('/v1/chat/completions', { model: 'eb1-toy', messages })).json()
  assert.equal(chat.choices[0].message.content, 'you said hello')
  assert.deepEqual(asked.at(-1), { path: '/ask', model: 'bear', prompt: 'hello', stream: true, loud: true })
  const message = { model: 'eb1-toy', messages, max_tokens: 50, system: 'Be short.' }
  const made: any = await (await g.post('/v1/messages', message)).json()
  assert.equal(made.content[0].text, 'you said hello')
  const { system, most } = asked.at(-1)
  assert.deepEqual({ system, most }, { system: 'Be short.', most: 50 })
  const streamed = await g.post('/v1/responses', { model: 'eb1-toy', input: 'hello', stream: true })
  assert.match(await streamed.text(), /response\.output_text\.done.*"text":"you said hello"/)
})

/** The framing was fixed in `upstream`: a format of JSON lines needed a change there. */
test('a dialect brings the framing of its streams; a frame without end is a fault of the upstream', async () => {
  const streamed = await g.post('/v1/responses', { model: 'eb1-toy', input: 'é 😀 ü', stream: true })
  assert.match(await streamed.text(), /response\.output_text\.done.*"text":"you said é 😀 ü"/)
  const endless = await g.post('/v1/responses', { model: 'eb1-toy', input: 'too long', stream: true })
  assert.match(await endless.text(), /response\.failed.*upstream_server_error/)
})

test('what it cannot express is refused like with any dialect', async () => {
  const tools = [{ type: 'function', function: { name: 'sum', parameters: { type: 'object', properties: {} } } }]
  const messages = [{ role: 'user', content: 'hello' }]
  const refused = await g.post('/v1/chat/completions', { model: 'eb1-toy', messages, tools })
  assert.equal(refused.status, 400)
  assert.equal(((await refused.json()) as any).error.param, 'tools[0]')
})

// The toy is what docs/dialects.md shows: an earlier one dropped stop strings, the output cap, system text and old
// calls without a word, would have sent text that is only metered, and threw on a frame that was no JSON.
test('it keeps the rules that every dialect has to keep', async () => {
  const { bodyOf, decodeFrames, printed, unfitOf } = await import('../providers/dialect-kit.ts')
  const { toy } = await import('./toy-dialect/index.ts')
  const text = (text: string) => ({ type: 'text' as const, text })
  const turns = [
    { role: 'user' as const, parts: [{ ...text('cc_version=1'), meteredOnly: true as const }, text('hello')] },
  ]
  assert.equal(bodyOf(toy, { turns }).prompt, 'hello')

  const call = {
    type: 'call' as const,
    id: 'c',
    kind: 'function' as const,
    name: 'f',
    input: '{}',
    path: 'messages[0]',
  }
  assert.equal(unfitOf(toy, { turns: [{ role: 'assistant', parts: [call] }] }), 'messages[0]')
  assert.equal(unfitOf(toy, { sampling: { topK: 3 } }), 'top_k')
  assert.equal(unfitOf(toy, { sampling: { seed: 3, stop: ['x'] } }), null)

  const reply = (...data: string[]) =>
    printed(
      decodeFrames(
        toy,
        { conversation: { sampling: { stop: ['END'] } } },
        data.map(data => ({ event: '', data })),
      ),
    )
  assert.match(reply('{"said":"one EN"}', '{"said":"D two"}'), /"one ".*\n.*"stop_sequence","stopSequence":"END"/)
  assert.match(reply('{"said":"one","tokens":[3,4],"full":true}'), /"reason":"length"/)
  assert.match(reply('{"said":"one"}'), /"error".*upstream_server_error/)
  assert.match(reply('{"said":'), /^[^\n]*"error"[^\n]*upstream_server_error[^\n]*$/)
})

test('the configuration names it: in faults, for editors, in the docs and in sluice list', async () => {
  const { load } = await import('../../cli/load.ts')
  const { generated } = await import('../../docs/generate/index.ts')
  const { list } = await import('../../cli/list.ts')
  const good = await load(g.file)
  assert.equal(good.errors, undefined)
  // The toy has no search of its own.
  assert.deepEqual(
    good.warnings.filter(({ message }) => !message.startsWith('no web search serves')),
    [],
  )
  await writeFile(g.file, (await readFile(g.file, 'utf8')).replace('dialect: toy', 'dialect: tay'))
  assert.match((await load(g.file)).errors![0]!.message, /toy/)
  const files = generated()
  assert.match(files['config/gateway.schema.json']!, /"toy", "openai-chat"/)
  assert.match(files['config/gateway.schema.json']!, /"How the toy is asked\."/)
  assert.match(files['docs/configuration.md']!, /^\| `backends\[\]\.voice` \| plain, loud \|/m)
  assert.match(files['docs/compatibility.md']!, / toy \| openai-chat \|/)
  const told: string[] = []
  await list.run([], { out: (text: string) => told.push(text) } as never)
  assert.match(told.join('\n'), /^ *toy/m)
})
