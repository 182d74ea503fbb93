/** Limits, spend and model access, seen from outside. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ManualClock } from '../../core/tools/clock.ts'
import { engines } from '../stores/redis-server.ts'
import { KEY, sha256, startGateway, type TestGateway, type TestOptions } from './harness.ts'

async function using(options: TestOptions, run: (t: TestGateway) => Promise<void>): Promise<void> {
  const t = await startGateway(options)
  try {
    await run(t)
  } finally {
    await t.close()
  }
}

const ask = (text = 'x', more: object = {}) => ({
  model: 'eb1-preview',
  messages: [{ role: 'user', content: text }],
  ...more,
})
const chat = (t: TestGateway, body: object = ask(), headers?: Record<string, string>) =>
  t.post('/v1/chat/completions', body, headers)
const failure = async (response: Response) => {
  const { error } = (await response.json()) as any
  return { status: response.status, error, headers: response.headers }
}
const limitHeaders = (headers: Headers) => [...headers.keys()].filter(name => name.startsWith('x-ratelimit')).sort()

test('[LIM-5] concurrency: N run, the next is denied, a slot freed is a slot again', () =>
  using({ organization: '    limits: { concurrent_requests: 2 }' }, async t => {
    const slow = ask('[[sim: stall 3]] x', { stream: true })
    const gone = new AbortController()
    const running = await Promise.all(
      [0, 1].map(() =>
        fetch(`${t.url}/v1/chat/completions`, {
          method: 'POST',
          signal: gone.signal,
          headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
          body: JSON.stringify(slow),
        }),
      ),
    )
    assert.deepEqual(
      running.map(r => r.status),
      [200, 200],
    )
    const { status, error, headers } = await failure(await chat(t))
    assert.equal(status, 429)
    assert.equal(error.code, 'concurrency_limit_exceeded')
    assert.deepEqual(limitHeaders(headers), [
      'x-ratelimit-limit-concurrency',
      'x-ratelimit-remaining-concurrency',
      'x-ratelimit-scope',
    ])
    gone.abort()
    while (t.gateway.ingress.running.size > 0) await new Promise<void>(resolve => setImmediate(resolve))
    assert.equal((await chat(t)).status, 200)
  }))

test('[AUTH-4] a key narrows its organization, and both are held', () =>
  using(
    {
      yaml: undefined,
      organization: '    limits: { requests_per_minute: 100 }',
      extra: '',
      gateway: { clock: new ManualClock() },
    },
    async t => {
      const { readFile, writeFile } = await import('node:fs/promises')
      const yaml = await readFile(t.file, 'utf8')
      await writeFile(
        t.file,
        yaml.replace(
          'status: active }\n  other',
          'status: active, limits: { requests_per_minute: 2 }, models: [eb1-preview] }\n  other',
        ),
      )
      assert.deepEqual(await t.gateway.reload(), { applied: true, errors: [] })
      const { status, error } = await failure(await chat(t, { ...ask(), model: 'eb1-fast-preview' }))
      assert.equal(status, 403)
      assert.equal(error.code, 'model_not_available')
      assert.equal(error.type, 'permission_error')
      const statuses: number[] = []
      for (let i = 0; i < 3; i++) statuses.push((await chat(t)).status)
      assert.deepEqual(statuses, [200, 200, 429])
      const models = (await t.openai().models.list()).data.map(m => m.id)
      assert.deepEqual(models, ['eb1-preview'])
    },
  ))

test('[MOD-5] [AUTH-6] what the plan does not include', () =>
  using(
    {
      organization: '',
      extra: `plans:
  narrow: { models: [eb1-preview], streaming: false, limits: {} }`,
    },
    async t => {
      const { readFile, writeFile } = await import('node:fs/promises')
      const yaml = await readFile(t.file, 'utf8')
      await writeFile(t.file, yaml.replace('acme:\n    plan: custom', 'acme:\n    plan: narrow'))
      assert.equal((await t.gateway.reload()).applied, true)
      const model = await failure(await chat(t, { ...ask(), model: 'eb1-fast-preview' }))
      assert.equal(model.status, 403)
      assert.equal(model.error.code, 'model_not_available')
      const stream = await failure(await chat(t, ask('x', { stream: true })))
      assert.equal(stream.status, 403)
      assert.equal(stream.error.code, 'streaming_not_available')
      assert.equal((await chat(t)).status, 200)
    },
  ))

/** Who named no cap got replies of any length. */
test('[LIM-1] max_output_tokens holds a request that names no cap, on every dialect', async () => {
  await using({ organization: '    limits: { max_output_tokens: 50 }' }, async t => {
    for (const model of ['eb1-preview', 'eb1-efficient-preview', 'eb1-fast-preview', 'eb1-frontier-preview']) {
      for (const stream of [false, true]) {
        const text = '[[sim: tokens 500]] x'
        const bodies: [string, object][] = [
          ['/v1/chat/completions', { ...ask(text), model, stream }],
          ['/v1/responses', { model, input: text, stream }],
        ]
        for (const [path, body] of bodies) {
          const reply = await (await t.post(path, body)).text()
          assert.match(reply, /"length"|"max_output_tokens"/, `${model} ${path} ${stream}`)
        }
      }
    }
    const rows = await t.ledger()
    assert.equal(rows.length, 16)
    // The provider counts in tokens of its own.
    assert.ok(rows.every(row => row.output > 0 && row.output < 60))
  })
})

test('[LIM-4] [LIM-11] the free tier serves a request that names no cap: no more is reserved than a minute holds', () =>
  using({ organization: '    billing: free' }, async t => {
    const { readFile, writeFile } = await import('node:fs/promises')
    await writeFile(t.file, (await readFile(t.file, 'utf8')).replace('plan: custom', 'plan: free'))
    assert.equal((await t.gateway.reload()).applied, true)
    const response = await chat(t)
    assert.equal(response.status, 200, await response.clone().text())
    assert.equal(response.headers.get('x-ratelimit-limit-output-tokens'), '4000')
    const { status, error } = await failure(await chat(t, ask('x', { max_tokens: 4001 })))
    assert.equal(status, 400)
    assert.equal(error.code, 'request_exceeds_capacity')
  }))

test('[BILL-2] [MOD-4] a model without a price is refused before dispatch; a free organization is priced at zero on purpose', () =>
  using(
    {
      models:
        '  unpriced: { context_window: 1000, price: ~, backends: [{ provider: chat, model: m }] }\n  eb1-preview: { context_window: 1000, price: { input: 1, output: 1 }, backends: [{ provider: chat, model: m }] }',
    },
    async t => {
      const { status, error } = await failure(await chat(t, { ...ask(), model: 'unpriced' }))
      assert.equal(status, 404)
      assert.equal(error.code, 'model_not_found')
      assert.equal(t.simulator.requests.length, 0)
      const { readFile, writeFile } = await import('node:fs/promises')
      const yaml = await readFile(t.file, 'utf8')
      await writeFile(t.file, yaml.replace('acme:\n    plan: custom', 'acme:\n    plan: custom\n    billing: free'))
      assert.equal((await t.gateway.reload()).applied, true)
      assert.equal((await chat(t)).status, 200)
      const row = (await t.ledger()).at(-1)!
      assert.equal(row.billing, 'free')
      assert.equal(row.cost, 0)
      assert.ok(row.input > 0)
    },
  ))

test('[BILL-1] cost: uncached input, cached at a tenth, output, from the price book, to the nano-dollar', () =>
  using({}, async t => {
    const body = ask(`${'lorem ipsum '.repeat(50)} x`)
    for (let i = 0; i < 2; i++) await (await chat(t, body)).text()
    const rows = await t.ledger()
    for (const row of rows) {
      const expected = (row.input - row.cached) * 1250 + row.cached * 125 + row.output * 10_000
      assert.ok(Math.abs(row.cost - expected) <= 1, `${row.cost} ${expected}`)
    }
    assert.ok(rows[1]!.cached > 0, 'the second prompt came from the cache')
    assert.ok(rows[1]!.cost < rows[0]!.cost)
  }))

test('[BILL-3] what was cut is billed once output was delivered, else not', () =>
  using({}, async t => {
    const delivered = await chat(t, ask('[[sim: cut 6]] tell a story', { stream: true }))
    assert.match(await delivered.text(), /upstream_server_error/)
    const none = await chat(t, ask('[[sim: cut 0]] tell a story', { stream: true }))
    assert.equal(none.status, 502)
    const rows = await t.ledger()
    assert.deepEqual(
      rows.map(r => r.outcome),
      ['upstream_error', 'upstream_error'],
    )
    assert.ok(rows[0]!.cost > 0 && rows[0]!.input > 0 && rows[0]!.output > 0)
    assert.equal(rows[1]!.cost, 0)
    assert.equal(rows[1]!.input + rows[1]!.output, 0)
  }))

/**
 * Chat shows no reasoning: the client got an error frame and nothing else, and was billed for prompt and hidden
 * reasoning.
 */
test('[BILL-3] a stream that was cut while the model reasoned out of sight delivered nothing', () =>
  // A keep-alive brings the head of a reply that has shown nothing yet.
  using({ server: 'drain: 2s, keep_alive: 50ms' }, async t => {
    const reasons = { reasoning_effort: 'high', max_tokens: 5000, stream: true }
    const cut = await chat(t, ask('[[sim: reason 20; cut 8]] x', reasons))
    const frames = (await cut.text()).match(/^data: .*$/gm)!
    assert.equal(frames.length, 1)
    assert.match(frames[0]!, /upstream_server_error/)
    const stop = new AbortController()
    const left = await fetch(`${t.url}/v1/chat/completions`, {
      method: 'POST',
      signal: stop.signal,
      headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
      body: JSON.stringify(ask('[[sim: reason 20; stall 8]] x', reasons)),
    })
    assert.equal(left.status, 200)
    stop.abort()
    while (t.gateway.ingress.running.size > 0) await new Promise<void>(resolve => setImmediate(resolve))
    const rows = await t.ledger()
    assert.deepEqual(
      rows.map(row => [row.outcome, row.input, row.output, row.cost]),
      [
        ['upstream_error', 0, 0, 0],
        ['client_gone', 0, 0, 0],
      ],
    )
  }))

/**
 * Anthropic and Gemini say at the start how much of the prompt was cached; a reply that was cut was billed as if
 * nothing had been, up to ten times.
 */
test('[BILL-1] [BILL-3] [METER-5] a cut reply is billed with the cache figures its provider had given', () =>
  using(
    { extra: 'stream_limits: { medium: { idle: 1s, ceiling: 10m }, max: { idle: 1s, ceiling: 10m } }' },
    async t => {
      const body = (model: string, directive: string) => ({
        model,
        max_tokens: 1000,
        stream: true,
        messages: [
          {
            role: 'user',
            content: [{ type: 'text', text: 'lorem ipsum '.repeat(400), cache_control: { type: 'ephemeral' } }],
          },
          { role: 'assistant', content: 'yes' },
          { role: 'user', content: `[[sim: tokens 50; ${directive}]] x` },
        ],
      })
      for (const model of ['eb1-fast-preview', 'eb1-frontier-preview']) {
        await (await t.post('/v1/messages', body(model, ''))).text()
        for (const directive of ['cut 9', 'stall 9'])
          await (await t.post('/v1/messages', body(model, directive))).text()
        const left = await t.post('/v1/messages', body(model, 'stall 9'))
        const reader = left.body!.getReader()
        for (let text = ''; !text.includes('text_delta'); )
          text += new TextDecoder().decode((await reader.read()).value)
        await reader.cancel()
        while (t.gateway.ingress.running.size > 0) await new Promise<void>(resolve => setImmediate(resolve))
        const rows = (await t.ledger()).slice(-3)
        assert.deepEqual(
          rows.map(row => row.outcome),
          ['upstream_error', 'incomplete', 'client_gone'],
        )
        for (const row of rows) assert.ok(row.cached > 0.9 * row.input, `${model} ${row.outcome} ${row.cached}`)
      }
    },
  ))

test('[LIM-10] under platform load limits compress with scope platform; at the top capacity_exceeded without limit headers', () =>
  using(
    {
      organization: '    limits: { requests_per_minute: 100 }',
      extra: 'platform: { max_concurrent_requests: 4, scale_limits_above: 0.5 }',
    },
    async t => {
      const gone = new AbortController()
      const hold = () =>
        fetch(`${t.url}/v1/chat/completions`, {
          method: 'POST',
          signal: gone.signal,
          headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
          body: JSON.stringify(ask('[[sim: stall 3]] x', { stream: true })),
        })
      const held = []
      for (let i = 0; i < 4; i++) held.push(await hold())
      assert.equal(held[1]!.headers.get('x-ratelimit-limit-requests'), '100')
      assert.equal(held[3]!.headers.get('x-ratelimit-scope'), 'platform')
      assert.ok(Number(held[3]!.headers.get('x-ratelimit-limit-requests')) < 100)
      const { status, error, headers } = await failure(await chat(t))
      assert.equal(status, 429)
      assert.equal(error.code, 'capacity_exceeded')
      assert.deepEqual(limitHeaders(headers), [])
      assert.ok(headers.get('retry-after'))
      // It is refused before its body is read. The reply to an idempotency key may be there already, so that is parsed.
      const noJson = async (also = {}) => failure(await t.post('/v1/chat/completions', 'no json', also))
      assert.equal((await noJson()).error.code, 'capacity_exceeded')
      assert.equal((await noJson({ 'idempotency-key': 'k' })).error.code, 'invalid_json')
      gone.abort()
    },
  ))

/** A tenth of nothing was rounded up to one. */
test('[LIM-10] a limit of 0 admits nothing under platform load either', () =>
  using(
    {
      organization: '    limits: { requests_per_minute: 0 }',
      extra: 'platform: { max_concurrent_requests: 4, scale_limits_above: 0.1 }',
    },
    async t => {
      const gone = new AbortController()
      const held = await fetch(`${t.url}/v1/chat/completions`, {
        method: 'POST',
        signal: gone.signal,
        headers: { authorization: 'Bearer sk-other-0001-secret', 'content-type': 'application/json' },
        body: JSON.stringify(ask('[[sim: stall 3]] x', { stream: true })),
      })
      assert.equal(held.status, 200)
      const { status, error } = await failure(await chat(t))
      gone.abort()
      assert.equal(status, 429)
      assert.equal(error.code, 'requests_limit_exceeded')
    },
  ))

test('[LIM-11] the self-serve tiers are ready plans', () =>
  using({}, async t => {
    const tiers: [string, number, number, number, number][] = [
      ['free', 5, 20_000, 4_000, 1],
      ['tier1', 60, 100_000, 30_000, 5],
      ['tier2', 120, 200_000, 60_000, 10],
      ['tier3', 240, 300_000, 120_000, 20],
      ['tier4', 500, 400_000, 250_000, 50],
      ['tier5', 1000, 400_000, 400_000, 100],
    ]
    for (const [name, rpm, tpm, otpm, concurrent] of tiers) {
      const { limits } = t.gateway.config.plans[name]!
      assert.deepEqual(
        [
          limits.requests_per_minute,
          limits.tokens_per_minute,
          limits.input_tokens_per_minute,
          limits.output_tokens_per_minute,
          limits.concurrent_requests,
        ],
        [rpm, tpm, tpm, otpm, concurrent],
        name,
      )
    }
    for (const name of ['beta', 'benchmark', 'custom']) assert.ok(t.gateway.config.plans[name])
  }))

test('[ERR-3] [ERR-4] [ERR-5] the three places agree, never shorter than computed, at most a quarter longer', async () => {
  for (const random of [0, 0.5, 0.999999]) {
    await using(
      {
        organization: '    limits: { requests_per_minute: 6 }',
        gateway: { clock: new ManualClock(), random: () => random },
      },
      async t => {
        for (let i = 0; i < 6; i++) await (await chat(t)).text()
        const { error, headers } = await failure(await chat(t))
        const ms = Number(headers.get('retry-after-ms'))
        assert.ok(ms >= 10_000 && ms <= 12_500, String(ms))
        assert.equal(Number(headers.get('retry-after')), Math.ceil(ms / 1000))
        assert.ok(Math.abs(error.details.retry_after_seconds * 1000 - ms) < 1e-6)
        assert.equal(headers.get('x-should-retry'), null)
        assert.equal(error.retryable, true)
      },
    )
  }
})

test('[MOD-2] the windows of the four public models', () =>
  using({}, async t => {
    const list = (await (
      await fetch(`${t.url}/v1/models`, { headers: { authorization: `Bearer ${KEY}` } })
    ).json()) as any
    const windows = Object.fromEntries(list.data.map((m: any) => [m.id, [m.context_window, m.max_input_tokens]]))
    assert.deepEqual(windows, {
      'eb1-preview': [400_000, 400_000],
      'eb1-efficient-preview': [400_000, 400_000],
      'eb1-fast-preview': [400_000, 400_000],
      'eb1-frontier-preview': [869_811, 869_811],
    })
  }))

test('[AUTH-3] [AUTH-5] keys: staged works beside active, revoked does not, without a restart; no secret is logged', () =>
  using({}, async t => {
    const { readFile, writeFile } = await import('node:fs/promises')
    const yaml = await readFile(t.file, 'utf8')
    const staged = `      - { id: key_next, sha256: "${sha256('sk-next-0001-secret')}", status: staged }\n  other`
    await writeFile(
      t.file,
      yaml.replace(
        '  other',
        staged
          .trimStart()
          .replace(/^- /, '    - ')
          .replace(/^ {4}- /, '      - '),
      ),
    )
    assert.deepEqual((await t.gateway.reload()).errors, [])
    const next = { authorization: 'Bearer sk-next-0001-secret' }
    assert.equal((await chat(t, ask(), next)).status, 200)
    assert.equal((await chat(t)).status, 200)
    await writeFile(
      t.file,
      (await readFile(t.file, 'utf8'))
        .replace(`"${sha256(KEY)}", status: active`, `"${sha256(KEY)}", status: revoked`)
        .replace('status: staged', 'status: active'),
    )
    assert.deepEqual((await t.gateway.reload()).errors, [])
    assert.equal((await chat(t, ask(), next)).status, 200)
    assert.equal((await chat(t)).status, 401)
    assert.doesNotMatch(JSON.stringify(t.log), /sk-(next|test)/)
  }))

for (const [name, skip, newUrl] of engines()) {
  // Only admitted requests told their limits, with their own reservation still in them; a replay told those of a day
  // before.
  test(`[LIM-9] [IDEM-1] ${name}: what the head of each reply tells of the limits`, { skip }, async () => {
    const organization = '    limits: { requests_per_minute: 9, tokens_per_day: 90000, concurrent_requests: 5 }'
    const clock = new ManualClock()
    await using({ organization, store: `{ url: "${newUrl()}", timeout: 10s }`, gateway: { clock } }, async t => {
      const models = () => fetch(`${t.url}/v1/models`, { headers: { authorization: `Bearer ${KEY}` } })
      assert.deepEqual(limitHeaders((await models()).headers), [], 'nothing was seen yet')

      const first = await chat(t, ask('x', { max_tokens: 1000 }), { 'idempotency-key': 'a' })
      const { usage } = (await first.json()) as any
      const told = Object.fromEntries(
        limitHeaders(first.headers).map(header => [header.slice(12), first.headers.get(header)]),
      )
      assert.deepEqual(told, {
        'limit-requests': '9',
        'remaining-requests': '8',
        'reset-requests': '7s',
        'limit-tokens-day': '90000',
        'remaining-tokens-day': String(90_000 - usage.total_tokens),
        'reset-tokens-day': `${Math.ceil((usage.total_tokens * 86_400) / 90_000)}s`,
        'limit-concurrency': '5',
        'remaining-concurrency': '5',
        scope: 'org',
      })

      const count = { model: 'eb1-preview', messages: [{ role: 'user', content: 'x' }] }
      const others: [number, () => Promise<Response>][] = [
        [200, models],
        [200, () => t.post('/v1/messages/count_tokens', count)],
        [400, () => chat(t, ask('x', { max_tokens: 'many' }))],
        [404, () => chat(t, { ...ask(), model: 'none' })],
        [409, () => chat(t, ask('other'), { 'idempotency-key': 'a' })],
        [200, () => chat(t, ask('x', { max_tokens: 1000 }), { 'idempotency-key': 'a' })],
      ]
      for (const [status, send] of others) {
        const reply = await send()
        assert.equal(reply.status, status)
        for (const [header, value] of Object.entries(told))
          assert.equal(reply.headers.get(`x-ratelimit-${header}`), value, `${status} ${header}`)
      }
      const stranger = { authorization: 'Bearer sk-other-0001-secret' }
      assert.deepEqual(limitHeaders((await chat(t, ask('x', { max_tokens: 'many' }), stranger)).headers), [])
      clock.advance(1001)
      for (const [, send] of others) assert.deepEqual(limitHeaders((await send()).headers), [], 'it is too old')
    })
  })

  test(`[ERR-5] [ERR-10] ${name}: official SDKs send neither what can never pass again, nor what passes tomorrow`, {
    skip,
  }, async () => {
    const organization = '    limits: { input_tokens_per_day: 100, requests_per_day: 1 }'
    await using({ organization, store: `{ url: "${newUrl()}", timeout: 10s }` }, async t => {
      for (const [text, retryable, later] of [
        ['word '.repeat(200), false, undefined],
        ['x', true, 'later'],
      ] as const) {
        if (retryable) assert.equal((await chat(t)).status, 200)
        for (const send of [
          (counted: typeof fetch) =>
            t.openai({ maxRetries: 3, fetch: counted }).chat.completions.create(ask(text) as any),
          (counted: typeof fetch) =>
            t.anthropic({ maxRetries: 3, fetch: counted }).messages.create({ ...ask(text), max_tokens: 5 } as any),
        ]) {
          let sent = 0
          const error: any = await send((url, init) => {
            sent++
            return fetch(url, init)
          }).then(
            () => assert.fail('no error'),
            e => e,
          )
          const told = error.error.error ?? error.error
          assert.deepEqual([error.status, sent], [429, 1])
          assert.deepEqual([told.retryable, told.details.retry], [retryable, later])
          assert.equal(error.headers.has('retry-after'), retryable)
        }
      }
    })
  })
}

test('[CNT-1] [ERR-9] the refusal of a count says that it is the bucket of counts', () =>
  using({ organization: '    limits: { requests_per_minute: 1 }', gateway: { clock: new ManualClock() } }, async t => {
    const count = () => t.post('/v1/messages/count_tokens', ask())
    assert.equal((await count()).status, 200)
    const { error } = await failure(await count())
    assert.match(
      error.message,
      /^The limit of 1 counts of tokens, quotes, warm-ups, looks at usage, limits and receipts, and streams read again per minute of this organization is reached/,
    )
    assert.equal((await chat(t)).status, 200)
  }))
