/** `compaction`: when a conversation is compacted, the calls that this takes, and what edits clear of a history. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import type { Limits } from '../../config/types.ts'
import { standIn } from '../../core/canon/compaction.ts'
import type { CompactionWish, ContextEdit, Conversation, Part, Turn } from '../../core/canon/conversation.ts'
import { GatewayError } from '../../core/canon/errors.ts'
import type { CompactionEvent, FinishReason, StreamEvent } from '../../core/canon/events.ts'
import { type Call, conversation as conversationSlot, estimate, type Reply } from '../../core/plugin.ts'
import { Sealer } from '../../core/tools/sealer.ts'
import { countTokens, PromptCount } from '../../meter/index.ts'
import { CLEARED, edit } from '../../plugins/compaction/edits.ts'
import { compaction } from '../../plugins/compaction/index.ts'
import { INSTRUCTIONS } from '../../plugins/compaction/summary.ts'
import { Capsules } from '../../plugins/conversation/capsules.ts'
import { checkHistory } from '../../plugins/conversation/history.ts'
import { type CompactionPlan, compacting, identity, model, plan as planSlot } from '../../plugins/shared/slots.ts'
import { plainConversation, runPlugin } from '../../plugins/testing.ts'
import { caller, finish, gatewayOf, modelOf, text } from './kit.ts'

const MEDIA = { image_tokens: 85, document_tokens: 1500 }
const tokensOf = (conversation: Conversation) => new PromptCount(conversation).now(MEDIA)

const said = (words: string): Turn => ({ role: 'user', parts: [text(words)] })
const answered = (words: string): Turn => ({ role: 'assistant', parts: [text(words)] })
const TURNS: Turn[] = [said('first'), answered('one'), { role: 'system', parts: [text('be brief')] }, said('second')]
const WISH: CompactionWish = { threshold: 10, only: false, keeps: 'nothing', path: 'context_management' }

interface Setup {
  wish?: Partial<CompactionWish>
  plan?: Partial<CompactionPlan>
  asked?: Partial<Conversation>
  config?: { max_summary?: number; keep_text?: number }
  window?: number
  limits?: Partial<Limits>
  maxOutput?: number
  input?: number
}

/** Runs the plugin with the plan that it makes itself, as `routing` would hand it on. */
async function run(setup: Setup, events: (call: Call, before: number) => readonly StreamEvent[], leaveAfter?: number) {
  const wish = { ...WISH, ...setup.wish }
  const asked = plainConversation({ turns: TURNS, compaction: wish, ...setup.asked })
  const calls: Call[] = []
  const further: number[] = []
  const options = {
    config: setup.config ?? {},
    gateway: gatewayOf(),
    slots: [
      [conversationSlot, asked],
      [identity, caller({ limits: setup.limits ?? {} })],
      [estimate, { input: setup.input ?? tokensOf(asked) }],
      [model, modelOf({ context_window: setup.window ?? 10_000, max_output_tokens: setup.maxOutput ?? null })],
    ] as never,
  }
  const first = await runPlugin(compaction, { ...options, events: [finish] })
  const made = await first.exchange.get(compacting)(first.exchange)
  const plan = made && !('kind' in made) ? { ...made, ...setup.plan } : undefined
  const whole = await runPlugin(compaction, {
    ...options,
    slots: [
      ...(options.slots as never[]),
      [planSlot, { search: null, keepsFirstCall: false, input: 0, compaction: plan }],
    ] as never,
    leaveAfter,
    events: (call, before) => {
      calls.push(call)
      call.report.calledAgain = tokens => void further.push(tokens)
      return events(call, before)
    },
  })
  return { ...whole, made, plan, calls, further, asked }
}

const summary: StreamEvent[] = [
  { type: 'reasoning', text: 'let me think', part: 0 },
  text(' the sum'),
  text('mary '),
  { type: 'usage', usage: { prompt: 50, cached: 20, output: 9, reasoning: 4 } },
  finish,
]
const answer: StreamEvent[] = [text('the answer'), { type: 'usage', usage: { output: 2 } }, finish]
const both = (_: Call, before: number) => (before === 0 ? summary : answer)
const typesOf = (events: readonly { type: string }[]) => events.map(({ type }) => type).filter(type => type !== 'start')
const compactionIn = (events: readonly { type: string }[]) =>
  events.find(({ type }) => type === 'compaction') as CompactionEvent

describe('the calls', () => {
  test('a request that wants no compaction, or is below its threshold, is one call as ever', async () => {
    const below = await run({ wish: { threshold: 1000 } }, () => answer)
    assert.equal(below.made, null)
    assert.deepEqual(typesOf(below.events), ['text', 'finish'])
    assert.equal(below.calls[0]!.sent, below.asked)
    const none = await run({ asked: { compaction: undefined } }, () => answer)
    assert.equal(none.made, null)
  })

  test('a summary is written first, then the model answers it in place of what was said', async () => {
    const { events, calls, further, asked, plan } = await run({}, both)
    assert.deepEqual(typesOf(events), ['compaction', 'text', 'finish'])
    assert.equal(calls.length, 2)
    const [first, second] = calls.map(({ sent }) => sent) as [Conversation, Conversation]
    // Its beginning is what providers have in their caches.
    assert.deepEqual(first.turns.slice(0, 3), TURNS.slice(0, 3))
    assert.deepEqual(first.turns[3], { role: 'user', parts: [text('second'), text(INSTRUCTIONS)] })
    assert.equal(first.maxOutputTokens, plan!.cap)
    assert.deepEqual(first.toolChoice, { type: 'none' })
    assert.deepEqual(
      second.turns.map(({ role, parts }) => [role, parts]),
      [['user', [text(standIn('the summary'))]]],
    )
    assert.deepEqual(second.system, [text('be brief')])
    const event = compactionIn(events)
    assert.deepEqual([event.summary, event.tokens], ['the summary', countTokens(' the summary ')])
    assert.deepEqual(event.usage, { prompt: 50, cached: 20, output: 9, reasoning: 4 })
    assert.equal(event.next, tokensOf(second))
    assert.deepEqual([further, calls[1]!.input], [[event.next], event.next])
    assert.equal(calls[1]!.asked, asked)
  })

  test('where nothing else was asked for, the reply ends with the compaction', async () => {
    const { events, calls } = await run({ wish: { only: true, threshold: undefined, keeps: 'user' } }, both)
    assert.deepEqual(typesOf(events), ['compaction', 'finish'])
    assert.equal(calls.length, 1)
    const event = compactionIn(events)
    assert.equal(event.next, null)
    assert.deepEqual(event.kept, [said('first'), TURNS[2], said('second')])
    assert.equal((events.at(-1) as unknown as { reason: string }).reason, 'compaction')
  })

  test('of the messages of the user, the newest stay up to keep_text', async () => {
    const wish = { only: true, keeps: 'user' as const }
    const { events } = await run({ wish, config: { keep_text: 8 } }, both)
    assert.deepEqual(compactionIn(events).kept, [TURNS[2], said('second')])
  })

  test("a client's own words take the place of the gateway's, and are counted as the client's", async () => {
    const { calls, events, plan } = await run({ wish: { instructions: 'Sum up in a word.' } }, both)
    assert.deepEqual(calls[0]!.sent.turns.at(-1)!.parts, [text('second'), text('Sum up in a word.')])
    assert.equal(compactionIn(events).asked, plan!.asked)
    assert.ok(plan!.asked > 0 && plan!.asked === plan!.added)
  })

  test('searches, formats, stop strings and loud reasoning are left out of the first call alone', async () => {
    const tools: Conversation['tools'] = [
      { type: 'web_search', path: 'tools[0]' },
      { type: 'function', name: 'f', parameters: {}, path: 'tools[1]' },
    ]
    const asked: Partial<Conversation> = {
      ...{ tools, toolChoice: { type: 'required' }, maxOutputTokens: 7, maxOutputField: 'max_tokens' },
      ...{ sampling: { stop: ['x'], logprobs: true }, reasoning: { effort: 'high', budgetTokens: 5000 } },
      output: { strict: false, path: 'text.format' },
    }
    const { calls } = await run({ asked }, both)
    const [first, second] = calls.map(({ sent }) => sent) as [Conversation, Conversation]
    assert.deepEqual(
      [first.tools, first.output, first.sampling.stop, first.reasoning, first.maxOutputField],
      [[tools[1]], undefined, [], { effort: 'low' }, undefined],
    )
    const { turns: _, work: __, system: ___, ...rest } = second
    const { turns: ____, work: _____, system: ______, ...own } = calls[0]!.asked
    assert.deepEqual(rest, own)
  })

  test('reasoning that the provider did not report is counted', async () => {
    const unreported = summary.filter(({ type }) => type !== 'usage')
    const { events } = await run({ wish: { only: true } }, () => unreported)
    const { usage, reasoning, estimated } = compactionIn(events)
    assert.deepEqual([usage, reasoning, estimated], [null, 3, false])
  })
})

describe('what goes wrong', () => {
  const ends = (reason: FinishReason, ...before: StreamEvent[]): StreamEvent[] => [
    ...before,
    { type: 'finish', reason },
  ]
  const cases: [string, StreamEvent[], string, boolean, RegExp][] = [
    [
      'far beyond its cap',
      ends('stop', text('word '.repeat(60_000))),
      'upstream_server_error',
      true,
      /did not end within/,
    ],
    ['its cap', ends('length', text('half')), 'upstream_server_error', true, /did not end within \d+ tokens/],
    ['a full window', ends('context_full', text('half')), 'upstream_server_error', true, /did not end within/],
    [
      'a refusal',
      ends('stop', { type: 'refusal', text: 'no' }),
      'upstream_server_error',
      false,
      /refused to summarise/,
    ],
    ['a filter', ends('content_filter'), 'upstream_server_error', false, /refused to summarise/],
    ['the idle clock', ends('idle_timeout', text('half')), 'gateway_timeout', true, /did not come in time/],
    ['no text', ends('stop', text('  ')), 'upstream_server_error', true, /wrote no summary/],
  ]
  for (const [what, events, code, retriable, words] of cases) {
    test(`a summary that ends by ${what}: nothing is answered, and the error names what asked for it`, async () => {
      const { exchange, calls } = await run({}, () => events)
      assert.equal(calls.length, 1)
      const { error } = exchange
      assert.deepEqual([error?.code, error?.param, error?.retriable], [code, 'context_management', retriable])
      assert.match(error!.message, /^The conversation could not be compacted \('context_management'\): /)
      assert.match(error!.message, words)
    })
  }

  test('a fault of the provider keeps its code, its wait and its details', async () => {
    const fault = new GatewayError('provider_unavailable', { message: 'Down.', horizonMs: 7, details: { a: 1 } })
    const { exchange } = await run({}, () => [{ type: 'error', error: fault }])
    const { error } = exchange
    assert.deepEqual([error?.code, error?.horizonMs, error?.details], [fault.code, 7, { a: 1 }])
    assert.equal(error?.message, "The conversation could not be compacted ('context_management'): Down.")
  })

  test('a client that leaves while the summary is written gets no second call', async () => {
    const { calls, settlement } = await run({}, both, 1)
    assert.equal(calls.length, 1)
    assert.deepEqual([settlement.outcome, settlement.delivered], ['client_gone', false])
  })
})

describe('the plan', () => {
  const planFor = async (setup: Setup) => (await run(setup, () => [finish])).made
  const wish = { only: true, threshold: undefined }

  test('above the threshold, not at it', async () => {
    assert.equal(await planFor({ wish: { threshold: 200 }, input: 200 }), null)
    assert.ok(await planFor({ wish: { threshold: 200 }, input: 201 }))
    assert.ok(await planFor({ wish, input: 1 }))
  })

  test('without a threshold of its own, four fifths of the window where that is less', async () => {
    const unnamed = { threshold: 150_000, withinWindow: true } as const
    assert.equal(await planFor({ wish: unnamed, input: 8000 }), null)
    assert.ok(await planFor({ wish: unnamed, input: 8001 }))
    assert.equal(await planFor({ wish: unnamed, input: 150_000, window: 400_000 }), null)
    assert.ok(await planFor({ wish: unnamed, input: 150_001, window: 400_000 }))
  })

  test('the summary is capped by option, model, window, and by the client where it is all that is written', async () => {
    const cap = async (setup: Setup) => ((await planFor({ window: 100_000, ...setup })) as CompactionPlan).cap
    assert.equal(await cap({}), 8192)
    assert.equal(await cap({ config: { max_summary: 300 } }), 300)
    assert.equal(await cap({ maxOutput: 500 }), 500)
    assert.equal(await cap({ asked: { maxOutputTokens: 64 } }), 8192)
    assert.equal(await cap({ limits: { max_output_tokens: 700 } }), 700)
    assert.equal(await cap({ limits: { output_tokens_per_minute: 4001 } }), 2000, 'half is left for the answer')
    assert.equal(await cap({ wish, limits: { output_tokens_per_minute: 4001 } }), 4001)
    assert.equal(await cap({ wish, asked: { maxOutputTokens: 64 } }), 64)
    const { added, cap: left } = (await planFor({ window: 10_000, input: 9000 })) as CompactionPlan
    assert.equal(left, 1000 - added)
  })

  test('what both calls may take is told to admission', async () => {
    const { further, cap } = (await planFor({})) as CompactionPlan
    const bare = tokensOf(plainConversation({ turns: [], system: [text('be brief')] }))
    assert.equal(further.output, cap)
    assert.ok(further.input >= bare + cap && further.input <= bare + cap + 80, `${further.input}`)
    assert.deepEqual(((await planFor({ wish })) as CompactionPlan).further, { input: 0, output: 0 })
  })

  test('a prompt that leaves no room for a summary is refused with the figures', async () => {
    const refused = (await planFor({ window: 1000, input: 900 })) as Reply & { kind: 'error' }
    assert.deepEqual([refused.error.code, refused.error.param], ['context_length_exceeded', 'context_management'])
    assert.match(refused.error.message, /^prompt is too long: 900 tokens > \d+ maximum\. Its summary would not fit/)
  })
})

// ---- edits ------------------------------------------------------------------------------------------------------------

const call = (id: string, name = 'read'): Part => ({
  ...{ type: 'call', kind: 'function', path: '' },
  ...{ id, name, input: '{"file":"a"}' },
})
const result = (callId: string, words = 'long '.repeat(50)): Part => ({
  ...{ type: 'result', kind: 'function', path: '' },
  ...{ callId, content: [text(words)] },
})
const used = (id: string, name?: string): Turn[] => [
  { role: 'assistant', parts: [call(id, name)] },
  { role: 'tool', parts: [result(id)] },
]
const USES: ContextEdit = {
  ...{ type: 'clear_tool_uses', trigger: { unit: 'uses', above: 2 } },
  ...{ keep: 1, atLeast: 0, inputs: [], exclude: [] },
}
const history = (...turns: Turn[]) => plainConversation({ turns: [said('do it'), ...turns] })
const THREE = history(...used('a'), ...used('b', 'write'), ...used('c'))

async function managed(asked: Conversation, ...edits: ContextEdit[]) {
  const made = await edit(asked, edits, tokensOf)
  assert.ok('edited' in made)
  return { ...made, parts: made.conversation.turns.flatMap(({ parts }) => parts) }
}
const isCleared = (part: Part) =>
  part.type === 'result' && part.content[0]?.type === 'text' && part.content[0].text === CLEARED

describe('edits', () => {
  test('old results are cleared, the newest stay, and the tokens are those that the meter counts', async () => {
    const { conversation, edited, parts } = await managed(THREE, USES)
    assert.deepEqual(
      parts.filter(isCleared).map(part => part.type === 'result' && part.callId),
      ['a', 'b'],
    )
    const tokens = tokensOf(THREE) - tokensOf(conversation)
    assert.deepEqual(edited, { before: tokensOf(THREE), applied: [{ type: 'clear_tool_uses', cleared: 2, tokens }] })
    assert.ok(tokens > 80)
  })

  test('a trigger must be passed: in uses that have a result, or in tokens', async () => {
    const nothing = async (change: Partial<typeof USES & object>, asked = THREE) =>
      (await managed(asked, { ...USES, ...change } as ContextEdit)).conversation === asked
    assert.equal(await nothing({ trigger: { unit: 'uses', above: 3 } }), true)
    assert.equal(await nothing({ trigger: { unit: 'tokens', above: tokensOf(THREE) } }), true)
    assert.equal(await nothing({ trigger: { unit: 'tokens', above: tokensOf(THREE) - 1 } }), false)
    assert.equal(await nothing({ atLeast: 1000 }), true)
    assert.equal(await nothing({ keep: 3 }), true)
  })

  test('excluded tools are left alone, and arguments go where that is asked for', async () => {
    const inputs = async (change: object) =>
      (await managed(THREE, { ...USES, ...change } as ContextEdit)).parts.flatMap((part): unknown[] =>
        part.type === 'call' ? [part.input === '{}'] : isCleared(part) ? ['cleared'] : [],
      )
    assert.deepEqual(await inputs({ exclude: ['write'] }), [false, 'cleared', false, false])
    assert.deepEqual(await inputs({ inputs: true }), [true, 'cleared', true, 'cleared', false])
    assert.deepEqual(await inputs({ inputs: ['write'] }), [false, 'cleared', true, 'cleared', false])
  })

  const thought = (words: string): Turn => ({
    role: 'assistant',
    parts: [{ type: 'reasoning', summary: [words], handle: 'h' }, text(words)],
  })
  test('reasoning stays in the newest turns that have some; a turn lasts until the next message of the user', async () => {
    const one = [thought('1a'), ...used('a'), thought('1b')]
    const asked = plainConversation({ turns: [said('x'), ...one, said('y'), thought('2'), said('z'), answered('3')] })
    const left = async (keep: number) =>
      (await managed(asked, { type: 'clear_thinking', keep })).parts.flatMap(part =>
        part.type === 'reasoning' ? part.summary : [],
      )
    assert.deepEqual(await left(1), ['2'])
    assert.deepEqual(await left(2), ['1a', '1b', '2'])
    const { edited } = await managed(asked, { type: 'clear_thinking', keep: 1 })
    assert.deepEqual(
      edited.applied.map(({ type, cleared }) => [type, cleared]),
      [['clear_thinking', 1]],
    )
  })

  test('an edit sees what those before it have left', async () => {
    const asked = history(thought('well '.repeat(40)), said('go on'), thought('b'), ...used('a'), ...used('b'))
    const thinking: ContextEdit = { type: 'clear_thinking', keep: 1 }
    const { conversation: first } = await managed(asked, thinking)
    const uses = { ...USES, trigger: { unit: 'tokens', above: tokensOf(first) } } as ContextEdit
    assert.equal((await managed(asked, thinking, uses)).edited.applied.length, 1)
    const lower = { ...USES, trigger: { unit: 'tokens', above: tokensOf(first) - 1 } } as ContextEdit
    const { conversation, edited } = await managed(asked, thinking, lower)
    assert.deepEqual(
      edited.applied.map(({ tokens }) => tokens),
      [tokensOf(asked) - tokensOf(first), tokensOf(first) - tokensOf(conversation)],
    )
  })

  test('edits are deterministic, do nothing twice, and leave a history that is whole', async () => {
    const turns = fc.array(
      fc.oneof(
        fc.constant([said('go on')]),
        fc.string({ maxLength: 9 }).map(words => [thought(`t${words}`)]),
        fc.constantFrom('read', 'write').map(name => [name]),
      ),
      { maxLength: 12 },
    )
    const amount = fc.nat({ max: 5 })
    const edits = fc
      .tuple(amount, amount, fc.boolean(), amount)
      .map(([keep, above, inputs, kept]): ContextEdit[] => [
        { type: 'clear_thinking', keep: kept + 1 },
        { ...USES, keep, trigger: { unit: 'uses', above }, inputs: inputs || [] } as ContextEdit,
      ])
    await fc.assert(
      fc.asyncProperty(turns, edits, async (some, edits) => {
        let n = 0
        const all = some.flatMap(one => (typeof one[0] === 'string' ? used(`c${n++}`, one[0]) : (one as Turn[])))
        const asked = history(...all)
        const before = JSON.stringify(asked.turns)
        const first = await managed(asked, ...edits)
        assert.equal(JSON.stringify(asked.turns), before, 'what the client sent is not changed in place')
        assert.deepEqual(first.conversation.turns, (await managed(asked, ...edits)).conversation.turns)
        assert.equal(checkHistory(first.conversation.turns), undefined)
        assert.ok(tokensOf(first.conversation) <= first.edited.before)
        const again = await managed(first.conversation, ...edits)
        assert.deepEqual(again.conversation.turns, first.conversation.turns)
        assert.deepEqual(again.edited.applied, [])
      }),
      { numRuns: 60 },
    )
  })
})

// ---- capsules ---------------------------------------------------------------------------------------------------------

describe('capsules', () => {
  const secret = new Uint8Array(32).fill(7)
  const capsules = new Capsules(secret)
  const contents = { summary: 'it was so', keeps: 'user' } as const
  const sealed = capsules.seal('acme', contents)
  const at = (value: string, claimed?: string): Turn => ({
    role: 'user',
    parts: [
      {
        ...text(''),
        capsule: { sealed: value, path: 'input[1].encrypted_content', ...(claimed !== undefined && { claimed }) },
      },
    ],
  })
  const asked = (...turns: Turn[]) => plainConversation({ turns, sealed: true })
  const opened = (conversation: Conversation, organization = 'acme') => {
    const whole = capsules.open(organization, conversation)
    assert.ok(!('kind' in whole), JSON.stringify(whole))
    return whole
  }
  const textsOf = ({ turns }: Conversation) =>
    turns.map(({ role, parts }) => [role, parts.map(part => (part.type === 'text' ? part.text : part.type))])

  test('the last one stands for what was before it, messages of the user aside; others are not looked at', () => {
    const whole = opened(asked(said('a'), answered('b'), at('nonsense'), answered('c'), at(sealed), answered('d')))
    assert.deepEqual(textsOf(whole), [
      ['user', ['a', standIn('it was so')]],
      ['assistant', ['d']],
    ])
    assert.equal(whole.sealed, undefined)
    const nothing = capsules.seal('acme', { summary: 's', keeps: 'nothing' })
    assert.deepEqual(textsOf(opened(asked(said('a'), answered('b'), at(nothing), said('d')))), [
      ['user', [standIn('s'), 'd']],
    ])
  })

  test('it counts as the text that is sent for it', () => {
    const plain = plainConversation({ turns: [said('a'), answered('d')] })
    plain.turns[0]!.parts.push(text(standIn('it was so')))
    assert.equal(tokensOf(opened(asked(said('a'), answered('b'), at(sealed), answered('d')))), tokensOf(plain))
  })

  const flipped = sealed.slice(0, -3) + (sealed.at(-3) === 'A' ? 'B' : 'A') + sealed.slice(-2)
  const foreign: [string, Conversation | Reply][] = [
    ['another organization', capsules.open('other', asked(at(sealed)))],
    ['another secret', new Capsules(new Uint8Array(32)).open('acme', asked(at(sealed)))],
    ['a changed one', capsules.open('acme', asked(at(flipped)))],
    ["a provider's own", capsules.open('acme', asked(at('gAAAAABpRealLooking=')))],
    ['one without a body', capsules.open('acme', asked(at('cmp_eba1_')))],
    ['one that is far too long', capsules.open('acme', asked(at(`cmp_eba1_${'A'.repeat(2_000_000)}`)))],
  ]
  for (const [what, refused] of foreign) {
    test(`${what}: refused by name, with a cure`, () => {
      assert.ok('kind' in refused && refused.kind === 'error')
      assert.deepEqual([refused.error.code, refused.error.param], ['invalid_value', 'input[1].encrypted_content'])
      assert.match(refused.error.message, /Remove the item and send the conversation/)
    })
  }

  test('a summary in clear beside it must be the same; one without a seal is the text itself', () => {
    assert.deepEqual(textsOf(opened(asked(at(sealed, 'it was so')))), [['user', [standIn('it was so')]]])
    const refused = capsules.open('acme', asked(at(sealed, 'it was different')))
    assert.ok('kind' in refused && refused.kind === 'error')
    assert.match(refused.error.message, /another summary than 'content'/)
    const own: Turn = {
      role: 'user',
      parts: [{ ...text('mine'), capsule: { sealed: '', keeps: 'nothing', path: '' } }],
    }
    assert.deepEqual(textsOf(opened(asked(said('a'), own))), [['user', [standIn('mine')]]])
  })

  test('what is sealed for one purpose is not opened for another', () => {
    const record = Buffer.from(sealed.slice('cmp_eba1_'.length), 'base64url')
    assert.equal(new Sealer(secret).open('acme', record), null)
  })
})
