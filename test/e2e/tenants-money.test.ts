/**
 * What a tenant can do to its bill and to its limits: leave early, leave the output cap out, cut a reply in which
 * nothing was shown. Bills follow delivery (BILL-3), spend limits follow the bill, and all others follow consumption
 * (decisions 49, 78).
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { cellsFor } from '../../plugins/admission/cells.ts'
import { eventually } from '../eventually.ts'
import { engines } from '../stores/redis-server.ts'
import { KEY, startGateway, stillClock, type TestGateway, type TestOptions } from './harness.ts'

async function using(options: TestOptions, run: (t: TestGateway) => Promise<void>): Promise<void> {
  const t = await startGateway(options)
  try {
    await run(t)
  } finally {
    await t.close()
  }
}

const limits = (text: string) => `    limits: { ${text} }`
const codeOf = async (response: Response): Promise<string> => ((await response.json()) as any).error.code

/**
 * Posts a request and disconnects as soon as `enough` of the reply's text has come; `''` is enough: the request is
 * upstream.
 */
async function leave(t: TestGateway, path: string, body: object, enough = ''): Promise<string> {
  const before = t.simulator.requests.length
  const gone = new AbortController()
  let text = ''
  const reply = fetch(`${t.url}${path}`, {
    method: 'POST',
    signal: gone.signal,
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
    .then(async response => {
      for await (const chunk of response.body!) text += Buffer.from(chunk).toString('utf8')
    })
    .catch(error => assert.equal(error.name, 'AbortError'))
  await eventually(() => t.simulator.requests.length > before && text.includes(enough))
  gone.abort()
  await reply
  await eventually(() => t.gateway.ingress.running.size === 0)
  return text
}

/** Thousand tokens, and a directive for the simulator. */
const prompt = (directive: string) => `${'word '.repeat(1000)}[[sim: ${directive}]] x`
const chat = (text: string, more: object = {}) => ({
  model: 'eb1-preview',
  messages: [{ role: 'user', content: text }],
  stream: true,
  ...more,
})

/**
 * A client that left before the first byte got its whole reservation back: with 150,000 tokens a day, 30 prompts of
 * 100,000 tokens went upstream. All requests below would be admitted.
 */
for (const [name, cap] of [
  ['tokens_per_day', 'tokens_per_day: 2600'],
  ['input_tokens_per_day', 'input_tokens_per_day: 2600'],
  // Each prompt costs 0.00126 USD, so one leaves room, and two do not.
  ['unbilled_usd_per_day', 'unbilled_usd_per_day: 0.0020'],
] as const) {
  for (const directive of ['delay 60s', 'stall 0'])
    test(`[LIM-4] ${name}: a prompt whose client leaves before the first output is consumed, and not billed (${directive})`, () =>
      using({ organization: limits(cap) }, async t => {
        const body = chat(prompt(directive), { max_tokens: 100 })
        await leave(t, '/v1/chat/completions', body)
        await leave(t, '/v1/chat/completions', body)
        const third = await t.post('/v1/chat/completions', body)
        assert.equal(third.status, 429)
        assert.equal(t.simulator.requests.length, 2)
        const rows = await t.ledger()
        assert.deepEqual(
          rows.map(row => [row.outcome, row.cost, row.input, row.output]),
          [
            ['client_gone', 0, 0, 0],
            ['client_gone', 0, 0, 0],
          ],
        )
      }))
}

// ---- spend is the bill ------------------------------------------------------------------------------------------------

/** What is left unbilled refills, so its tests have a clock that stands still. */
const still = stillClock()

/** How much of the organization's cells of these ids is used, in their own unit. */
async function used(t: TestGateway, ...ids: string[]): Promise<number[]> {
  const acme = t.gateway.config.organizations['acme']!
  const { cells } = cellsFor(acme, acme.keys[0]!, null)
  const found = ids.map(id => ({ ...cells.find(cell => cell.id === id)!, capacity: Number.MAX_SAFE_INTEGER }))
  const states = await t.gateway.store.limits.peek('acme', found, still.now())
  return states.map(({ remaining }) => Number.MAX_SAFE_INTEGER - remaining)
}

/**
 * Spend limits settled on consumption: with a cap of 1 USD a month, four replies that the provider broke off, and that
 * nobody was billed for, used up 0.80 USD, and the next ordinary request was refused until the next month.
 */
test('[LIM-4] what a provider broke off is in no limit of money, and in every other one', () =>
  using(
    {
      organization: limits('monthly_spend_usd: 1.00, unbilled_usd_per_day: 1.00, tokens_per_day: 1000000'),
      gateway: { clock: still },
    },
    async t => {
      for (let i = 0; i < 4; i++) {
        const broken = await t.post(
          '/v1/chat/completions',
          chat(prompt(`tokens 300; cut ${i * 40}`), { stream: false }),
        )
        assert.ok(broken.status >= 500, String(broken.status))
        await broken.text()
      }
      assert.equal(
        (await t.ledger()).reduce((sum, row) => sum + row.cost, 0),
        0,
      )
      const [spent, unbilled, tokens] = await used(t, 'o:month', 'o:ubpd', 'o:tpd')
      assert.deepEqual([spent, unbilled], [0, 0])
      assert.ok(tokens! > 2000, `${tokens} tokens are consumed`)
    },
  ))

/** One limit would refuse a customer for what it was never billed; no limit would give the prompts of leavers away. */
test('[LIM-8] what a client leaves unbilled has a limit of its own: a tenth of the daily spend limit', () =>
  using({ organization: limits('daily_spend_usd: 0.05'), gateway: { clock: still } }, async t => {
    const body = chat(prompt('delay 60s'), { max_tokens: 100 })
    // Four prompts of 0.00126 USD are above 0.005. Each may begin while something of it is left.
    for (let i = 0; i < 4; i++) await leave(t, '/v1/chat/completions', body)
    const refused = await t.post('/v1/chat/completions', chat('x', { max_tokens: 1 }))
    assert.equal(refused.status, 429)
    const { error } = (await refused.json()) as any
    assert.equal(error.code, 'rate_limit_exceeded')
    assert.match(error.message, /^A limit of this account is used up until [-\d]+ \d\d:\d\d UTC\. Retry then, or raise/)
    assert.equal(error.details?.limit, undefined)
    const named = [...refused.headers.keys()].filter(name => name.startsWith('x-ratelimit'))
    assert.deepEqual(named, ['x-ratelimit-scope'])
    assert.ok(Number(refused.headers.get('retry-after')) >= 1)
    const [spent, unbilled] = await used(t, 'o:day', 'o:ubpd')
    assert.equal(spent, 0)
    assert.ok(unbilled! > 0.005e9 && unbilled! < 0.0053e9, `${unbilled} nano-USD`)
  }))

/** The client had a part, which it is billed for. The rest was made all the same. */
test('[LIM-4] of a reply that its client left in the middle, the bill has what was delivered, and the rest is unbilled', () => {
  const models =
    '  eb1-preview: { context_window: 400000, on_client_gone: drain, price: { input: 1.25, output: 10.00 }, backends: [{ provider: chat, model: sim-large }] }'
  return using({ models, organization: limits('daily_spend_usd: 1.00'), gateway: { clock: still } }, async t => {
    await leave(t, '/v1/chat/completions', chat('[[sim: tokens 500; pace 5ms]] x', { max_tokens: 1000 }), '"content":"')
    const [row] = await t.ledger()
    const [spent, unbilled] = await used(t, 'o:day', 'o:ubpd')
    assert.ok(row!.cost > 0)
    assert.equal(spent, row!.cost)
    const whole = row!.cost + unbilled!
    assert.ok(whole > 450 * 10_000 && whole < 560 * 10_000, `${row!.cost} and ${unbilled} nano-USD`)
  })
})

/** A reservation of what may be lost would let one request run at a time. */
test('[LIM-3] a limit of 0.00 on what is left unbilled refuses nobody who stays, and closes with the first who leaves', () =>
  using(
    { organization: limits('monthly_spend_usd: 10.00, unbilled_usd_per_day: 0.00'), gateway: { clock: still } },
    async t => {
      const replies = await Promise.all(
        Array.from({ length: 20 }, () => t.post('/v1/chat/completions', chat('x', { max_tokens: 5 }))),
      )
      assert.deepEqual(new Set(replies.map(({ status }) => status)), new Set([200]))
      await Promise.all(replies.map(reply => reply.text()))
      await leave(t, '/v1/chat/completions', chat(prompt('delay 60s'), { max_tokens: 100 }))
      assert.equal((await t.post('/v1/chat/completions', chat('x', { max_tokens: 5 }))).status, 429)
    },
  ))

/** Whatever becomes of replies, the level of a spend limit is the sum of the bills. */
const ENDS = ['completed', 'length', 'cut before output', 'cut after output', 'left before', 'left after', 'status 500']
async function end(t: TestGateway, how: string): Promise<void> {
  const ask = async (text: string, more: object = {}) => {
    await (await t.post('/v1/chat/completions', chat(text, { max_tokens: 50, ...more }))).text().catch(() => {})
  }
  switch (how) {
    case 'completed':
      return ask('[[sim: tokens 20]] x')
    case 'length':
      return ask('[[sim: tokens 200]] x')
    case 'cut before output':
      return ask('[[sim: cut 0]] x')
    case 'cut after output':
      return ask('[[sim: tokens 20; cut 8]] x')
    case 'left before':
      return void (await leave(t, '/v1/chat/completions', chat('[[sim: delay 60s]] x', { max_tokens: 50 })))
    case 'left after': {
      const body = chat('[[sim: tokens 20; stall 8]] x', { max_tokens: 50 })
      return void (await leave(t, '/v1/chat/completions', body, '"content":"'))
    }
    default:
      return ask('[[sim: status 500]] x')
  }
}
for (const [engine, skip, newUrl] of engines())
  test(`[LIM-4] the level of spend is the sum of the bills, whatever becomes of replies (${engine})`, {
    skip,
  }, async () => {
    const organization = limits('daily_spend_usd: 100.00, monthly_spend_usd: 900.00')
    // Faults must not open the breaker: then later requests would not go upstream.
    const upstream = '{ attempts: 1, breaker: { failures: 100000, error_rate: 1, window: 1ms, open_for: 1ms } }'
    const store = `{ url: "${newUrl()}", timeout: 10s }`
    await using({ organization, store, plugins: { upstream } }, async t => {
      await fc.assert(
        fc.asyncProperty(fc.array(fc.constantFrom(...ENDS), { minLength: 1, maxLength: 6 }), async ends => {
          for (const how of ends) await end(t, how)
          const bill = (await t.ledger()).reduce((sum, row) => sum + row.cost, 0)
          await eventually(async () => {
            const [day, month] = await used(t, 'o:day', 'o:month')
            return day === bill && month === bill
          })
        }),
        { numRuns: 4 },
      )
      const outcomes = new Set((await t.ledger()).map(({ outcome }) => outcome))
      assert.ok(outcomes.size > 1, [...outcomes].join())
    })
  })

/**
 * Limits charge for a prompt that a backend has. One that it refused, or that never reached it, is not such a prompt:
 * an upstream that is out must not use up its users' day.
 */
test('[LIM-4] a prompt that no backend took gives back all but the request', async () => {
  for (const directive of ['status 500', 'status 429', 'status 400', 'error overloaded after 0']) {
    await using({ organization: limits('tokens_per_day: 1500') }, async t => {
      const failed = await t.post('/v1/chat/completions', chat(prompt(directive), { max_tokens: 100 }))
      assert.ok(failed.status >= 400, directive)
      await failed.text()
      const whole = await t.post('/v1/chat/completions', chat('x', { max_tokens: 1400 }))
      assert.equal(whole.status, 200, `${directive}: ${await whole.text()}`)
    })
  }
})

/** What the provider has made is consumed, although nothing of it reached the client: the reply was buffered. */
test('[LIM-4] output that was counted is consumed, whoever left', () =>
  using({ organization: limits('output_tokens_per_day: 500') }, async t => {
    const cut = await t.post(
      '/v1/chat/completions',
      chat('[[sim: tokens 300; cut 150]] x', { max_tokens: 400, stream: false, reasoning_effort: 'high' }),
    )
    assert.equal(cut.status, 502)
    const next = await t.post('/v1/chat/completions', chat('x', { max_tokens: 400 }))
    assert.equal(await codeOf(next), 'output_tokens_limit_exceeded')
    const [row] = await t.ledger()
    assert.deepEqual([row!.outcome, row!.cost, row!.output], ['upstream_error', 0, 0])
  }))

/**
 * Hidden reasoning opens an output item on Responses. Its frames have no content, and yet a reply that was cut there
 * was billed with its whole prompt.
 */
test('[BILL-3] a Responses stream that is cut after hidden reasoning alone is not billed; after one word it is', () =>
  using({}, async t => {
    const cut = async (events: number, more: object = {}) => {
      const text = `[[sim: reason 2; text "one two three"; cut ${events}]] x`
      const body = { model: 'eb1-efficient-preview', stream: true, reasoning: { effort: 'high', ...more }, input: text }
      const reply = await (await t.post('/v1/responses', body)).text()
      const row = (await t.ledger()).at(-1)!
      assert.equal(row.outcome, 'upstream_error')
      return { reply, billed: row.cost > 0 && row.input > 0 }
    }
    const hidden = await cut(6)
    assert.match(hidden.reply, /response\.output_item\.done/)
    assert.doesNotMatch(hidden.reply, /delta/)
    assert.equal(hidden.billed, false)
    const word = await cut(7)
    assert.match(word.reply, /response\.output_text\.delta/)
    assert.equal(word.billed, true)
    const summary = await cut(6, { summary: 'auto' })
    assert.match(summary.reply, /response\.reasoning_summary_text\.delta/)
    assert.equal(summary.billed, true, 'a summary is content')
  }))

/**
 * With `on_client_gone: drain` the upstream runs on for its usage report. A client that left after the first word was
 * billed for that word, and could continue the whole reply, which had been retained.
 */
test('[BILL-3] [RESP-2] a reply that its client left is drained, billed as delivered, and cannot be continued', () => {
  const models =
    '  eb1-preview: { context_window: 400000, on_client_gone: drain, price: { input: 1.25, output: 10.00 }, backends: [{ provider: responses, model: sim-large }] }'
  return using({ models, organization: limits('output_tokens_per_day: 2000') }, async t => {
    const input = '[[sim: tokens 500; pace 5ms]] tell a story'
    const body = { model: 'eb1-preview', stream: true, input, max_output_tokens: 1000 }
    const seen = await leave(t, '/v1/responses', body, 'response.output_text.delta')
    await t.simulator.requests[0]!.settled
    assert.equal(t.simulator.requests[0]!.state, 'finished', 'it was drained')
    const [row] = await t.ledger()
    assert.equal(row!.outcome, 'client_gone')
    assert.ok(row!.cost > 0 && row!.output < 480, `billed ${row!.output} tokens of 500`)

    const id = /"id":"(resp_\w+)"/.exec(seen)![1]
    const next = await t.post('/v1/responses', { model: 'eb1-preview', input: 'go on', previous_response_id: id })
    assert.equal(await codeOf(next), 'previous_response_not_found')
    const more = await t.post('/v1/responses', { model: 'eb1-preview', input: 'x', max_output_tokens: 1600 })
    assert.equal(await codeOf(more), 'output_tokens_limit_exceeded', 'all 500 are consumed')
  })
})

// ---- no cap named (decisions 50) --------------------------------------------------------------------------------------

/** The cap that the provider was sent, in the words of its dialect. */
const capOf = (t: TestGateway): unknown => {
  const body = t.simulator.requests.at(-1)!.json as any
  return (
    body.max_tokens ?? body.max_completion_tokens ?? body.max_output_tokens ?? body.generationConfig?.maxOutputTokens
  )
}
const DIALECTS = ['chat', 'responses', 'messages', 'gemini']
/** One model for each dialect, 10 USD per million tokens in and out. */
const models = (more: string) =>
  DIALECTS.map(
    name =>
      `  ${name}: { price: { input: 10.00, output: 10.00 }, ${more}, backends: [{ provider: ${name}, model: sim-large }] }`,
  ).join('\n')
const uncapped = (model: string, text = 'x', more: object = {}) => ({
  model,
  messages: [{ role: 'user', content: text }],
  ...more,
})

const window = 'context_window: 100000'
const SENT: [what: string, models: string, limits: string, cap: (input: number) => number | undefined][] = [
  ['nothing, where nothing sets a cap: the window alone does not', window, '', () => undefined],
  ['the model’s maximum', `${window}, max_output_tokens: 5000`, '', () => 5000],
  ['the account’s maximum', `${window}, max_output_tokens: 5000`, 'max_output_tokens: 4500', () => 4500],
  ['what max_request_tokens leaves', window, 'max_request_tokens: 6000', input => 6000 - input],
  ['what max_request_usd pays', window, 'max_request_usd: 0.05', input => 5000 - input],
  ['a quarter of what the spend caps leave', window, 'daily_spend_usd: 0.20', input => 5000 - input],
  ['output_reserve at least, of what the spend caps leave', window, 'daily_spend_usd: 0.10', () => 4096],
  ['what the window leaves', 'context_window: 4500', 'daily_spend_usd: 100.00', input => 4500 - input],
]
for (const [what, more, caps, expected] of SENT)
  test(`a request that names no cap is sent with ${what}, on every dialect`, async () => {
    for (const model of DIALECTS) {
      await using({ models: models(more), organization: limits(caps) }, async t => {
        const reply = await t.post('/v1/chat/completions', uncapped(model))
        assert.equal(reply.status, 200, await reply.clone().text())
        const { usage } = (await reply.json()) as any
        const cap = expected(usage.prompt_tokens)
        assert.equal(capOf(t), cap ?? (model === 'messages' ? 8192 : undefined), model)
      })
    }
  })

/**
 * With a daily cap of 1 USD, 60 requests at once that named no cap cost 4.80 USD: 4,096 tokens were reserved for each,
 * and no cap was sent.
 */
test('sixty requests at once without a cap spend no more than the daily cap', () =>
  using({ models: models(window), organization: limits('daily_spend_usd: 0.30') }, async t => {
    const body = uncapped('chat', '[[sim: tokens 30000]] x')
    const replies = await Promise.all(Array.from({ length: 60 }, () => t.post('/v1/chat/completions', body)))
    const statuses = await Promise.all(
      replies.map(async reply => {
        await reply.text()
        return reply.status
      }),
    )
    const served = statuses.filter(status => status === 200).length
    assert.ok(served >= 4 && statuses.every(status => status === 200 || status === 429), String(statuses))
    const cost = (await t.ledger()).reduce((sum, row) => sum + row.cost, 0)
    // The meter counts the simulator's words a little differently from the simulator, which keeps to the cap.
    assert.ok(cost > 0.15e9 && cost < 0.32e9, `${cost / 1e9} USD`)
  }))

test('max_request_usd and max_request_tokens hold a request that names no cap', async () => {
  for (const cap of ['max_request_usd: 0.05', 'max_request_tokens: 5000'])
    await using({ models: models(window), organization: limits(cap) }, async t => {
      const asked = await t.post('/v1/chat/completions', uncapped('chat', 'x', { max_tokens: 20_000 }))
      assert.equal(asked.status, 429)
      const silent = await t.post('/v1/chat/completions', uncapped('chat', '[[sim: tokens 20000]] x'))
      assert.equal(silent.status, 200)
      const { choices, usage } = (await silent.json()) as any
      assert.equal(choices[0].finish_reason, 'length')
      assert.ok(usage.total_tokens < 5100, `${usage.total_tokens}`)
    })
})

test('where not even output_reserve fits, the answer is the refusal of that limit', async () => {
  for (const [cap, code] of [
    ['max_request_usd: 0.04', 'request_spend_cap_exceeded'],
    ['max_request_tokens: 4000', 'request_token_budget_exceeded'],
    ['daily_spend_usd: 0.04', 'rate_limit_exceeded'],
  ] as const)
    await using({ models: models(window), organization: limits(cap) }, async t => {
      const refused = await t.post('/v1/chat/completions', uncapped('chat'))
      assert.equal(refused.status, 429)
      assert.equal(await codeOf(refused), code)
      assert.equal(t.simulator.requests.length, 0)
    })
})

test('token budgets reserve output_reserve and may carry debt; spend reserves what the cap that is sent can cost', () =>
  using({ models: models(window), organization: limits('tokens_per_day: 5000, daily_spend_usd: 1.00') }, async t => {
    // The head of a stream tells what is left beside the reservation.
    const asked = uncapped('chat', '[[sim: tokens 8000]] x', { stream: true, stream_options: { include_usage: true } })
    const reply = await t.post('/v1/chat/completions', asked)
    const usage = JSON.parse((await reply.text()).match(/"usage":(\{"prompt.*\})\}$/m)![1]!)
    assert.ok(usage.completion_tokens > 6000, 'more than a day of tokens')
    const input = usage.prompt_tokens
    assert.equal(Number(reply.headers.get('x-ratelimit-remaining-tokens-day')), 5000 - input - 4096)
    assert.equal(reply.headers.get('x-ratelimit-remaining-spend'), '0.75')
    const next = await t.post('/v1/chat/completions', uncapped('chat', 'x', { max_tokens: 1 }))
    assert.equal(await codeOf(next), 'tokens_limit_exceeded', 'the debt is paid first')
  }))

/** An ordinary tenant with a month's cap meets none of this: its replies have room for all that the model can say. */
test('a busy tenant whose spend cap is far away gets the model’s maximum each time', () =>
  using(
    { models: models(`${window}, max_output_tokens: 32000`), organization: limits('monthly_spend_usd: 100.00') },
    async t => {
      for (let i = 0; i < 40; i++) {
        const reply = await t.post('/v1/chat/completions', uncapped('chat', `question ${i}`))
        assert.equal(reply.status, 200)
        await reply.text()
        assert.equal(capOf(t), 32_000)
      }
    },
  ))

// ---- what is counted, and bounded -------------------------------------------------------------------------------------

/** An image counted 85 tokens and a PDF 1,500 whatever their size. */
test('[METER-3] a large image and a large PDF count more than small ones', () =>
  using({}, async t => {
    const count = async (block: object) => {
      const messages = [{ role: 'user', content: [block, { type: 'text', text: 'x' }] }]
      const reply = await t.post('/v1/messages/count_tokens', { model: 'eb1-preview', messages })
      return ((await reply.json()) as any).input_tokens as number
    }
    const png = (width: number, height: number) => {
      const bytes = Buffer.from('89504e470d0a1a0a0000000d494844520000000000000000'.padEnd(120, '0'), 'hex')
      bytes.writeUInt32BE(width, 16)
      bytes.writeUInt32BE(height, 20)
      const source = { type: 'base64', media_type: 'image/png', data: bytes.toString('base64') }
      return { type: 'image', source }
    }
    const pdf = (bytes: number) => {
      const data = Buffer.alloc(bytes).toString('base64')
      return { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data } }
    }
    assert.equal((await count(png(1500, 750))) - (await count(png(10, 10))), 1500 - 85)
    assert.equal((await count(pdf(1_000_000))) - (await count(pdf(1000))), 5000 - 1500)
  }))

/** Stop strings go to the provider and are counted nowhere; their length had no bound. */
test('stop strings are bounded: 256 characters each', () =>
  using({}, async t => {
    const long = 's'.repeat(257)
    const chatReply = await t.post('/v1/chat/completions', { ...uncapped('eb1-preview'), stop: ['a', long] })
    const messages = { ...uncapped('eb1-preview'), max_tokens: 10, stop_sequences: [long] }
    const messagesReply = await t.post('/v1/messages', messages)
    for (const [reply, param] of [
      [chatReply, 'stop[1]'],
      [messagesReply, 'stop_sequences[0]'],
    ] as const) {
      assert.equal(reply.status, 400)
      const { error } = (await reply.json()) as any
      assert.match(error.message, /of at most 256 characters/)
      assert.ok(error.message.includes(param), error.message)
    }
    assert.equal(t.simulator.requests.length, 0)
    const longest = { ...uncapped('eb1-preview'), stop: Array.from({ length: 4 }, () => 's'.repeat(256)) }
    assert.equal((await t.post('/v1/chat/completions', longest)).status, 200)
  }))
