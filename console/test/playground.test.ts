/** The playground: a key of its own, replies as a page and as a stream, and whose money it is. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { TestGateway } from '../../test/e2e/harness.ts'
import { gatewayForConsole, startConsole, type TestConsole, type Visitor } from './kit.ts'

let gateway: TestGateway
let c: TestConsole
let owner: Visitor & { id: string }
let time = 0
before(async () => {
  gateway = await gatewayForConsole()
  time = Date.now()
  c = await startConsole(gateway, { now: () => time })
  await c.organization('elm', 'tier2')
  owner = await c.member('elm', 'owner@example.com', 'owner')
})
after(async () => {
  await c?.close()
  await gateway?.close()
})

const PATH = '/o/elm/playground'
const asks = (prompt: string, more = {}) => owner.send(PATH, PATH, { model: 'eb1-preview', prompt, ...more })
/** Ids of the playground's keys of the organization. */
async function keys(): Promise<string[]> {
  const page = await owner.get('/o/elm/keys')
  return [...page.body.matchAll(/<a href="\/o\/elm\/keys\/(key_\w+)">Playground<\/a>/g)].map(([, id]) => id!)
}

test('without a script the reply is a page, and what was written stays in the form', async () => {
  const seen = await asks('[[sim: text "Forty <two>."]] hello', { system: 'Be brief.' })
  assert.equal(seen.status, 200, seen.body)
  assert.match(seen.body, /<pre id="reply"[^>]*>Forty &lt;two&gt;\.<\/pre>/)
  assert.match(seen.body, />Be brief\.<\/textarea>/)
  const sent = gateway.simulator.requests.at(-1) as any
  assert.deepEqual(
    sent.json.messages.map(({ role }: { role: string }) => role),
    ['system', 'user'],
  )
})

test('a stream is that of the API, and no secret is in it or on the page', async () => {
  const seen = await asks('hello', { stream: '1' })
  assert.equal(seen.headers.get('content-type'), 'text/event-stream')
  assert.equal(seen.headers.get('x-content-type-options'), 'nosniff')
  assert.match(seen.body, /^data: \{"id":"chatcmpl/)
  assert.match(seen.body, /"usage":\{"prompt_tokens"/)
  assert.match(seen.body, /data: \[DONE\]\n\n$/)
  for (const { body } of [seen, await owner.get(PATH)]) assert.doesNotMatch(body, /sk-[A-Za-z0-9_-]{20}/)
})

test('a person has one key, of ten minutes and a dollar; the next one takes its place', async () => {
  await asks('one')
  await asks('two')
  const [first, ...others] = await keys()
  assert.equal(others.length, 0)
  const page = await owner.get(`/o/elm/keys/${first}`)
  assert.match(page.body, /of \$?1\.00/)
  assert.match(page.body, /active until its end/)
  time += 8 * 60_000
  await asks('three')
  const [second, ...more] = await keys()
  assert.equal(more.length, 0)
  assert.notEqual(second, first)
})

test('what the API refuses is said where the form is', async () => {
  const seen = await asks('hello', { model: 'no-such-model' })
  assert.equal(seen.status, 400)
  assert.match(seen.body, /role="alert">[^<]*no-such-model/)
  const streamed = await asks('hello', { model: 'no-such-model', stream: '1' })
  assert.equal(streamed.status, 404)
  assert.equal(streamed.headers.get('content-type'), 'application/json')
  assert.match((await asks('  ')).body, /role="alert">Message: write something/)
})

test('a request is a row of the organization, made by that key', async () => {
  const before = (await gateway.ledger()).length
  await asks('hello')
  const rows = await gateway.ledger()
  assert.equal(rows.length, before + 1)
  const row = rows.find(({ time: began }) => began === Math.max(...rows.map(each => each.time)))!
  assert.equal(row.organization, 'elm')
  assert.equal(row.key_id, (await keys())[0])
})

test('who has no right to it gets no key', async () => {
  const viewer = await c.member('elm', 'viewer@example.com', 'viewer')
  assert.equal((await viewer.get(PATH)).status, 403)
  const before = await keys()
  await viewer.get('/o/elm')
  assert.equal((await viewer.post(PATH, { model: 'eb1-preview', prompt: 'x' })).status, 403)
  assert.deepEqual(await keys(), before)
  const stranger = await c.member('elm', 'other@example.com', 'developer')
  assert.equal((await stranger.send(PATH, PATH, { model: 'eb1-preview', prompt: 'mine' })).status, 200)
  assert.equal((await keys()).length, 2, 'each person has one')
})
