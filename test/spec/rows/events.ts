import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { idles, reaches } from '../kit/clocks.ts'
import { DIALECTS } from '../kit/gateways.ts'
import { SURFACES, type Surface } from '../kit/reply.ts'
import { section } from '../kit/row.ts'
import { effort, tool } from '../kit/shapes.ts'

const models = Object.values(DIALECTS)
/** A reply that breaks after some of its output. */
const BREAKS = (fault: string) => `[[sim: text "${'word '.repeat(40).trim()}"; ${fault}]]`
const BROKEN = BREAKS('error server after 12')
const TERMINAL: Record<Surface, RegExp> = {
  responses: /event: response\.(completed|incomplete|failed)\ndata: .*\n\n$/,
  chat: /data: \[DONE\]\n\n$/,
  messages: /event: message_stop\ndata: .*\n\n$/,
}

export const events = section('Events', 'events', [
  { at: 'before rule 1', says: 'there are no webhooks', beyond: 'nothing is promised that could be seen' },
  {
    at: 'rule 1',
    says: 'stream true is SSE, in order, open until the terminal event',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        if (!stream) return
        const reply = await w.well(surface, { model, stream, say: '[[sim: text "one two three four"]]' })
        assert.equal(reply.text, 'one two three four')
        assert.match(reply.raw, TERMINAL[surface])
      }),
  },
  {
    at: 'rule 1',
    says: 'or until an error in the stream',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        if (!stream) return
        const reply = await w.ask(surface, { model, stream, say: BROKEN })
        assert.ok(reply.error, reply.raw.slice(-300))
        if (surface !== 'responses') assert.doesNotMatch(reply.raw, TERMINAL[surface])
        assert.doesNotMatch(reply.raw, /response\.completed|"finish_reason":"|message_delta/)
      }),
  },
  {
    at: 'rule 1',
    says: 'the official SDKs read every stream',
    async check(w) {
      const openai = new OpenAI({ baseURL: w.base, apiKey: w.key(), maxRetries: 0 })
      const anthropic = new Anthropic({ baseURL: w.base.slice(0, -3), authToken: w.key(), apiKey: null, maxRetries: 0 })
      const content = '[[sim: text "one two"]]'
      for (const model of models) {
        const messages = [{ role: 'user' as const, content }]
        const chat = await openai.chat.completions.stream({ model, messages }).finalContent()
        const response = await openai.responses.stream({ model, input: content }).finalResponse()
        const message = await anthropic.messages.stream({ model, max_tokens: 99, messages }).finalText()
        assert.deepEqual([chat, response.output_text, message], ['one two', 'one two', 'one two'])
      }
      return 'openai and anthropic, on four dialects'
    },
  },
  {
    at: 'rule 2',
    says: 'Chat: text in delta.content; calls in delta.tool_calls by index; the finish reason before the end',
    async check(w) {
      for (const model of models) {
        const say = '[[sim: call weather {"city":"Ulm"}; call weather {"city":"Aix"}]]'
        const reply = await w.well('chat', { model, stream: true, say, more: { tools: [tool('chat')] } })
        assert.deepEqual(
          reply.calls.map(({ input }) => input.city),
          ['Ulm', 'Aix'],
        )
        const deltas = reply.frames.flatMap(({ data }) => data.choices?.[0]?.delta.tool_calls ?? [])
        assert.deepEqual([...new Set(deltas.map(({ index }: any) => index))], [0, 1])
        const end = reply.frames.findIndex(({ data }) => data.choices?.[0]?.finish_reason)
        assert.ok(reply.frames.slice(end + 1).every(({ data }) => !data.choices?.[0]?.delta.tool_calls))
        const text = await w.well('chat', { model, stream: true, say: '[[sim: text "one two"]]' })
        assert.equal(text.frames.map(({ data }) => data.choices?.[0]?.delta.content ?? '').join(''), 'one two')
      }
      return 'two calls on four dialects'
    },
  },
  {
    at: 'rule 3',
    says: 'Responses: typed events, response.incomplete with its reason',
    async check(w) {
      for (const model of models) {
        const { frames } = await w.well('responses', { model, stream: true, say: '[[sim: tokens 90]]', cap: 20 })
        assert.ok(frames.every(({ event, data }) => event === data.type))
        assert.ok(frames.every(({ data }, i) => data.sequence_number === i))
        const last = frames.at(-1)!.data
        assert.deepEqual(
          [last.type, last.response.incomplete_details.reason],
          ['response.incomplete', 'max_output_tokens'],
        )
      }
      assert.match((await idles(w, 'responses', 90, {})).end, /stream_idle_timeout/)
      assert.match((await reaches(w, 'responses', 300, { more: effort('responses', 'none') })).end, /stream_ceiling/)
      return 'max_output_tokens on four dialects; stream_idle_timeout, stream_ceiling_timeout'
    },
  },
  {
    at: 'rule 4',
    says: 'Messages: thinking_delta events; stop_reason max_tokens at a deadline',
    async check(w) {
      const more = { thinking: { type: 'enabled', budget_tokens: 1024 } }
      for (const model of [DIALECTS['openai-responses'], DIALECTS['anthropic-messages'], DIALECTS.gemini]) {
        const { frames } = await w.well('messages', { model, stream: true, more, say: '[[sim: reason 2]]' })
        assert.ok(
          frames.some(({ data }) => data.delta?.type === 'thinking_delta'),
          model,
        )
      }
      assert.equal((await idles(w, 'messages', 90, {})).end, 'max_tokens')
      return 'on the three dialects that have summaries'
    },
  },
  {
    at: 'rule 5',
    says: 'Chat: a nested error object with its members, and flat copies',
    async check(w) {
      for (const model of models) {
        const reply = await w.ask('chat', { model, stream: true, say: BROKEN })
        const frame = reply.frames.find(({ data }) => data.error)!.data
        const { code, type, message, retryable, request_id } = frame.error
        assert.ok(code && type && message && retryable !== undefined && request_id === reply.id, JSON.stringify(frame))
        assert.deepEqual([frame.code, frame.message], [code, message])
      }
      return 'code, type, message, retryable, request_id on four dialects'
    },
  },
  {
    at: 'rule 5',
    says: 'Messages and Responses: frames carry request_id, response.failed too',
    async check(w) {
      for (const model of models) {
        const told = await w.ask('messages', { model, stream: true, say: BROKEN })
        assert.equal(told.error.request_id, told.id)
        const reply = await w.ask('responses', { model, stream: true, say: BROKEN })
        const [error, failed] = reply.frames.slice(-2).map(({ data }) => data)
        assert.equal((error.error ?? error).request_id ?? error.request_id, reply.id, JSON.stringify(error))
        assert.equal(failed.type, 'response.failed')
        const inside = failed.response.error.request_id ?? failed.response.request_id ?? failed.request_id
        assert.equal(inside, reply.id, `response.failed: ${JSON.stringify(failed.response.error)}`)
      }
      return 'on four dialects'
    },
  },
  {
    at: 'rule 5',
    says: 'a frame that may be retried has retry_after_seconds, the value of the wait',
    async check(w) {
      for (const surface of SURFACES) {
        for (const model of models) {
          const reply = await w.ask(surface, { model, stream: true, say: BREAKS('error overloaded after 12') })
          assert.equal(reply.error.retryable, true, reply.raw.slice(-300))
          const frame = reply.frames.find(({ data }) => data.error || data.type === 'error')!.data
          const wait = frame.retry_after_seconds ?? reply.error.retry_after_seconds
          assert.ok(wait >= 1, JSON.stringify(frame))
        }
      }
      return 'three surfaces, four dialects'
    },
  },
  {
    at: 'rule 6',
    says: 'a stream whose provider is out for a while ends with provider_unavailable',
    async check(w) {
      for (const surface of SURFACES) {
        for (const model of models) {
          const reply = await w.ask(surface, { model, stream: true, say: BREAKS('error overloaded after 12') })
          assert.equal(reply.code, 'provider_unavailable', `${model}: ${reply.raw.slice(-300)}`)
        }
      }
      return 'three surfaces, four dialects'
    },
  },
  {
    at: 'rule 7, table: none, minimal',
    says: '90 seconds idle, 5 minutes in all',
    async check(w) {
      for (const surface of SURFACES) {
        for (const level of surface === 'messages' ? ['minimal'] : ['none', 'minimal']) {
          await idles(w, surface, 90, { more: effort(surface, level) })
          await reaches(w, surface, 300, { more: effort(surface, level) })
        }
      }
      return 'three surfaces'
    },
  },
  {
    at: 'rule 7, table: medium',
    says: '90 seconds idle, 10 minutes in all; also when no effort is set',
    async check(w) {
      for (const surface of SURFACES) {
        for (const more of [{}, effort(surface, 'medium')]) {
          await idles(w, surface, 90, { more })
          await reaches(w, surface, 600, { more })
        }
      }
      return 'three surfaces'
    },
  },
  {
    at: 'rule 7, table: xhigh and above',
    says: '120 seconds idle; 60 minutes in all at max and ultra',
    async check(w) {
      const model = DIALECTS['anthropic-messages']
      for (const surface of SURFACES) {
        await idles(w, surface, 120, { model, more: effort(surface, 'xhigh') })
        for (const level of ['max', 'ultra']) {
          await idles(w, surface, 120, { model, more: effort(surface, level) })
          await reaches(w, surface, 3600, { model, more: effort(surface, level) })
        }
      }
      return 'three surfaces'
    },
  },
  {
    at: 'rule 7',
    says: 'eb1-frontier-preview has the row of max when no effort is set',
    async check(w) {
      const model = DIALECTS.gemini
      for (const surface of SURFACES) {
        await idles(w, surface, 120, { model })
        await reaches(w, surface, 3600, { model })
      }
      return '120 seconds, 60 minutes'
    },
  },
])
