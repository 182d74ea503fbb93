/** The plugin `mirror`: a second backend gets copies, and the client, the bill, limits and breakers know nothing of it. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, beforeEach, describe, test } from 'node:test'
import { eventually } from '../eventually.ts'
import { startFakeUpstream, type Turn } from '../fake-upstream/server.ts'
import { TableClock } from '../faults/table.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

type Asked = { model: string; stream?: boolean; messages: { content: unknown }[] }

const reply = (model: string, text: string) => ({
  id: 'c',
  object: 'chat.completion',
  model,
  choices: [{ index: 0, message: { role: 'assistant', content: text }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 11, completion_tokens: 22, total_tokens: 33 },
})

/** What each backend was asked, and how the mirrored one answers. */
const asked: Asked[] = []
const heads: Turn['request']['headers'][] = []
let mirrored: (turn: Turn) => unknown
const upstream = await startFakeUpstream(async turn => {
  const body = JSON.parse(turn.request.body) as Asked
  asked.push(body)
  heads.push(turn.request.headers)
  if (body.model === 'next') return void (await mirrored(turn))
  if (!body.stream) return void (await turn.answer(200, reply('now', 'hello')))
  await turn.head(200, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked' })
  const chunk = (delta: object, finish: string | null) =>
    turn.chunk(`data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`)
  await chunk({ role: 'assistant', content: 'hello' }, null)
  await chunk({}, 'stop')
  await turn.chunk('data: [DONE]\n\n')
  await turn.end()
})
after(() => upstream.close())
beforeEach(() => {
  asked.length = heads.length = 0
  mirrored = turn => turn.answer(200, reply('next', 'a copy, mirrored'))
})

const MODEL =
  '  eb1-preview: { context_window: 100000, price: { input: 1, output: 2 }, backends: [{ provider: a, model: next }, { provider: a, model: now }] }'
const gateway = (options: string, more: object = {}, model = MODEL) =>
  startGateway({
    yaml: url =>
      defaultYaml(url, {
        providers: `  a: { dialect: openai-chat, base_url: "${upstream.url}", api_key: k }`,
        models: model,
      }).replace('routing, admission', `routing, { mirror: { backend: a/next, ${options} } }, admission`),
    ...more,
  })
const ask = (t: TestGateway, more: object = {}) =>
  t.post('/v1/chat/completions', { model: 'eb1-preview', messages: [{ role: 'user', content: 'hi' }], ...more })
const lines = (t: TestGateway) => t.log.filter(({ message }) => message === 'mirror').map(({ fields }) => fields as any)

describe('a copy', () => {
  for (const stream of [false, true])
    test(`of a ${stream ? 'streamed' : 'buffered'} request: the client sees the other backend’s reply alone`, async () => {
      const t = await gateway('share: 1')
      try {
        const text = await (await ask(t, { stream })).text()
        assert.match(text, /hello/)
        assert.doesNotMatch(text, /mirrored/)
        await eventually(() => lines(t).length === 1)
        const { request_id: _, backend, finish, ms, first_ms, input_tokens, output_tokens, skipped, code } = lines(t)[0]
        assert.deepEqual(
          { backend, finish, code, input_tokens, output_tokens, skipped },
          { backend: 'a/next', finish: 'stop', code: undefined, input_tokens: 11, output_tokens: 22, skipped: 0 },
        )
        assert.ok(first_ms >= 0 && ms >= first_ms)
        assert.deepEqual(asked.map(({ model }) => model).sort(), ['next', 'now'])
        const [row, ...others] = await t.ledger()
        assert.equal(others.length, 0)
        assert.deepEqual([row!.provider_model, row!.rounds ?? 1], ['now', 1])
      } finally {
        await t.close()
      }
    })

  test('runs on when the client has its reply, and is not in its way', async () => {
    const t = await gateway('share: 1')
    let release = () => {}
    const held = new Promise<void>(resolve => {
      release = resolve
    })
    mirrored = async turn => {
      await held
      return turn.answer(200, reply('next', 'late'))
    }
    try {
      assert.equal((await ask(t)).status, 200)
      assert.equal((await t.ledger()).length, 1)
      assert.equal(lines(t).length, 0)
      release()
      await eventually(() => lines(t).length === 1)
      assert.equal(lines(t)[0].finish, 'stop')
    } finally {
      release()
      await t.close()
    }
  })

  test('that fails is a line of the log: no client, no breaker and no bill knows of it', async () => {
    const t = await gateway('share: 1')
    mirrored = turn => turn.answer(500, { error: { message: 'broken' } })
    try {
      for (let i = 1; i <= 12; i++) {
        const response = await ask(t)
        assert.equal(response.status, 200)
        assert.equal(response.headers.get('x-adjusted'), null)
        await eventually(() => lines(t).length === i)
      }
      assert.deepEqual([...new Set(lines(t).map(({ code }) => code))], ['upstream_server_error'])
      // A breaker that is open would have kept copies out, and failed attempts would be in the log of the exchange.
      assert.equal(asked.filter(({ model }) => model === 'next').length, 12)
      for (const { message, fields } of t.log)
        if (message === 'exchange') assert.equal((fields as any).attempts, undefined)
      for (const row of await t.ledger()) assert.deepEqual([row.outcome, row.code ?? ''], ['completed', ''])
    } finally {
      await t.close()
    }
  })

  test('that hangs ends by its clocks', async () => {
    const clock = new TableClock()
    const t = await gateway('share: 1', { gateway: { clock } })
    let hung = () => {}
    const begun = new Promise<void>(resolve => {
      hung = resolve
    })
    mirrored = turn => {
      hung()
      return once(turn.socket, 'close')
    }
    try {
      assert.equal((await ask(t)).status, 200)
      await begun
      await eventually(() => {
        clock.advance(60_000)
        return lines(t).length === 1
      })
      assert.match(lines(t)[0].code, /timeout/)
    } finally {
      await t.close()
    }
  })
})

test('copies that run when the gateway stops are ended', async () => {
  const t = await gateway('share: 1')
  const ended = new Promise<void>(resolve => {
    mirrored = async turn => {
      await once(turn.socket, 'close')
      resolve()
    }
  })
  assert.equal((await ask(t)).status, 200)
  await eventually(() => asked.some(({ model }) => model === 'next'))
  await t.close()
  await ended
})

describe('bounds', () => {
  test('at_once: requests above it are served and not copied, and the next line says how many', async () => {
    const t = await gateway('share: 1, at_once: 2')
    const open: (() => void)[] = []
    mirrored = async turn => {
      await new Promise<void>(resolve => open.push(resolve))
      return turn.answer(200, reply('next', 'x'))
    }
    try {
      for (let i = 0; i < 5; i++) assert.equal((await ask(t)).status, 200)
      await eventually(() => open.length === 2)
      for (const release of open) release()
      await eventually(() => lines(t).length === 2)
      assert.deepEqual(
        lines(t).map(({ skipped }) => skipped),
        [3, 0],
      )
    } finally {
      for (const release of open) release()
      await t.close()
    }
  })

  test('max_bytes: a request that is larger is served and not copied', async () => {
    const t = await gateway('share: 1, max_bytes: 2KiB')
    try {
      assert.equal((await ask(t, { messages: [{ role: 'user', content: 'x'.repeat(4000) }] })).status, 200)
      await eventually(() => lines(t).length === 1)
      assert.equal(lines(t)[0].code, 'route_capacity')
      assert.deepEqual(
        asked.map(({ model }) => model),
        ['now'],
      )
      // What was refused holds nothing.
      for (let i = 2; i < 8; i++) {
        assert.equal((await ask(t)).status, 200)
        await eventually(() => lines(t).length === i)
        assert.equal(lines(t).at(-1).finish, 'stop')
      }
    } finally {
      await t.close()
    }
  })
})

test('the share, and the organizations that are named; the backend serves clients only where nothing else can', async () => {
  const none = await gateway('share: 0')
  const others = await gateway('share: 1, organizations: [somebody]')
  const alone = await gateway(
    'share: 1',
    {},
    '  eb1-preview: { context_window: 100000, price: { input: 1, output: 2 }, backends: [{ provider: a, model: next }] }',
  )
  try {
    for (const t of [none, others]) assert.match(await (await ask(t)).text(), /"hello"/)
    assert.deepEqual(
      asked.map(({ model }) => model),
      ['now', 'now'],
    )
    assert.match(await (await ask(alone)).text(), /a copy, mirrored/)
    assert.equal(asked.length, 3)
    assert.deepEqual([lines(none), lines(others), lines(alone)], [[], [], []])
  } finally {
    for (const t of [none, others, alone]) await t.close()
  }
})
