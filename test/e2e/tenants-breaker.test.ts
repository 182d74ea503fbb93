/**
 * One organization provokes faults and rate limits of a provider; another one must still be served. Before, a breaker
 * counted all organizations together: five 500s, 403s or silences of one tenant were 503 for everybody for 15 s, and
 * one Retry-After took the backend from all for a minute.
 */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import {
  behave,
  type FakeUpstream,
  type Script,
  settle,
  startFakeUpstream,
  type Turn,
} from '../fake-upstream/server.ts'
import { read, TableClock } from '../faults/table.ts'
import { KEY, sha256, startGateway, type TestGateway } from './harness.ts'

const THIRD = 'sk-third-0001-secret'
const KEYS = { acme: KEY, other: 'sk-other-0001-secret', third: THIRD }
type Who = keyof typeof KEYS

interface Bench {
  t: TestGateway
  server: FakeUpstream
  clock: TableClock
  /** Sends a request; with `bad`, the provider answers it with the fault. */
  ask(who: Who, bad?: boolean): Promise<{ status: number; code?: string; headers: Headers }>
  /** Provider requests so far. */
  sent(): number
}

async function bench(context: TestContext, fault: Script, provider = '', upstream = 'attempts: 1'): Promise<Bench> {
  const server = await startFakeUpstream()
  const clock = new TableClock()
  const t = await startGateway({
    providers: `  one: { dialect: openai-chat, base_url: "${server.url}", ${provider} }`,
    models:
      '  eb1-preview: { context_window: 400000, price: { input: 1, output: 1 }, backends: [{ provider: one, model: m }] }',
    plugins: { upstream: `{ ${upstream} }` },
    extra: `  third:\n    plan: custom\n    keys:\n      - { id: key_third, sha256: "${sha256(THIRD)}", status: active }`,
    gateway: { clock, random: () => 0.5 },
  })
  context.after(async () => {
    await t.close()
    await server.close()
  })
  const isBad = (turn: Turn) => turn.request.body.includes('bad')
  server.script = turn => (isBad(turn) ? fault(turn) : behave(turn))
  return {
    t,
    server,
    clock,
    sent: () => server.requests.length,
    async ask(who, bad = false) {
      const body = {
        model: 'eb1-preview',
        max_tokens: 100,
        messages: [{ role: 'user', content: bad ? 'bad' : 'good' }],
      }
      const response = await t.post('/v1/chat/completions', body, { authorization: `Bearer ${KEYS[who]}` })
      const { status, text } = await read(response)
      return { status, code: status === 200 ? undefined : JSON.parse(text).error.code, headers: response.headers }
    },
  }
}
const answer =
  (code: number, headers = {}): Script =>
  turn =>
    turn.answer(code, '{}', headers)
const left = (b: Bench) => b.t.log.filter(({ message }) => message === 'backend left out').map(({ fields }) => fields)
const codes = async (n: number, one: () => Promise<{ status: number }>) => {
  const seen: number[] = []
  for (let i = 0; i < n; i++) seen.push((await one()).status)
  return seen
}

for (const [name, fault] of [
  ['500', answer(500)],
  ['502', answer(502)],
  ['a malformed reply', turn => turn.answer(200, 'nonsense')],
  ['a reset', turn => turn.reset()],
] satisfies [string, Script][]) {
  test(`faults of one organization (${name}) close the backend to that one alone`, async context => {
    const b = await bench(context, fault)
    assert.deepEqual(await codes(5, () => b.ask('acme', true)), [502, 502, 502, 502, 502])
    const own = await b.ask('acme')
    assert.deepEqual([own.status, own.code, b.sent()], [503, 'provider_unavailable', 5])
    assert.deepEqual(await codes(20, () => b.ask('other')), new Array(20).fill(200))
    assert.deepEqual(
      left(b).map(({ reason, organization }) => [reason, organization]),
      [['failures', 'acme']],
    )
    b.clock.advance(15_000)
    assert.equal((await b.ask('acme')).status, 200, 'its trial')
  })
}

test('silence after requests of one organization closes the backend to that one alone', async context => {
  const upstream = 'attempts: 1, first_byte_timeout: 20s, breaker: { failures: 2 }'
  const b = await bench(context, turn => turn.stall(), '', upstream)
  for (let i = 0; i < 2; i++) {
    const stalled = b.server.whenStalled()
    const waiting = b.ask('acme', true)
    await stalled
    b.clock.advance(20_500)
    await settle()
    assert.equal((await waiting).status, 504)
  }
  assert.equal((await b.ask('acme')).status, 503)
  assert.deepEqual(await codes(3, () => b.ask('other')), [200, 200, 200])
})

for (const code of [400, 401, 403, 404, 422, 429]) {
  test(`answers of ${code} close the backend to nobody, and Retry-After counts only with 429`, async context => {
    const b = await bench(context, answer(code, code === 429 ? {} : { 'retry-after': '60' }))
    await codes(12, () => b.ask('acme', true))
    assert.equal(b.sent(), 12)
    assert.deepEqual((await codes(3, () => b.ask('other'))).concat(await codes(3, () => b.ask('acme'))), [
      ...new Array(6).fill(200),
    ])
    assert.deepEqual(left(b), [])
  })
}

const waitOf = ({ headers }: { headers: Headers }) => Number(headers.get('retry-after-ms'))

/**
 * Before, one 429 with Retry-After of one organization was 429 for everybody, who were told to stay away for as long.
 */
test('[ERR-7] a pause that one organization meets is its own; what a second one meets, all meet', async context => {
  const plain = await bench(context, answer(429))
  assert.deepEqual(await codes(6, () => plain.ask('acme', true)), new Array(6).fill(429))
  const b = await bench(context, answer(429, { 'retry-after': '30' }))
  const told = [await b.ask('acme', true), await b.ask('acme'), await b.ask('acme', true)]
  assert.deepEqual([told.map(({ code }) => code), b.sent()], [new Array(3).fill('capacity_exceeded'), 1])
  for (const each of told) assert.ok(waitOf(each) >= 30_000 && waitOf(each) <= 37_500, 'one wait')
  assert.equal((await b.ask('other', true)).status, 429)
  assert.equal(b.sent(), 2, 'asked, and not left out')
  assert.deepEqual(
    left(b).map(({ reason, organization }) => [reason, organization]),
    [
      ['pause', 'acme'],
      ['pause', undefined],
    ],
  )
  const third = await b.ask('third')
  assert.deepEqual([third.status, third.code, b.sent()], [429, 'capacity_exceeded', 2])
  assert.ok(waitOf(third) >= 1 && waitOf(third) <= 1250, `${waitOf(third)} ms: until the next probe`)
})

test('an organization whose request is served meanwhile shows that a pause is somebody’s own, for some minutes', async context => {
  const b = await bench(context, answer(429, { 'retry-after': '60' }))
  await b.ask('acme', true)
  b.clock.advance(1)
  assert.equal((await b.ask('third')).status, 200)
  await b.ask('other', true)
  assert.deepEqual(await codes(5, () => b.ask('third')), new Array(5).fill(200), 'two have met a pause')
})

/** One customer with two organizations could take the backend from all others, for a second in each few. */
test('a pause that two organizations provoke ends with the next probe of a third one, and then holds for them alone', async context => {
  const b = await bench(context, answer(429, { 'retry-after': '60' }))
  await codes(1, () => b.ask('acme', true))
  await codes(1, () => b.ask('other', true))
  assert.equal((await b.ask('third')).status, 429, 'there is no probe in the first second')
  b.clock.advance(1000)
  // Those that provoked it flood. They get one probe between them, and another one is left for who has met nothing.
  await codes(10, () => b.ask('acme', true))
  await codes(10, () => b.ask('other', true))
  assert.equal(b.sent(), 3)
  assert.equal((await b.ask('third')).status, 200)
  for (let i = 0; i < 15; i++) {
    b.clock.advance(3000)
    await b.ask('acme', true)
    await b.ask('other', true)
    assert.equal((await b.ask('third')).status, 200, `round ${i}`)
  }
})

test('a backend is closed to all when two organizations met faults and nobody succeeded; a third one’s probe opens it', async context => {
  const b = await bench(context, answer(500), '', 'attempts: 1, breaker: { failures: 4 }')
  for (let i = 0; i < 2; i++) await codes(2, () => b.ask(i === 0 ? 'acme' : 'other', true))
  assert.deepEqual(
    left(b).map(({ reason, organization }) => [reason, organization]),
    [['failures', undefined]],
  )
  assert.deepEqual([(await b.ask('third')).status, b.sent()], [503, 4])
  b.clock.advance(1000)
  // One probe a second is for anybody; those that have met nothing have another one.
  assert.deepEqual(await codes(3, () => b.ask('acme', true)), [502, 503, 503])
  assert.equal((await b.ask('third')).status, 200, 'the probe')
  assert.equal((await b.ask('other')).status, 200)
  // From now on somebody has succeeded in the window: the same two cannot close it to all.
  await codes(10, () => b.ask('acme', true))
  await codes(10, () => b.ask('other', true))
  assert.deepEqual(await codes(5, () => b.ask('third')), new Array(5).fill(200))
})

test('a backend that cannot be reached is closed to all, whoever found out', async context => {
  const b = await bench(context, behave, '', 'attempts: 1')
  await b.server.close()
  await codes(5, () => b.ask('acme'))
  assert.deepEqual(
    left(b).map(({ reason, organization }) => [reason, organization]),
    [['failures', undefined]],
  )
  const failures = () => b.t.log.filter(({ message }) => message === 'attempt failed').length
  assert.deepEqual([failures(), (await b.ask('other')).status, failures()], [5, 503, 5])
})

test('organizations take turns for a connection, and a full queue makes room for one that has fewer in it', async context => {
  const order: string[] = []
  let release = () => {}
  const open = new Promise<void>(resolve => (release = resolve))
  const b = await bench(context, () => {}, 'max_connections: 1, queue: { max: 4, wait: 30s }')
  const stalled = b.server.whenStalled()
  let first = true
  b.server.script = async turn => {
    if (first) {
      first = false
      void turn.stall()
      await open
    }
    await behave(turn)
  }
  const running = b.ask('acme')
  await stalled
  const waiting: Promise<unknown>[] = []
  const enqueue = async (who: Who) => {
    const before = b.t.gateway.ingress.running.size
    waiting.push(b.ask(who).then(({ status }) => order.push(`${who} ${status}`)))
    while (b.t.gateway.ingress.running.size === before && order.length === 0)
      await new Promise<void>(resolve => setImmediate(resolve))
  }
  for (let i = 0; i < 4; i++) await enqueue('acme')
  await enqueue('other')
  while (order.length === 0) await new Promise<void>(resolve => setImmediate(resolve))
  assert.deepEqual(order, ['acme 503'], 'its latest request gave its place')
  release()
  await running
  await Promise.all(waiting)
  assert.deepEqual(order, ['acme 503', 'acme 200', 'other 200', 'acme 200', 'acme 200'])
})

/** Before, 64 MiB were read, parsed, counted and encoded in one piece: seconds in which nobody else was served. */
test('a buffered reply beyond 4 MiB is a fault, and is neither parsed nor kept', async context => {
  const reply = (bytes: number) =>
    JSON.stringify({
      choices: [{ index: 0, message: { role: 'assistant', content: 'x '.repeat(bytes / 2) }, finish_reason: 'stop' }],
    })
  let bytes = 0
  const b = await bench(context, turn => turn.answer(200, reply(bytes)))
  bytes = 4 * 1024 * 1024 - 1024
  assert.equal((await b.ask('acme', true)).status, 200)
  bytes = 4 * 1024 * 1024
  const refused = await b.ask('acme', true)
  assert.deepEqual([refused.status, refused.code], [502, 'upstream_server_error'])
  assert.equal((await b.ask('other')).status, 200)
})
