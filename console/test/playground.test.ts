/** The playground: a key of its own, replies as a page and as a stream, and whose money it is. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import type { TestGateway } from '../../test/e2e/harness.ts'
import { eventually } from '../../test/eventually.ts'
import { sender } from '../gateway.ts'
import { CUSTOMERS, gatewayForConsole, startConsole, type TestConsole, type Visitor } from './kit.ts'

let gateway: TestGateway
let c: TestConsole
let owner: Visitor & { id: string }
let time = 0
/** By the ids of keys, as the gateway told them. */
const secrets = new Map<string, string>()
before(async () => {
  gateway = await gatewayForConsole()
  time = Date.now()
  const real = sender(gateway.gateway.adminAddress!, () => CUSTOMERS)
  c = await startConsole(gateway, {
    now: () => time,
    async send(request) {
      const answer = await real(request)
      if (answer.body.secret) secrets.set(answer.body.id, answer.body.secret)
      return answer
    },
  })
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

test('a person has one key, of ten minutes and a dollar; one that is over goes when the next is made', async () => {
  await asks('one')
  await asks('two')
  const [first, ...others] = await keys()
  assert.equal(others.length, 0)
  const page = await owner.get(`/o/elm/keys/${first}`)
  assert.match(page.body, /of \$?1\.00/)
  assert.match(page.body, /active until its end/)
  time += 8 * 60_000
  // A request that runs may still have the first one.
  await asks('three')
  const two = await keys()
  assert.equal(two.length, 2)
  assert.ok(two.includes(first!))
  time += 8 * 60_000
  await asks('four')
  const left = await keys()
  assert.equal(left.length, 2)
  assert.ok(!left.includes(first!))
  time += 20 * 60_000
  await asks('five')
  assert.equal((await keys()).length, 1)
})

test('where the key was deleted at the gateway another is made, and the request goes on', async () => {
  await asks('before')
  for (const [how, stream] of [
    ['delete', {}],
    ['revoke', { stream: '1' }],
  ] as const) {
    const [id] = await keys()
    const secret = secrets.get(id!)!
    await owner.get(`/o/elm/keys/${id}`)
    await owner.post(`/o/elm/keys/${id}/${how}`)
    const models = () => fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${secret}` } })
    await eventually(async () => (await models()).status === 401)
    const seen = await Promise.all([1, 2].map(n => asks(`after ${how} ${n}`, stream)))
    assert.deepEqual(
      seen.map(({ status }) => status),
      [200, 200],
    )
    const left = await keys()
    assert.equal(left.length, 1, 'two requests make one key, and the one that is refused is gone')
    assert.notEqual(left[0], id)
  }
})

test('two consoles on one database leave each other’s keys alone', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-playground-'))
  const database = `sqlite:${join(folder, 'console.db')}`
  const consoles = [await startConsole(gateway, { database }), await startConsole(gateway, { database })]
  try {
    const [a, b] = consoles as [TestConsole, TestConsole]
    await a.organization('fir', 'tier2')
    const people = [await a.member('fir', 'fir@example.com', 'owner'), await b.person('fir@example.com')]
    const path = '/o/fir/playground'
    const seen = []
    for (const who of [...people, ...people, ...people]) {
      seen.push((await who.send(path, path, { model: 'eb1-preview', prompt: 'hi' })).status)
      // A deleted key would be refused by now.
      await setTimeout(700)
    }
    assert.deepEqual(seen, [200, 200, 200, 200, 200, 200])
    const { body } = await people[0]!.get('/o/fir/keys')
    assert.equal(body.match(/keys\/key_\w+">Playground</g)!.length, 2)
  } finally {
    for (const one of consoles) await one.close()
    rmSync(folder, { recursive: true })
  }
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
