import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import OpenAI from 'openai'
import { GatewayError } from '../../core/canon/errors.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import { chat } from '../../surfaces/chat/index.ts'
import { bare, encode, frames, playing, replies, serving } from './openai-kit.ts'
import { accepted } from './request-kit.ts'

const user = { role: 'user' as const, content: 'hi' }
const body = { model: 'eb1-preview', messages: [user], stream: true as const, stream_options: { include_usage: true } }
const stop = { type: 'finish' as const, reason: 'stop' as const }
const weather = {
  type: 'function' as const,
  function: { name: 'get_weather', parameters: { type: 'object', properties: {} } },
}

/**
 * The SDK leaves content null where no text came; the object has "" then. And only the object has `annotations`, as at
 * OpenAI.
 */
function sdkView(object: any): any {
  const copy = bare(object)
  const { message } = copy.choices[0]
  if (message.content === '') message.content = null
  delete message.annotations
  return copy
}

describe('chat and the official SDK', () => {
  it('[CHAT-4] over HTTP: what it accumulates is the buffered object, and replays as input', async () => {
    const events: StreamEvent[] = [
      { type: 'text', text: 'Looking… 😀' },
      { type: 'tool_call', index: 0, id: 'call_eba1_0', kind: 'function', name: 'get_weather' },
      { type: 'tool_args', index: 0, text: '{"city":"Oslo"}' },
      { type: 'tool_end', index: 0 },
      { type: 'tool_call', index: 1, id: 'call_eba1_1', kind: 'function', name: 'get_weather' },
      { type: 'tool_end', index: 1 },
    ]
    const seen: any[] = []
    await serving(
      (path, request) => {
        assert.equal(path, '/v1/chat/completions')
        accepted(chat, request)
        seen.push(request)
        const { sse, object } = encode(chat, request, { events, end: stop })
        return request.stream
          ? { type: 'text/event-stream; charset=utf-8', text: sse }
          : { type: 'application/json', text: JSON.stringify(object) }
      },
      async client => {
        const stream = client.chat.completions.stream({
          model: 'eb1-preview',
          messages: [user],
          tools: [weather],
          stream_options: { include_usage: true },
        })
        const final = await stream.finalChatCompletion()
        const buffered = await client.chat.completions.create({
          model: 'eb1-preview',
          messages: [user],
          tools: [weather],
        })
        assert.deepEqual(sdkView(final), sdkView(buffered))
        assert.deepEqual((buffered.choices[0]!.message as any).annotations, [])
        assert.equal(final.choices[0]!.finish_reason, 'tool_calls')
        // The helper's own message object, with all that it adds, is input again.
        const message = final.choices[0]!.message
        await client.chat.completions.create({
          model: 'eb1-preview',
          messages: [
            user,
            message,
            ...message.tool_calls!.map(c => ({ role: 'tool' as const, tool_call_id: c.id, content: '5°' })),
          ],
        })
        assert.deepEqual(
          accepted(chat, seen[2]).turns.map(t => t.role),
          ['user', 'assistant', 'tool'],
        )
      },
    )
  })

  it('[CHAT-4] the tool runner drives a whole loop', async () => {
    await serving(
      (_, request) => {
        const conversation = accepted(chat, request)
        const answered = conversation.turns.at(-1)!.role === 'tool'
        const events: StreamEvent[] = answered
          ? [{ type: 'text', text: 'It is 5°.' }]
          : [
              { type: 'tool_call', index: 0, id: 'call_eba1_0', kind: 'function', name: 'get_weather' },
              { type: 'tool_args', index: 0, text: '{"city":"Oslo"}' },
              { type: 'tool_end', index: 0 },
            ]
        return { type: 'text/event-stream', text: encode(chat, request, { events, end: stop }).sse }
      },
      async client => {
        const asked: unknown[] = []
        const runner = client.chat.completions.runTools({
          model: 'eb1-preview',
          stream: true,
          messages: [user],
          tools: [
            {
              type: 'function',
              function: {
                name: 'get_weather',
                description: 'Weather of a city.',
                parameters: { type: 'object', properties: { city: { type: 'string' } } },
                parse: JSON.parse,
                function: (args: { city: string }) => {
                  asked.push(args.city)
                  return '5'
                },
              },
            },
          ],
        })
        assert.equal(await runner.finalContent(), 'It is 5°.')
        assert.deepEqual(asked, ['Oslo'])
      },
    )
  })

  it('[ERR-8] raises a typed error on an error frame, and on an error reply', async () => {
    const error = new GatewayError('provider_unavailable', { message: 'A dependency is gone.' })
    const { sse } = encode(chat, body, { events: [{ type: 'text', text: 'a' }], end: error })
    const stream = playing(sse).chat.completions.stream(body)
    await assert.rejects(stream.finalChatCompletion(), (e: unknown) => {
      assert.ok(e instanceof OpenAI.APIError)
      assert.deepEqual(
        [e.code, e.type, (e.error as any).request_id],
        ['provider_unavailable', 'server_error', 'req_test'],
      )
      return true
    })
    await serving(
      () => ({
        type: 'application/json',
        status: 400,
        text: chat.error(new GatewayError('unknown_parameter', { message: 'm', param: 'foo' }), 'req_test'),
      }),
      async client => {
        await assert.rejects(client.chat.completions.create(body), (e: unknown) => {
          assert.ok(e instanceof OpenAI.BadRequestError)
          assert.deepEqual(
            [e.code, e.param, e.type, e.requestID],
            ['unknown_parameter', 'foo', 'invalid_request_error', 'req_test'],
          )
          return true
        })
      },
    )
  })

  it('[STR-6] any reply, cut anywhere, is accepted whole or as a typed error, and the buffered object is what it accumulates', async () => {
    await fc.assert(
      fc.asyncProperty(replies({ custom: false }), async reply => {
        const { sse, object } = encode(chat, body, reply)
        const all = frames(sse)
        const stream = playing(sse).chat.completions.stream(body)
        if (reply.end instanceof GatewayError) {
          assert.ok(!all.includes('[DONE]'))
          assert.equal(all.filter(f => f.error).length, 1)
          await assert.rejects(stream.finalChatCompletion(), OpenAI.APIError)
          return
        }
        assert.equal(all.filter(f => f === '[DONE]').length, 1)
        assert.equal(all.filter(f => f.choices?.[0]?.finish_reason).length, 1)
        assert.deepEqual(sdkView(await stream.finalChatCompletion()), sdkView(object))
      }),
      { numRuns: 150, seed: 11 },
    )
  })

  it('[GEN-2] whatever is sent is accepted when it comes back', () => {
    fc.assert(
      fc.property(replies({ custom: false }), reply => {
        if (reply.end instanceof GatewayError) return
        const { object } = encode(chat, { ...body, stream: false, stream_options: null }, reply)
        const { message } = (object as any).choices[0]
        const results = (message.tool_calls ?? []).map((c: any) => ({
          role: 'tool',
          tool_call_id: c.id,
          content: 'ok',
        }))
        accepted(chat, { model: 'eb1-preview', messages: [user, message, ...results, user] })
      }),
      { numRuns: 200, seed: 12 },
    )
  })
})
