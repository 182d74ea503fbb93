/** Structured output between a client's conversation and a dialect: what is sent, and what is read of a reply. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import type { Conversation, OutputFormat, Tool } from '../../core/canon/conversation.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import { REQUEST_WORK, Work } from '../../core/canon/work.ts'
import { Sequencer } from '../../core/engine/sequence.ts'
import type { Decoder } from '../../core/ports/dialect.ts'
import * as anthropic from '../../providers/anthropic-messages/output-schema.ts'
import { dialects } from '../../providers/index.ts'
import { sentTo, structuredDecoder, unfitFor } from '../../providers/structured-output.ts'
import { backendOf, contextOf, conversationOf } from './dialect-kit.ts'

const CLOSED = { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'], additionalProperties: false }
const OUTPUT: OutputFormat = { schema: CLOSED, name: 'n', strict: true, path: 'text.format' }
const GET: Tool = { type: 'function', name: 'get', parameters: { type: 'object', properties: {} }, path: 'tools[0]' }

/** The body that a backend gets. */
function sent(dialect: string, model: string, init: Partial<Conversation>, supports?: Iterable<string>): any {
  const own = dialects[dialect]!
  const backend = backendOf(own, { model, supports })
  const { conversation } = sentTo(conversationOf({ output: OUTPUT, ...init } as any), backend, own)
  return JSON.parse(own.request(conversation, backend, contextOf()).body)
}

describe('requests', () => {
  const namedJson = { name: 'n', schema: CLOSED, strict: true }

  test('[GEN-3] each dialect asks in its own form', () => {
    assert.deepEqual(sent('openai-chat', 'm', {}).response_format, { type: 'json_schema', json_schema: namedJson })
    assert.deepEqual(sent('openai-responses', 'm', { verbosity: 'low' }).text, {
      verbosity: 'low',
      format: { type: 'json_schema', ...namedJson },
    })
    const { responseMimeType, responseJsonSchema } = sent('gemini', 'gemini-2.5-pro', {}).generationConfig
    assert.deepEqual([responseMimeType, responseJsonSchema], ['application/json', CLOSED])
    assert.deepEqual(sent('anthropic-messages', 'claude-sonnet-4-5', {}).output_config.format, {
      type: 'json_schema',
      schema: CLOSED,
    })
    const any = { output: { strict: false, path: 'p' } }
    assert.deepEqual(sent('openai-chat', 'm', any).response_format, { type: 'json_object' })
    assert.deepEqual(sent('openai-responses', 'm', any).text.format, { type: 'json_object' })
    assert.equal(sent('gemini', 'm', any).generationConfig.responseJsonSchema, undefined)
  })

  test('[GEN-3] where there is no form, one tool is forced; it is strict where schema and backend are', () => {
    const without = ['tools', 'forced_tool_choice', 'strict_tools']
    const { tools, tool_choice, response_format } = sent('openai-chat', 'm', {}, without)
    assert.equal(response_format, undefined)
    assert.deepEqual([tools.length, tools[0].function.strict], [1, true])
    assert.deepEqual(tool_choice, { type: 'function', function: { name: tools[0].function.name } })
    assert.equal(sent('openai-chat', 'm', {}, without.slice(0, 2)).tools[0].function.strict, undefined)
    const loose = { output: { ...OUTPUT, strict: false } }
    assert.equal(sent('openai-chat', 'm', loose, without).tools[0].function.strict, undefined)
    for (const model of ['m', 'claude-3-7-sonnet-latest', 'claude-sonnet-4-20250514'])
      assert.equal(sent('anthropic-messages', model, {}).tool_choice.type, 'tool')
    assert.equal(sent('gemini', 'gemini-2.0-flash', {}).toolConfig.functionCallingConfig.mode, 'ANY')
  })

  test('[GEN-3] with tools of the client the model has to call one of all, unless the client forces its own', () => {
    const without = ['tools', 'forced_tool_choice']
    const body = sent('openai-chat', 'm', { tools: [GET], toolChoice: { type: 'auto' } }, without)
    assert.deepEqual([body.tools.length, body.tool_choice], [2, 'required'])
    const forced = sent('openai-chat', 'm', { tools: [GET], toolChoice: { type: 'required' } }, without)
    assert.deepEqual([forced.tools.length, forced.tool_choice], [1, 'required'])
    const none = sent('openai-chat', 'm', { tools: [GET], toolChoice: { type: 'none' } }, without)
    assert.equal(none.tool_choice.function.name, 'final_reply')
    // Gemini before 3 takes no schema beside tools.
    assert.equal(sent('gemini', 'gemini-2.5-pro', { tools: [GET] }).generationConfig?.responseMimeType, undefined)
    assert.ok(sent('gemini', 'gemini-3-pro-preview', { tools: [GET] }).generationConfig.responseMimeType)
  })

  test('[REQ-1] what a backend lacks is named at the member that asked for the format', () => {
    const unfit = (dialect: string, init: Partial<Conversation>, supports?: string[]) =>
      unfitFor(
        conversationOf({ output: OUTPUT, ...init } as any),
        backendOf(dialects[dialect]!, { supports }),
        dialects[dialect]!,
      )
    assert.equal(unfit('openai-chat', {}), null)
    assert.equal(unfit('openai-chat', {}, ['tools'])!.param, 'text.format')
    assert.equal(unfit('openai-chat', {}, [])!.param, 'text.format')
    assert.match(unfit('anthropic-messages', { reasoning: { thinking: 'adaptive' } })!.requirement, /with thinking/)
    const prefill: any = { surface: 'messages', turns: [{ role: 'assistant', parts: [{ type: 'text', text: '{' }] }] }
    assert.match(unfit('anthropic-messages', prefill)!.requirement, /continues/)
    // One call a turn is the client's wish for its own tools.
    assert.equal(unfit('openai-chat', { parallelToolCalls: false }, ['tools', 'forced_tool_choice']), null)
  })

  test('[GEN-3] the schema for Anthropic: bounds are told, unions renamed, what has no form gets the tool', () => {
    assert.deepEqual(
      outputSchema({
        ...CLOSED,
        properties: { a: { type: 'integer', minimum: 1, description: 'x' }, b: { oneOf: [{ type: 'null' }] } },
      })!['properties'],
      { a: { type: 'integer', description: 'x\nminimum: 1' }, b: { anyOf: [{ type: 'null' }] } },
    )
    assert.equal(outputSchema({ type: 'object' }), null)
    assert.equal(outputSchema({ ...CLOSED, properties: { a: { $ref: '#' } } }), null)
    assert.equal(outputSchema({ ...CLOSED, patternProperties: {} }), null)
    // Each definition refers twice to the next: 2^40 ways, and each place is looked at once.
    const $defs: Record<string, object> = {}
    for (let i = 0; i < 40; i++)
      $defs[`d${i}`] = { anyOf: [{ $ref: `#/$defs/d${i + 1}` }, { $ref: `#/$defs/d${i + 1}` }] }
    $defs['d40'] = { type: 'null' }
    assert.ok(outputSchema({ ...CLOSED, properties: { a: { $ref: '#/$defs/d0' } }, $defs }))
  })
})

const outputSchema = (schema: Record<string, unknown>) => anthropic.outputSchema(schema, new Work(REQUEST_WORK))

/** A decoder that pushes these events, some in each frame. */
function scripted(events: readonly StreamEvent[]): Decoder {
  let next = 0
  return {
    frame: (_event, _data, push) => next < events.length && push(events[next++]!),
    body: (_text, push) => events.forEach(push),
    end: push => events.at(-1)?.type !== 'finish' && push({ type: 'finish', reason: 'stop' }),
  }
}

/** What leaves, in the order of the grammar. */
function read(events: readonly StreamEvent[], tool: string | null, init: Partial<Conversation> = {}, search = 'web') {
  const conversation = conversationOf({ output: OUTPUT, ...init } as any)
  const out: StreamEvent[] = []
  const sequencer = new Sequencer(event => out.push(event))
  const decoder = structuredDecoder(scripted(events), conversation, tool, search)
  let failed = false
  const push = (event: StreamEvent) => {
    if (event.type === 'error') failed = true
    else sequencer.push(event)
  }
  for (let i = 0; i < events.length && !decoder.done; i++) decoder.frame('', '', push)
  if (!decoder.done) decoder.end(push)
  if (!failed) sequencer.end({ type: 'finish', reason: 'stop' })
  const text = out.map(event => (event.type === 'text' ? event.text : '')).join('')
  const calls = out.flatMap(event => (event.type === 'tool_call' ? [event] : []))
  return { text, calls, failed, finish: out.find(event => event.type === 'finish'), out }
}

const call = (index: number, name: string, pieces: readonly string[]): StreamEvent[] => [
  { type: 'tool_call', index, id: `c${index}`, kind: 'function', name },
  ...pieces.map((text): StreamEvent => ({ type: 'tool_args', index, text })),
  { type: 'tool_end', index },
]
const texts = (pieces: readonly string[]): StreamEvent[] => pieces.map(text => ({ type: 'text', text }))
const cut = (text: string, at: readonly number[]): string[] => {
  const places = [...new Set([0, ...at.map(n => n % (text.length + 1)), text.length])].sort((a, b) => a - b)
  return places.slice(1).map((end, i) => text.slice(places[i], end))
}
const places = fc.array(fc.nat(), { maxLength: 6 })

describe('replies', () => {
  test('[GEN-3] a text is whole exactly when it meets the schema, however it is cut and wherever it comes from (property)', () => {
    const written = fc.oneof(
      fc.integer().map(a => JSON.stringify({ a })),
      fc.integer().map(a => ` {"a" : ${a}}\n`),
      fc.constantFrom(
        '{"a":"1"}',
        '{}',
        '{"a":1,"b":2}',
        '[1]',
        '',
        'I cannot',
        '{"a":1} so',
        '{"a":1',
        '```json\n{"a":1}\n```',
      ),
    )
    fc.assert(
      fc.property(
        written,
        places,
        fc.constantFrom('text', 'call', 'prose, then call', 'text in place of the call'),
        (text, at, from) => {
          let meets = false
          try {
            const { a, ...more } = JSON.parse(text)
            meets = Number.isInteger(a) && Object.keys(more).length === 0
          } catch {}
          const pieces = cut(text, at)
          const tool = from === 'text' ? null : 'final_reply'
          const events =
            from.includes('call') && from !== 'text in place of the call'
              ? call(0, 'final_reply', pieces)
              : texts(pieces)
          const reply = read(from.startsWith('prose') ? [...texts(['Let me ', '{see}']), ...events] : events, tool)
          assert.equal(reply.failed, !meets, `${from}: ${text}`)
          assert.deepEqual(reply.calls, [])
          if (meets)
            assert.deepEqual([reply.text.trim(), reply.finish], [text.trim(), { type: 'finish', reason: 'stop' }])
          else assert.equal(reply.finish, undefined)
          // A call without arguments means an empty object.
          assert.ok((text || '{}').startsWith(reply.text) || reply.text.trim() === '')
        },
      ),
      { numRuns: 500 },
    )
  })

  test('[GEN-3] calls of the client keep their order and are numbered without gaps, whatever stands between them (property)', () => {
    const made = fc.array(fc.constantFrom('get', 'final_reply', 'put'), { minLength: 1, maxLength: 6 })
    fc.assert(
      fc.property(made, fc.boolean(), (names, together) => {
        const parts = names.map((name, i) => call(i, name, ['{"a"', ':1}']))
        // Together: all begin before the first ends.
        const events = together ? [0, 1, 2, 3].flatMap(i => parts.map(part => part[i]!)) : parts.flat()
        const reply = read(events, 'final_reply')
        assert.ok(!reply.failed)
        assert.deepEqual(
          reply.calls.map(({ name, index }) => [name, index]),
          names.filter(name => name !== 'final_reply').map((name, i) => [name, i]),
        )
        const args = reply.out.flatMap(event => (event.type === 'tool_args' ? [event.text] : []))
        assert.equal(args.join(''), '{"a":1}'.repeat(reply.calls.length))
        assert.equal(reply.text, names.includes('final_reply') ? '{"a":1}' : '')
        assert.equal((reply.finish as any).reason, reply.calls.length > 0 ? 'tool_calls' : 'stop')
      }),
    )
  })

  test('[GEN-3] text before a call of the client is shown; before a search of the gateway it is not', () => {
    for (const tool of [null, 'final_reply']) {
      assert.equal(read([...texts(['I look.']), ...call(0, 'get', ['{}'])], tool).text, 'I look.')
      assert.equal(read([...call(0, 'get', ['{}']), ...texts(['I look.'])], tool).text, 'I look.')
      const searching = read([...texts(['I look.']), ...call(0, 'web', ['{}'])], tool)
      assert.deepEqual([searching.text, searching.failed, searching.calls.length], ['', false, 1])
    }
  })

  test('[GEN-3] a refusal, a cut reply and a stop string end as they are', () => {
    assert.ok(!read([{ type: 'refusal', text: 'no' }], 'final_reply').failed)
    const length: StreamEvent = { type: 'finish', reason: 'length' }
    assert.ok(!read([...texts(['{"a":']), length], null).failed)
    assert.ok(!read([...call(0, 'final_reply', ['{"a":']).slice(0, 2), length], 'final_reply').failed)
    assert.ok(!read(texts(['{"a":']), null, { sampling: { stop: ['1'], logprobs: false } }).failed)
    assert.ok(read(texts(['{"a":']), null).failed)
  })

  test('[GEN-3] text that waits is bounded', () => {
    const long = texts(Array(20).fill('x'.repeat(100_000)))
    assert.ok(read([...long, ...call(0, 'get', ['{}'])], 'final_reply').failed)
  })
})
