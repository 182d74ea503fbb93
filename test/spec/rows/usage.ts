import assert from 'node:assert/strict'
import { getEncoding } from 'js-tiktoken'
import { DIALECTS } from '../kit/gateways.ts'
import { SURFACES } from '../kit/reply.ts'
import { section } from '../kit/row.ts'
import { documents, effort, history, image, tool } from '../kit/shapes.ts'

const models = Object.values(DIALECTS)
const LONG = 'What the river carries, the gate has counted. '.repeat(200)
const CACHED = { system: [{ type: 'text', text: LONG, cache_control: { type: 'ephemeral' } }] }
/** Text that splits into tokens in ways that a guess would miss. */
const ODD = 'naïve 日本語 façade 🙂🙂 0000123 x²+y² \t\n  <|endoftext|> ﷽'

export const usage = section('Usage objects', 'usage', [
  {
    at: 'table: Chat Completions',
    says: 'total is prompt and completion; reasoning is inside completion',
    async check(w) {
      for (const model of models) {
        for (const stream of [false, true]) {
          const more = effort('chat', 'high')
          const { usage } = await w.well('chat', { model, stream, more, say: '[[sim: reason 1 tokens 40; tokens 9]]' })
          assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
          assert.equal(usage.completion_tokens_details.reasoning_tokens, 40)
          assert.ok(usage.completion_tokens > 40)
        }
      }
      return 'four dialects, buffered and streamed'
    },
  },
  {
    at: 'table: Responses',
    says: 'total is input and output; cached and written tokens are subsets of input; reasoning is inside output',
    async check(w) {
      for (const model of models) {
        for (const stream of [false, true]) {
          const say = '[[sim: reason 1 tokens 40; tokens 9]]'
          const more = { instructions: LONG, ...effort('responses', 'high') }
          const { usage } = await w.well('responses', { model, stream, more, say })
          const { cached_tokens, cache_write_tokens } = usage.input_tokens_details
          assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens)
          assert.ok(cached_tokens + cache_write_tokens <= usage.input_tokens)
          assert.equal(usage.output_tokens_details.reasoning_tokens, 40)
          assert.ok(usage.output_tokens > 40)
        }
      }
      return 'four dialects, buffered and streamed'
    },
  },
  {
    at: 'table: Messages',
    says: 'input, cache reads and cache writes are disjoint and add up to the prompt',
    async check(w) {
      const full = (await w.count({ more: CACHED })).json.input_tokens
      for (const model of models) {
        for (const stream of [false, true]) {
          const reply = await w.well('messages', { model, stream, more: CACHED })
          assert.equal(reply.input, full, `${model} ${JSON.stringify(reply.usage)}`)
        }
      }
      const { usage } = await w.well('messages', { model: DIALECTS['anthropic-messages'], more: CACHED })
      assert.ok(usage.cache_read_input_tokens > 0 && usage.input_tokens < full)
      return `${JSON.stringify([usage.input_tokens, usage.cache_read_input_tokens])} of ${full}`
    },
  },
  {
    at: 'table: Messages',
    says: 'output_tokens include reasoning',
    async check(w) {
      for (const model of models) {
        for (const stream of [false, true]) {
          const more = effort('messages', 'high')
          const reply = await w.well('messages', { model, stream, more, say: '[[sim: reason 1 tokens 40; tokens 9]]' })
          assert.ok(reply.output > 40, `${model} ${reply.output}`)
        }
      }
      return 'four dialects, buffered and streamed'
    },
  },
  {
    at: 'table: Messages',
    says: 'without cache activity input_tokens is the whole prompt',
    async check(w) {
      const say = 'never said before by anyone'
      const { usage } = await w.well('messages', { model: DIALECTS['anthropic-messages'], say })
      assert.deepEqual([usage.cache_read_input_tokens, usage.cache_creation_input_tokens], [0, 0])
      assert.equal(usage.input_tokens, (await w.count({ say })).json.input_tokens)
      return `${usage.input_tokens}`
    },
  },
  {
    at: 'meter',
    says: 'one unit, o200k_base, whichever model serves',
    async check(w) {
      const meter = getEncoding('o200k_base')
      const length = meter.encode(ODD, [], []).length
      for (const model of models) {
        for (const surface of SURFACES) {
          const [without, odd] = [
            await w.well(surface, { model, say: 'X' }),
            await w.well(surface, { model, say: `X\n${ODD}` }),
          ]
          const expected = meter.encode(`X\n${ODD}`, [], []).length - meter.encode('X').length
          assert.equal(odd.input - without.input, expected, `${surface} ${model}`)
        }
        const reply = await w.well('chat', { model, say: `[[sim: text ${JSON.stringify(ODD)}]]` })
        assert.equal(reply.output, length, model)
      }
      return `prompt and reply with the same ${length} tokens on three surfaces and four dialects`
    },
  },
  {
    at: 'meter',
    says: 'the same body has the same prompt count on every call',
    async check(w) {
      for (const surface of SURFACES) {
        const counts = new Set<number>()
        for (const model of models) {
          for (const stream of [false, true, false]) counts.add((await w.well(surface, { model, stream })).input)
        }
        assert.equal(counts.size, 1, [...counts].join(', '))
      }
      return 'twelve calls, one count'
    },
  },
  {
    at: 'meter',
    says: 'cache reads and writes are proportional shares of the metered prompt',
    async check(w) {
      const model = DIALECTS['anthropic-messages']
      const more = { system: [{ type: 'text', text: `Shares. ${LONG}`, cache_control: { type: 'ephemeral' } }] }
      const [wrote, read] = [await w.well('messages', { model, more }), await w.well('messages', { model, more })]
      assert.ok(wrote.usage.cache_creation_input_tokens > 0)
      assert.equal(read.usage.cache_read_input_tokens, wrote.usage.cache_creation_input_tokens)
      assert.equal(read.input, wrote.input)
      return `${read.usage.cache_read_input_tokens} of ${read.input} written, then read`
    },
  },
  {
    at: 'meter',
    says: 'window, count_tokens and limits use the same unit',
    account: { limits: { input_tokens_per_minute: 1000 } },
    async check(w) {
      const { input_tokens } = (await w.count()).json
      const reply = await w.well('messages')
      assert.equal(reply.input, input_tokens)
      assert.equal(reply.header('x-ratelimit-remaining-input-tokens'), String(1000 - input_tokens))
      return `${input_tokens} counted, billed and taken`
    },
  },
  {
    at: 'meter',
    says: 'images and files report the minimum of each part that is billed',
    async check(w) {
      const plain = (await w.well('messages', { say: 'look' })).input
      for (const surface of SURFACES) {
        const [one, two] = [
          await w.well(surface, { more: image(surface) }),
          await w.well(surface, { more: image(surface, 'look', 2) }),
        ]
        assert.ok(one.input - plain >= 85 && two.input - one.input >= 85, `${one.input} ${two.input}`)
        w.bill(one, row => assert.equal(row?.input, one.input))
      }
      const file = await w.well('messages', { model: DIALECTS['anthropic-messages'], more: documents(1) })
      assert.ok(file.input >= 1500)
      w.bill(file, row => assert.equal(row?.input, file.input))
      return 'at least 85 for an image, 1500 for a document; the ledger has the same'
    },
  },
  {
    at: 'meter',
    says: 'tool results that are lists of parts, and outputs of custom tools, are counted',
    async check(w) {
      const turns = [{ user: 'go' }, { calls: ['call_1'] }, { results: ['call_1'] }]
      for (const surface of SURFACES) {
        const more = (text: string) =>
          history(surface, turns, [{ type: surface === 'responses' ? 'input_text' : 'text', text }])
        const tools = [tool(surface)]
        const short = await w.well(surface, { more: { tools, ...more('a') } })
        const long = await w.well(surface, { more: { tools, ...more(`a${' a'.repeat(100)}`) } })
        assert.equal(long.input - short.input, 100, surface)
      }
      const custom = (output: string) => ({
        tools: [{ type: 'custom', name: 'note' }],
        input: [
          { role: 'user', content: 'go' },
          { type: 'custom_tool_call', call_id: 'call_1', name: 'note', input: 'x' },
          { type: 'custom_tool_call_output', call_id: 'call_1', output },
        ],
      })
      const [short, long] = [
        await w.well('responses', { more: custom('a') }),
        await w.well('responses', { more: custom(`a${' a'.repeat(100)}`) }),
      ]
      assert.equal(long.input - short.input, 100)
      return 'a hundred tokens more are counted as a hundred'
    },
  },
  {
    at: 'meter',
    says: 'reasoning is the provider’s report, whatever the length of the reply',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        const say = '[[sim: hidden 5000; text "one"]]'
        const reply = await w.well(surface, { model, stream, say, cap: 9000, more: effort(surface, 'high') })
        assert.equal(reply.output, 5001)
      }),
  },
  {
    at: 'billing',
    says: 'cached tokens cost a tenth of the input rate, and written ones the input rate',
    async check(w) {
      const model = DIALECTS['anthropic-messages']
      const more = { system: [{ type: 'text', text: `Tenths. ${LONG}`, cache_control: { type: 'ephemeral' } }] }
      for (const kind of ['cache_write', 'cached']) {
        const reply = await w.well('messages', { model, more })
        w.bill(reply, row => {
          const { input, cached, output, cost } = row!
          assert.ok(row![kind] > 0, kind)
          // USD per million tokens are 1000 nano-USD per token.
          assert.equal(cost, Math.round((input - cached) * 2500 + cached * 250 + output * 20_000))
        })
      }
      return 'the ledger’s cost is exact, for a write and a read'
    },
  },
  {
    at: 'billing',
    says: 'usage is booked with input, output, reasoning, public model, price book and billing mode',
    async check(w) {
      const reply = await w.well('chat', { more: effort('chat', 'high'), say: '[[sim: reason 1 tokens 40; tokens 9]]' })
      w.bill(reply, row => {
        const { model, input, output, reasoning, price_book, billing } = row!
        assert.deepEqual([model, price_book, billing, reasoning], ['eb1-preview', 'specification-1', 'standard', 40])
        assert.deepEqual([input, output], [reply.input, reply.output])
      })
      return 'the ledger’s row equals the usage of the reply'
    },
  },
  {
    at: 'billing',
    says: 'a paid request that cannot be priced fails before dispatch',
    async check(w) {
      await w.surfaces(async (surface, stream) => {
        const reply = await w.ask(surface, { model: 'unpriced', stream })
        assert.deepEqual([reply.status, reply.code], [404, 'model_not_found'])
      })
      assert.equal(w.sent.length, 0)
      return '404 model_not_found, and nothing is sent'
    },
  },
  {
    at: 'billing',
    says: 'a stream that ends early after output is billed for it and the prompt',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        if (!stream) return
        const say = `[[sim: text "${'word '.repeat(30).trim()}"; cut 9]]`
        const reply = await w.ask(surface, { model, stream, say })
        assert.ok(reply.error, String(reply))
        w.bill(reply, row => {
          assert.equal(row?.outcome, 'upstream_error')
          assert.ok(row!.input > 0 && row!.output > 0 && row!.output < 30 && row!.cost > 0, JSON.stringify(row))
        })
        const leave = new AbortController()
        const steps = (raw: string) => (raw.includes('one') ? void leave.abort() : undefined)
        const left = await w.ask(surface, {
          model,
          stream,
          steps,
          signal: leave.signal,
          say: '[[sim: text "one two three"; stall 6]]',
        })
        w.bill(left, row => assert.ok(row?.outcome === 'client_gone' && row.cost > 0, JSON.stringify(row)))
      }),
  },
  {
    at: 'billing',
    says: 'a stream that delivered nothing is not billed',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        const reply = await w.ask(surface, { model, stream, say: '[[sim: cut 0]]' })
        assert.ok(reply.status >= 500, String(reply))
        w.bill(reply, row => assert.ok(row === undefined || row.cost === 0, JSON.stringify(row)))
      }),
  },
  {
    at: 'billing',
    says: 'a refusal that the gateway itself writes has zero usage',
    gateway: 'guarded',
    check: w =>
      w.surfaces(async (surface, stream) => {
        const reply = await w.well(surface, { stream, say: 'a forbidden fruit' })
        assert.match(reply.raw, /I will not\./)
        assert.deepEqual([reply.input, reply.output], [0, 0])
        w.bill(reply, row => assert.equal(row?.cost, 0))
      }),
  },
])
