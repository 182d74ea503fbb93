/** Why a backend was not asked: `sluice trace` and the dashboard answer it without a log. */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { inWords } from '../../cli/trace.ts'
import type { PassedOver } from '../../core/plugin.ts'
import { behave, type Script, startFakeUpstream } from '../fake-upstream/server.ts'
import { read, TableClock } from '../faults/table.ts'
import { startGateway } from './harness.ts'

/** A model with one backend for each script, in their order. */
async function bench(context: TestContext, ...scripts: Script[]) {
  const servers = await Promise.all(scripts.map(() => startFakeUpstream()))
  for (const [i, server] of servers.entries()) server.script = scripts[i]!
  const clock = new TableClock()
  const t = await startGateway({
    providers: servers.map(({ url }, i) => `  p${i}: { dialect: openai-chat, base_url: "${url}" }`).join('\n'),
    models: `  eb1-preview: { context_window: 400000, price: { input: 1, output: 1 }, backends: [${servers.map((_, i) => `{ provider: p${i}, model: m, group: "${i}" }`).join(', ')}] }`,
    plugins: { upstream: '{ attempts: 1 }' },
    gateway: { clock, random: () => 0.5 },
  })
  context.after(async () => {
    await t.close()
    for (const server of servers) await server.close()
  })
  return {
    ...{ t, clock, servers },
    async ask() {
      const body = { model: 'eb1-preview', max_tokens: 100, messages: [{ role: 'user', content: 'hello' }] }
      const response = await t.post('/v1/chat/completions', body)
      const { status, text } = await read(response)
      const id = response.headers.get('x-request-id')!
      return { status, id, code: status === 200 ? undefined : JSON.parse(text).error.code }
    },
    async traced(id: string) {
      const response = await fetch(`${t.gateway.adminAddress}/trace?id=${id}`)
      const memory = (await response.json()) as any
      const line = t.log.find(({ fields, message }) => message === 'exchange' && fields.request_id === id)!
      const words = inWords({ request_id: id, log: [], ledger: null, memory, missing: {} })
      const fromLog = inWords({
        request_id: id,
        log: [{ msg: 'exchange', ...JSON.parse(JSON.stringify(line.fields)) }],
        ledger: null,
        memory: null,
        missing: {},
      })
      return { passedOver: memory.passedOver as PassedOver[], words: oneLine(words), fromLog: oneLine(fromLog) }
    },
  }
}
const oneLine = (text: string) => text.replaceAll(/\s+/g, ' ')
const fails: Script = turn => turn.answer(500, '{}')
const hasNoCapacity: Script = turn => turn.answer(429, '{}', { 'retry-after': '7' })

test('a pause: which backend, for whom, until when, and by the answer to which request', async context => {
  const b = await bench(context, hasNoCapacity)
  const first = await b.ask()
  assert.equal(first.status, 429)
  assert.deepEqual((await b.traced(first.id)).passedOver, [], 'it was asked')
  const second = await b.ask()
  assert.equal(second.status, 429)
  const { passedOver, words, fromLog } = await b.traced(second.id)
  const [over] = passedOver
  assert.deepEqual(
    { ...over, since: 0, until: 0 },
    {
      ...{ backend: 'p0/m', why: 'pause', scope: 'organization', code: 'capacity_exceeded', how: 'status 429' },
      ...{ requestId: first.id, since: 0, until: 0 },
    },
  )
  assert.ok(over!.until - over!.since > 6900 && over!.until - over!.since <= 7000, JSON.stringify(over))
  const said = `p0/m was not asked: paused for this organization until ${utc(over!.until)}, since it answered ${first.id} with capacity_exceeded (status 429) at ${utc(over!.since)}`
  for (const text of [words, fromLog]) assert.ok(text.includes(said), `${text}\n${said}`)
})

test('an open breaker: the request whose failure opened it; a backend that serves in its place', async context => {
  const b = await bench(context, fails, behave)
  const ids: string[] = []
  let served: Awaited<ReturnType<typeof b.ask>>
  do {
    served = await b.ask()
    ids.push(served.id)
    assert.ok(ids.length < 30)
  } while (served.status !== 200)
  const { passedOver, words } = await b.traced(served.id)
  assert.equal(passedOver.length, 1)
  assert.deepEqual(
    [passedOver[0]!.backend, passedOver[0]!.why, passedOver[0]!.code, passedOver[0]!.requestId],
    ['p0/m', 'failures', 'upstream_server_error', ids.at(-2)],
  )
  assert.match(
    words,
    /p0\/m was not asked: left out for .* and others before it failed with upstream_server_error \(status 500\) at/,
  )
  assert.match(words, /p1\/m answered/)
})

test('a request that met no such backend has none, and nothing in the log', async context => {
  const b = await bench(context, behave)
  const { status, id } = await b.ask()
  assert.equal(status, 200)
  const { passedOver, words } = await b.traced(id)
  assert.deepEqual(passedOver, [])
  assert.doesNotMatch(words, /not asked/)
  const line = b.t.log.find(({ fields, message }) => message === 'exchange' && fields.request_id === id)!
  assert.equal(line.fields.passed_over, undefined)
})

test('what to do next does not say to run the command that says it', async context => {
  const b = await bench(context, fails)
  const { id, code } = await b.ask()
  assert.equal(code, 'upstream_server_error')
  const { words } = await b.traced(id)
  assert.match(words, /next Retry where `retryable` is true\./)
  assert.doesNotMatch(words, /npx sluice trace/)
})

const utc = (time: number) => `${new Date(time).toISOString().slice(11, 21)}Z`
