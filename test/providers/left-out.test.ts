import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Dialect } from '../../core/ports/dialect.ts'
import { dialects } from '../../providers/index.ts'
import { inWords } from '../../providers/left-out.ts'
import { type BackendInit, backendOf, type ConversationInit, contextOf, conversationOf } from './dialect-kit.ts'

const leftOut = (dialect: Dialect, asked: ConversationInit, backend: BackendInit = {}): readonly string[] =>
  (dialect.request(conversationOf(asked), backendOf(dialect, backend), contextOf()).adjusted ?? []).map(inWords)

test('[GEN-2] what a dialect leaves out or lowers is told to the log, and nothing else is', () => {
  const asked: ConversationInit = {
    sampling: { temperature: 1.5, topP: 0.9, seed: 7 },
    verbosity: 'low',
    reasoning: { effort: 'ultra' },
  }
  assert.deepEqual(leftOut(dialects['openai-chat']!, asked), ['effort ultra as max'])
  assert.deepEqual(leftOut(dialects['openai-chat']!, asked, { effortCeiling: 'medium' }), ['effort ultra as medium'])
  assert.deepEqual(leftOut(dialects['openai-responses']!, asked), ['seed', 'effort ultra as max'])
  assert.deepEqual(leftOut(dialects['openai-responses']!, asked, { model: 'o4-mini' }), [
    'temperature',
    'top_p',
    'seed',
    'effort ultra as high',
  ])
  const plain = { ...asked, reasoning: {} }
  assert.deepEqual(leftOut(dialects['anthropic-messages']!, plain), ['temperature 1.5 as 1', 'seed', 'verbosity'])
  assert.deepEqual(leftOut(dialects['anthropic-messages']!, { reasoning: { effort: 'high' } }), [])
  assert.deepEqual(
    leftOut(dialects['anthropic-messages']!, { reasoning: { effort: 'high' } }, { model: 'claude-sonnet-4-5' }),
    ['effort high as thinking 16384'],
  )
  assert.deepEqual(leftOut(dialects.gemini!, asked), ['verbosity', 'effort ultra as high'])
  assert.deepEqual(leftOut(dialects.gemini!, { sampling: { seed: 1_732_000_000_001 } }), [
    'seed 1732000000001 as 1128179713',
  ])
  assert.deepEqual(leftOut(dialects.gemini!, { reasoning: { effort: 'none' } }, { model: 'gemini-2.5-flash' }), [])
  const search: ConversationInit = {
    tools: [{ type: 'web_search', userLocation: { city: 'Oslo' }, contextSize: 'low', path: 'tools[0]' }],
  }
  assert.deepEqual(leftOut(dialects['openai-responses']!, search), [])
  assert.deepEqual(leftOut(dialects['anthropic-messages']!, search), ['search_context_size'])
  assert.deepEqual(leftOut(dialects.gemini!, search), ['user_location', 'search_context_size'])
  const limited: ConversationInit = { tools: [{ type: 'web_search', maxUses: 8, path: 'tools[0]' }] }
  assert.deepEqual(leftOut(dialects.gemini!, limited), ['max_uses'])
  assert.deepEqual(leftOut(dialects['anthropic-messages']!, limited), [])
  assert.deepEqual(leftOut(dialects['openai-responses']!, limited), [])
  const lowered: ConversationInit = { reasoning: { effort: 'medium', asked: 'max' } }
  assert.deepEqual(leftOut(dialects['openai-chat']!, lowered), ['effort max as medium'])
  assert.deepEqual(
    leftOut(
      dialects['openai-chat']!,
      { sampling: { seed: 7, temperature: 1 } },
      { settings: { provider: { omit: ['seed'] }, backend: {} } },
    ),
    ['seed'],
  )
  for (const dialect of Object.values(dialects)) assert.deepEqual(leftOut(dialect, {}), [], dialect.name)
})

test('[GEN-2] a control that goes in another form with the same meaning is marked as such', () => {
  const marked = (dialect: Dialect, asked: ConversationInit, backend: BackendInit) =>
    dialect
      .request(conversationOf(asked), backendOf(dialect, backend), contextOf())
      .adjusted!.filter(change => change.same)
      .map(inWords)
  const high: ConversationInit = { reasoning: { effort: 'high' } }
  assert.equal(marked(dialects['anthropic-messages']!, high, { model: 'claude-sonnet-4-5' }).length, 1)
  assert.equal(marked(dialects.gemini!, high, { model: 'gemini-2.5-flash' }).length, 1)
  assert.equal(marked(dialects.gemini!, { sampling: { seed: 1_732_000_000_001 } }, {}).length, 1)
})

// Providers that know efforts and no other form of thinking got none, so the model did not think.
test("[MSG-1] thinking as the model sees fit is the model's own effort where a dialect knows efforts alone", () => {
  const sent = (dialect: Dialect, asked: ConversationInit): any =>
    JSON.parse(dialect.request(conversationOf(asked), backendOf(dialect, {}), contextOf()).body)
  const adaptive = { thinking: 'adaptive', modelEffort: 'max' } as const
  assert.equal(sent(dialects['openai-chat']!, { reasoning: adaptive }).reasoning_effort, 'max')
  assert.equal(sent(dialects['openai-responses']!, { reasoning: adaptive }).reasoning.effort, 'max')
  assert.equal(sent(dialects['openai-chat']!, { reasoning: { thinking: 'adaptive' } }).reasoning_effort, 'medium')
  const named = { ...adaptive, effort: 'low' } as const
  assert.equal(sent(dialects['openai-chat']!, { reasoning: named }).reasoning_effort, 'low')
  assert.equal(sent(dialects['openai-chat']!, { reasoning: { modelEffort: 'max' } }).reasoning_effort, undefined)
})
