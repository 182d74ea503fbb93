import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { type CallPart, type Part, type Turn, TurnList } from '../../core/canon/conversation.ts'
import { adjacentResults } from '../../providers/adjacent-results.ts'
import { anthropicMessages } from '../../providers/anthropic-messages/index.ts'
import { gemini } from '../../providers/gemini/index.ts'
import { openaiResponses } from '../../providers/openai-responses/index.ts'
import { bodyOf } from './dialect-kit.ts'

/**
 * Histories that the tool-history rules allow (wire.md B.6): results in any order, with text of assistant or system
 * between.
 */
const histories = fc
  .array(
    fc.record({
      user: fc.boolean(),
      calls: fc.integer({ min: 0, max: 4 }),
      order: fc.array(fc.nat(), { maxLength: 4 }),
      between: fc.array(fc.constantFrom('assistant', 'system', 'none'), { maxLength: 4 }),
      textAfter: fc.boolean(),
    }),
    { minLength: 1, maxLength: 6 },
  )
  .map(rounds => {
    const list = new TurnList()
    let next = 0
    for (const round of rounds) {
      if (round.user) list.push('user', [{ type: 'text', text: `u${next}` }])
      const ids = Array.from({ length: round.calls }, () => `call_${next++}`)
      const parts: Part[] = ids.map(id => ({ type: 'call', id, kind: 'function', name: 'f', input: '{}', path: '' }))
      if (round.textAfter) parts.push({ type: 'text', text: 'after the calls' })
      else parts.unshift({ type: 'text', text: 'before the calls' })
      list.push('assistant', parts)
      const open = [...ids]
      for (let i = 0; open.length > 0; i++) {
        const [id] = open.splice((round.order[i] ?? 0) % open.length, 1)
        list.push('tool', [
          { type: 'result', callId: id!, kind: 'function', content: [{ type: 'text', text: id! }], path: '' },
        ])
        const role = round.between[i]
        if (role === 'assistant' || role === 'system') list.push(role, [{ type: 'text', text: `${role} between` }])
      }
    }
    list.push('user', [{ type: 'text', text: 'last' }])
    return list.turns
  })

test('results stand directly behind their calls, in the order of the calls, and nothing is lost', () => {
  fc.assert(
    fc.property(histories, turns => {
      const steps = adjacentResults(turns)
      const calls = turns.flatMap(turn => turn.parts.filter(part => part.type === 'call')).map(call => call.id)
      const seen: string[] = []
      let texts = 0
      for (const step of steps) {
        const parts = step.type === 'round' ? step.parts : step.turn.parts
        texts += parts.filter(part => part.type === 'text').length
        if (step.type !== 'round') continue
        assert.deepEqual(
          step.results.map(result => result.callId),
          step.calls.map(call => call.id),
        )
        assert.deepEqual(
          parts.filter(part => part.type === 'call').map((call: CallPart) => call.id),
          step.calls.map(call => call.id),
        )
        const firstCall = parts.findIndex(part => part.type === 'call')
        assert.ok(
          parts.slice(firstCall).every(part => part.type === 'call'),
          'text stands before the calls',
        )
        seen.push(...step.calls.map(call => call.id))
      }
      assert.deepEqual(seen, calls)
      assert.equal(texts, turns.flatMap(turn => turn.parts.filter(part => part.type === 'text')).length)
    }),
    { numRuns: 500, seed: 20_261_121 },
  )
})

test('bodies of the dialects that demand adjacency have it on any legal history', () => {
  fc.assert(
    fc.property(histories, turns => {
      const { messages } = bodyOf(anthropicMessages, { turns })
      let last = ''
      for (const [index, message] of messages.entries()) {
        assert.notEqual(message.role, last, 'roles alternate')
        last = message.role
        const calls = message.content.filter((block: any) => block.type === 'tool_use').map((block: any) => block.id)
        const results = messages[index + 1]?.content ?? []
        assert.deepEqual(
          results.slice(0, calls.length).map((block: any) => block.tool_use_id),
          calls.length > 0 ? calls : [],
        )
      }
      assert.equal(messages[0].role, 'user')

      const { contents } = bodyOf(gemini, { turns })
      for (const [index, content] of contents.entries()) {
        const calls = content.parts.filter((part: any) => part.functionCall).map((part: any) => part.functionCall.id)
        if (calls.length === 0) continue
        const responses = contents[index + 1].parts
        assert.deepEqual(
          responses.map((part: any) => part.functionResponse?.id),
          calls,
        )
      }
      assert.equal(contents[0].role, 'user')
    }),
    { numRuns: 300, seed: 20_261_121 },
  )
})

test('[REQ-2] a turn of as many parts as a body may hold takes no longer for where its calls stand', () => {
  const text: Part = { type: 'text', text: 'a' }
  const call: Part = { type: 'call', id: 'call_1', kind: 'function', name: 'f', input: '{}', path: '' }
  const many = (...parts: Part[]) => Array.from({ length: 33_000 }, () => parts).flat()
  const user: Turn = { role: 'user', parts: [text] }
  const result: Part = { type: 'result', callId: 'call_1', kind: 'function', content: [{ ...text }], path: '' }
  // Texts behind a call.
  const turns: Turn[] = [user, { role: 'assistant', parts: [call, ...many(text)] }, { role: 'tool', parts: [result] }]
  for (let i = 0; i < 5; i++) {
    const [, round] = adjacentResults(turns)
    assert.ok(round?.type === 'round')
    assert.equal(round.parts.at(-1), call)
    assert.equal(round.parts.length, 33_001)
  }
  // Messages without a call, each begun anew.
  const said = many({ type: 'reasoning', summary: [] }, text)
  bodyOf(openaiResponses, { turns: [user, { role: 'assistant', parts: said }, user] })
})
