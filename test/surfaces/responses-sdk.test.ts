import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import OpenAI from 'openai'
import type { Part, Turn } from '../../core/canon/conversation.ts'
import { GatewayError } from '../../core/canon/errors.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import { ReplyRecorder } from '../../core/canon/recorder.ts'
import { responses } from '../../surfaces/responses/index.ts'
import { bare, encode, frames, playing, replies, serving } from './openai-kit.ts'
import { accepted } from './request-kit.ts'

const user = { role: 'user' as const, content: 'hi' }
const body = {
  model: 'eb1-preview',
  input: 'hi',
  stream: true as const,
  reasoning: { summary: 'auto' as const },
  include: ['reasoning.encrypted_content' as const, 'web_search_call.action.sources' as const],
}
const stop = { type: 'finish' as const, reason: 'stop' as const }
const tools = [
  { type: 'function' as const, name: 'get_weather', parameters: { type: 'object', properties: {} }, strict: false },
]

describe('responses and the official SDK', () => {
  it('[RESP-5] over HTTP: what it accumulates is the buffered object, and replays as input', async () => {
    const events: StreamEvent[] = [
      { type: 'reasoning', text: 'hm', part: 0 },
      { type: 'reasoning_end', handle: 'item_eba1_h' },
      { type: 'text', text: 'Looking… 😀' },
      { type: 'tool_call', index: 0, id: 'call_eba1_0', kind: 'function', name: 'get_weather' },
      { type: 'tool_args', index: 0, text: '{"city":"Oslo"}' },
      { type: 'tool_end', index: 0 },
    ]
    const seen: any[] = []
    await serving(
      (path, request) => {
        assert.equal(path, '/v1/responses')
        accepted(responses, request)
        seen.push(request)
        const { sse, object } = encode(responses, request, { events, end: stop })
        return request.stream
          ? { type: 'text/event-stream; charset=utf-8', text: sse }
          : { type: 'application/json', text: JSON.stringify(object) }
      },
      async client => {
        const params = { model: 'eb1-preview', input: [user], tools, reasoning: { summary: 'auto' as const } }
        const final = await client.responses.stream(params).finalResponse()
        const buffered = await client.responses.create(params)
        assert.deepEqual(bare(final), bare(buffered))
        assert.deepEqual([final.output_text, buffered.output_text], ['Looking… 😀', 'Looking… 😀'])
        await client.responses.create({
          model: 'eb1-preview',
          input: [
            user,
            ...(final.output as any[]),
            { type: 'function_call_output', call_id: 'call_eba1_0', output: '5°' },
          ],
        })
        assert.deepEqual(
          accepted(responses, seen[2]).turns.map(t => t.role),
          ['user', 'assistant', 'tool'],
        )
      },
    )
  })

  it('[ERR-8] raises a typed error on an error frame', async () => {
    const error = new GatewayError('provider_unavailable', { message: 'A dependency is gone.' })
    const { sse } = encode(responses, body, { events: [{ type: 'text', text: 'a' }], end: error })
    await assert.rejects(playing(sse).responses.stream(body).finalResponse(), (e: unknown) => {
      assert.ok(e instanceof OpenAI.APIError)
      assert.deepEqual(
        [e.code, e.type, (e.error as any).request_id],
        ['provider_unavailable', 'server_error', 'req_test'],
      )
      return true
    })
  })

  it('[STR-6] any reply, cut anywhere, is accepted whole or as a typed error, and the buffered object is what it accumulates', async () => {
    await fc.assert(
      fc.asyncProperty(replies({ custom: true }), async reply => {
        const { sse, object } = encode(responses, body, reply)
        const all = frames(sse)
        for (const [i, f] of all.entries()) assert.equal(f.sequence_number, i)
        const ends = all.filter(f => /^response\.(completed|incomplete|failed)$/.test(f.type))
        assert.equal(ends.length, 1)
        assert.equal(ends[0], all.at(-1))
        const stream = playing(sse).responses.stream(body)
        if (reply.end instanceof GatewayError) {
          assert.deepEqual(
            all.slice(-2).map(f => f.type),
            ['error', 'response.failed'],
          )
          await assert.rejects(stream.finalResponse(), OpenAI.APIError)
          return
        }
        assert.deepEqual(bare(await stream.finalResponse()), bare(object))
        // Without the terminal event, which repeats the whole response, the events alone make the same items.
        const open = sse.slice(0, sse.lastIndexOf('event: '))
        const pieced = await playing(open).responses.stream(body).finalResponse()
        assert.deepEqual(bare(pieced.output), bare((object as any).output))
        assert.deepEqual(encode(responses, { ...body, stream: false }, reply).object, object)
      }),
      { numRuns: 150, seed: 21 },
    )
  })

  it('[RESP-1] whatever is sent is accepted when it comes back', () => {
    fc.assert(
      fc.property(replies({ custom: true }), reply => {
        const { object } = encode(responses, { ...body, stream: false }, reply)
        const output = (object as any).output as any[]
        const results = output
          .filter(item => /_call$/.test(item.type) && item.call_id !== undefined && item.status === 'completed')
          .map(item => ({ type: `${item.type}_output`, call_id: item.call_id, output: 'ok' }))
        accepted(responses, { model: 'eb1-preview', input: [user, ...output, ...results, user] })
      }),
      { numRuns: 200, seed: 22 },
    )
  })

  it('[RESP-2] the recorded turn is what a replay of the items parses to', () => {
    fc.assert(
      fc.property(replies({ custom: true }), reply => {
        if (reply.end instanceof GatewayError || reply.end.reason === 'refusal') return
        const recorder = new ReplyRecorder()
        for (const event of reply.events) recorder.push(event)
        const { object } = encode(responses, { ...body, stream: false }, reply)
        const parsed = accepted(responses, { model: 'eb1-preview', input: [user, ...(object as any).output] }).turns[1]
        assert.deepEqual(comparable(parsed), comparable(recorder.turn() ?? undefined))
      }),
      { numRuns: 200, seed: 23 },
    )
  })
})

/**
 * Item ids and places differ by nature; lone surrogates become U+FFFD on the wire; a search or reasoning that was cut
 * is kept by one side only.
 */
function comparable(turn: Turn | undefined): unknown[] {
  const parts = (turn?.parts ?? []).map((part: Part): unknown => {
    switch (part.type) {
      case 'call':
        return [part.type, part.id, part.kind, part.name, part.namespace, part.input.toWellFormed()]
      case 'reasoning':
        return [part.type, part.summary.filter(s => s !== '').map(s => s.toWellFormed())]
      case 'search':
        return part.query === '' ? null : [part.type, part.query, part.results.map(r => r.url)]
      case 'text':
      case 'refusal':
        return [part.type, part.text.toWellFormed()]
      default:
        return part
    }
  })
  return parts.filter(p => p !== null)
}
