/**
 * Each bound on what one request or one reply may hold refuses with words of its own and counts by its own name. Before,
 * they shared `sluice_refused_total{code="content_limit_exceeded"}`: an operator could not tell which one tenants met.
 */
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { CONTENT_BOUNDS, type ContentBound } from '../../plugins/shared/content-bounds.ts'
import { scrape, value } from '../admin/exposition.ts'
import { defaultYaml, startGateway } from './harness.ts'
import { SocketClient } from './socket-client.ts'

const MODEL = 'eb1-preview'
const chat = (content: unknown, more: object = {}) => ({ model: MODEL, messages: [{ role: 'user', content }], ...more })
const deep = (levels: number): object => (levels === 0 ? {} : { a: deep(levels - 1) })
const withParameters = (parameters: object) =>
  chat('x', { tools: [{ type: 'function', function: { name: 'f', parameters } }] })
const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } }
const file = { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' } }

const OVER: Record<Exclude<ContentBound, 'max_retained'>, object> = {
  max_depth: withParameters(deep(12)),
  max_nodes: withParameters({ enum: Array.from({ length: 300 }, (_, i) => i) }),
  max_images: chat([image, image]),
  max_documents: chat([file, file]),
  max_replay: {
    model: MODEL,
    messages: [
      { role: 'user', content: 'x'.repeat(2000) },
      { role: 'assistant', content: 'y' },
      { role: 'user', content: 'x' },
    ],
  },
  schema: chat('x', {
    response_format: {
      type: 'json_schema',
      json_schema: { name: 's', schema: { type: 'object', description: 'x'.repeat(140_000) } },
    },
  }),
  stop: chat('x', { stop: 'x'.repeat(257) }),
  max_found: chat('a@x.org b@x.org'),
  max_pattern_work: chat('x'.repeat(500)),
}

test('each bound on content has its refusal and its count', async t => {
  const plugins = {
    validation:
      '{ max_depth: 10, max_nodes: 100, max_images: 1, max_documents: 1, max_replay: 1KiB, structured_output: translate }',
    conversation: '{ max_retained: 1KiB }',
  }
  const mask = "{ pii-mask: { max_found: 1, max_pattern_work: 200000, patterns: { P: '(?s)A.*B' } } }"
  const g = await startGateway({
    yaml: url => defaultYaml(url, { plugins }).replace('token-estimate,', `${mask}, token-estimate,`),
  })
  t.after(() => g.close())
  const counts = async () => {
    const families = await scrape(g)
    return CONTENT_BOUNDS.map(bound => value(families, 'sluice_content_refused_total', { bound }))
  }
  assert.deepEqual(await counts(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0])

  const messages: string[] = []
  for (const [bound, body] of Object.entries(OVER)) {
    const response = await g.post('/v1/chat/completions', body)
    const text = await response.text()
    assert.equal(response.status, 400, `${bound}: ${text}`)
    messages.push(JSON.parse(text).error.message)
  }
  // Another fault of the same member is over no bound.
  assert.equal((await g.post('/v1/chat/completions', chat('x', { stop: '' }))).status, 400)
  const client = await SocketClient.open(g)
  client.create('x'.repeat(2000), { generate: false })
  const { error } = await client.next()
  messages.push(error.message)
  client.close()

  assert.deepEqual(await counts(), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
  assert.equal(new Set(messages).size, CONTENT_BOUNDS.length)
})

test('a reply over max_reply counts for its backend, whether it is refused or cut', async t => {
  const g = await startGateway({ plugins: { upstream: '{ max_reply: 4KiB, attempts: 1 }' } })
  t.after(() => g.close())
  const oversized = async () =>
    value(await scrape(g), 'sluice_backend_oversized_replies_total', { backend: 'chat/sim-large' })
  assert.equal((await g.post('/v1/chat/completions', chat('hello'))).status, 200)
  assert.equal(await oversized(), 0)

  const long = '[[sim: tokens 1500]] x'
  const whole = await g.post('/v1/chat/completions', chat(long, { max_tokens: 2000 }))
  assert.equal(whole.status, 502)
  assert.match(await whole.text(), /over the size limit/)
  assert.equal(await oversized(), 1)
  const streamed = await g.post('/v1/chat/completions', chat(long, { max_tokens: 2000, stream: true }))
  assert.equal(streamed.status, 200)
  assert.match(await streamed.text(), /over the size limit/)
  assert.equal(await oversized(), 2)
})

// A text that is sent and not counted was found by chance, years of tokens later. The guard finds it: here a plugin
// lengthens a text behind the count.
test('[METER-1] a request that is larger than what was counted is not sent, and counts for its backend', async t => {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-larger-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  const file = join(folder, 'lengthens.ts')
  await writeFile(
    file,
    `import { conversation, definePlugin } from 'sluice'
export default definePlugin({
  name: 'lengthens',
  summary: 'Lengthens a text that was counted.',
  needs: [conversation],
  create: () => ({
    onRequest(x) {
      const part = x.get(conversation).turns[0].parts[0]
      part.text = part.text.padEnd(Number(part.text), '.')
      return undefined
    },
  }),
})
`,
  )
  const g = await startGateway({
    yaml: url =>
      `${defaultYaml(url)}plugins: [${JSON.stringify(file)}]\n`.replace(
        'token-estimate,',
        'token-estimate, lengthens,',
      ),
  })
  t.after(() => g.close())
  const refused = async () =>
    value(await scrape(g), 'sluice_backend_oversized_requests_total', { backend: 'chat/sim-large' })
  assert.equal((await g.post('/v1/chat/completions', chat('60000'))).status, 200)
  assert.equal(await refused(), 0)
  const sent = g.simulator.requests.length
  const reply = await g.post('/v1/chat/completions', chat('100000'))
  assert.equal(reply.status, 500)
  assert.equal(((await reply.json()) as any).error.code, 'internal_error')
  assert.equal(g.simulator.requests.length, sent)
  assert.equal(await refused(), 1)
  assert.equal(g.log.filter(entry => entry.message === 'request larger than counted').length, 1)
})
