/** Deltas that follow each other are read at once (frame-parser.ts, `run`), with the result of reading each. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { StreamEvent } from '../../core/canon/events.ts'
import { DeltaJoiner, piecesOf } from '../../core/canon/joined.ts'
import type { Dialect } from '../../core/ports/dialect.ts'
import { anthropicMessages } from '../../providers/anthropic-messages/index.ts'
import { openaiChat } from '../../providers/openai-chat/index.ts'
import { openaiResponses } from '../../providers/openai-responses/index.ts'
import { SseReader } from '../../providers/sse.ts'
import { backendOf, conversationOf, decoderFor } from './dialect-kit.ts'

interface Shape {
  dialect: Dialect
  opening: string
  /** Deltas, with `TEXT` for the JSON of their text, `N` for a counter and `PAD` for padding. */
  deltas: string[]
}

const named = (data: string) =>
  `event: ${JSON.parse(data.replace('TEXT', '""').replace('N', '1')).type}\ndata: ${data}\n\n`
const SHAPES: Shape[] = [
  {
    dialect: openaiChat,
    opening: 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n',
    deltas: [
      'data: {"id":"c1","choices":[{"index":0,"delta":{"content":TEXT},"finish_reason":null}]}\n\n',
      'data: {"id":"c1","choices":[{"index":0,"delta":{"reasoning_content":TEXT},"finish_reason":null}]}\n\n',
      'data: {"id":"c1","choices":[{"index":0,"delta":{"content":TEXT}}],"obfuscation":"PAD"}\n\n',
      'data:{"choices":[{"delta":{"content":TEXT}}]}\n\n',
      'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":TEXT}}]}}]}\n\n',
      'data: {"choices":[{"delta":{"content":TEXT,"tool_calls":[{"id":"c","function":{"name":"f","arguments":{"a":1.0}}}]}}]}\n\n',
      'event: x\ndata: {"choices":[{"delta":{"content":TEXT}}]}\n\n',
    ],
  },
  {
    dialect: anthropicMessages,
    opening: [
      '{"type":"message_start","message":{"usage":{"input_tokens":1}}}',
      '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
      '{"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":""}}',
    ]
      .map(named)
      .join(''),
    deltas: [
      named('{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":TEXT}}'),
      named('{"type":"content_block_delta","index":1,"delta":{"type":"thinking_delta","thinking":TEXT}}'),
      'event: content_block_delta\ndata: {"index":0,"delta":{"type":"text_delta","text":TEXT}}\n\n',
      'event: ping\ndata: {"index":0,"delta":{"type":"text_delta","text":TEXT}}\n\n',
    ],
  },
  {
    dialect: openaiResponses,
    opening: [
      '{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m","content":[]}}',
      '{"type":"response.content_part.added","item_id":"m","output_index":0,"content_index":0,"part":{"type":"output_text","text":""}}',
    ]
      .map(named)
      .join(''),
    deltas: [
      named(
        '{"type":"response.output_text.delta","sequence_number":N,"item_id":"m","output_index":0,"content_index":0,"delta":TEXT,"logprobs":[],"obfuscation":"PAD"}',
      ),
      named(
        '{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":TEXT,"sequence_number":N}',
      ),
      named('{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":TEXT}'),
    ],
  },
]

/** What a decoder makes of a stream, cut into reads. */
function decoded(dialect: Dialect, reads: readonly Buffer[], runs: boolean): StreamEvent[] {
  const events: StreamEvent[] = []
  const conversation = conversationOf({ tools: [{ type: 'function', name: 'f', parameters: {} }] as never })
  const decoder = decoderFor(dialect, conversation, backendOf(dialect))
  const joiner = new DeltaJoiner(event => events.push(event))
  const push = (event: StreamEvent) => joiner.push(event)
  const reader = new SseReader()
  let taken = 0
  for (const read of reads) {
    reader.push(
      read,
      (event, data) => decoder.frame(event, data, push),
      runs
        ? (text, at) => {
            const end = decoder.done ? at : decoder.deltas!(text, at, push)
            if (end > at) taken++
            return end
          }
        : undefined,
    )
    joiner.flush()
  }
  decoder.end(push)
  joiner.flush()
  if (runs) total += taken
  return events
}
let total = 0

const apart = (events: readonly StreamEvent[]): StreamEvent[] =>
  events.flatMap(event => piecesOf(event)?.map(piece => ({ ...event, text: piece }) as StreamEvent) ?? [event])
/** Deltas of one item as one: where a character is cut in two, the halves are in one piece or the other. */
function merged(events: readonly StreamEvent[]): unknown[] {
  const out: Record<string, unknown>[] = []
  for (const event of apart(events)) {
    const last = out.at(-1)
    const { text, ...rest } = event as StreamEvent & { text?: string }
    if (last && text !== undefined && JSON.stringify({ ...last, text: 0 }) === JSON.stringify({ ...rest, text: 0 }))
      last['text'] += text
    else out.push({ ...rest, text })
  }
  return out
}

const plain = fc.oneof(
  fc.string({ minLength: 1, maxLength: 8, unit: fc.constantFrom('a', 'é', ' ', '7', '漢') }),
  fc.constant('a text that is longer than what a slice copies'),
)
const any = fc.oneof(
  plain,
  fc.string({ unit: 'binary', maxLength: 12 }),
  fc.constantFrom('', '"', '\\', '\n', '😀', '\ud83d', '\ude00', '\u2028', '"}\n\ndata: '),
)
const spelled = (text: fc.Arbitrary<string>) =>
  fc.tuple(text, fc.boolean()).map(([value, ascii]) => {
    const json = JSON.stringify(value)
    return ascii ? json.replace(/[^\x00-\x7f]/g, c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`) : json
  })
const streams = (texts: fc.Arbitrary<string>, damage: boolean) =>
  fc.constantFrom(...SHAPES).chain(({ dialect, opening, deltas }) =>
    fc.array(fc.nat(deltas.length - 1), { minLength: 1, maxLength: 2 }).chain(kinds => {
      const frame = fc
        .tuple(
          fc.constantFrom(...kinds),
          spelled(texts),
          fc.nat(999),
          fc.string({ unit: fc.constantFrom('x', 'y'), maxLength: 4 }),
        )
        .map(([kind, json, n, pad]) =>
          deltas[kind]!.replace('TEXT', () => json)
            .replace('N', String(n))
            .replace('PAD', pad),
        )
      const damaged = fc
        .tuple(frame, fc.nat(), fc.constantFrom('', '"', '\\', '}', '0', '\u0001', '\n', '\r', ' ', ': x\n'))
        .map(([data, at, put]) => {
          const place = at % (data.length + 1)
          return data.slice(0, place) + put + data.slice(place + (at % 3))
        })
      const one = damage ? fc.oneof({ weight: 8, arbitrary: frame }, { weight: 1, arbitrary: damaged }) : frame
      return fc
        .tuple(fc.array(one, { minLength: 4, maxLength: 20 }), fc.array(fc.nat(), { maxLength: 4 }))
        .map(([frames, cuts]) => {
          const bytes = Buffer.from(opening + frames.join(''))
          const places = [0, ...cuts.map(cut => cut % bytes.length).sort((a, b) => a - b), bytes.length]
          return { dialect, reads: places.slice(1).map((end, i) => bytes.subarray(places[i], end)) }
        })
    }),
  )

test('what is read at once is what is read one by one, whatever a provider sends', () => {
  total = 0
  fc.assert(
    fc.property(streams(any, true), ({ dialect, reads }) => {
      assert.deepEqual(merged(decoded(dialect, reads, true)), merged(decoded(dialect, reads, false)))
    }),
    { numRuns: 1500 },
  )
  assert.ok(total > 500, `${total} runs`)
})

test('the pieces stay those of the provider', () => {
  fc.assert(
    fc.property(streams(plain, false), ({ dialect, reads }) => {
      assert.deepEqual(apart(decoded(dialect, reads, true)), apart(decoded(dialect, reads, false)))
    }),
    { numRuns: 500 },
  )
})

test('from the third delta on, those of a read are one run', () => {
  for (const { dialect, opening, deltas } of SHAPES) {
    const delta = (i: number) =>
      deltas[0]!
        .replace('TEXT', `"w${i}"`)
        .replace('N', `${i}`)
        .replace('PAD', 'x'.repeat(i % 3))
    const read = Buffer.from(opening + Array.from({ length: 10 }, (_, i) => delta(i)).join(''))
    total = 0
    const events = decoded(dialect, [read], true)
    assert.equal(total, 1, dialect.name)
    assert.deepEqual(piecesOf(events.find(event => event.type === 'text')!)?.length, 10, dialect.name)
  }
})
