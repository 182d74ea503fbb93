/**
 * runaway and what agents really send: sessions that test/clients/record.ts has recorded of them, as they come from
 * their registries. One of each gets on with its work, and runs the same test again and again meanwhile; in the other
 * one the model makes the same call until the end.
 */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { describe, test } from 'node:test'
import { registerPluginHooks } from '../../../config/modules.ts'
import type { Conversation } from '../../../core/canon/conversation.ts'
import { ZERO_USAGE } from '../../../core/canon/events.ts'
import { identity, model } from '../../../plugins/shared/slots.ts'
import { surfaces } from '../../../surfaces/index.ts'
import { modelOf } from '../kit.ts'

// With them a file can import `sluice`.
registerPluginHooks()
const { conversation, estimate, usage } = await import('sluice')
const { ManualClock, createSharedState, runPlugin } = await import('sluice/testing')
const { default: plugin } = await import('../../../plugins/extra/runaway.ts')

const FOLDER = new URL('../../clients/sessions/', import.meta.url)
const APIS: Record<string, string> = {
  '/v1/responses': 'responses',
  '/v1/messages': 'messages',
  '/v1/chat/completions': 'chat',
}

/** The conversations of a session, in their order, as the APIs read them. */
function session(name: string): Conversation[] {
  let body: any = {}
  const found: Conversation[] = []
  for (const line of readFileSync(new URL(name, FOLDER), 'utf8').trim().split('\n')) {
    const { path, gone = [], ...changed } = JSON.parse(line)
    body = { ...body }
    for (const member of gone) delete body[member]
    for (const [member, value] of Object.entries<any>(changed))
      body[member] = value?.more ? [...(body[member] ?? []).slice(0, value.same), ...value.more] : value
    if (!(path in APIS)) continue
    const { tools, ...rest } = body
    found.push(surfaces[APIS[path]!]!.parse(rest))
  }
  return found
}

/** The requests one after the other, each billed a dollar. @returns what became of each */
async function became(asked: readonly Conversation[], bounds: object): Promise<string[]> {
  const [clock, shared] = [new ManualClock(), createSharedState()]
  const all: string[] = []
  for (const one of asked) {
    const run = runPlugin<any>(plugin, {
      config: { delay: 0, slow_usd: 0, refuse_usd: 0, ...bounds },
      clock,
      shared,
      slots: [
        [identity, { organization: { id: 'acme' }, key: { id: 'k' } }],
        [conversation, one],
        [estimate, { input: JSON.stringify(one.turns).length }],
        [model, modelOf()],
        [usage, { usage: ZERO_USAGE, cost: 1e9, billed: true }],
      ],
    } as never)
    for (let i = 0; i < 50 && clock.pending === 0; i++) await Promise.resolve()
    clock.advance(0)
    const { status, headers } = await run
    all.push(status === 429 ? 'refused' : headers.has('x-sluice-slowed') ? 'slowed' : 'free')
  }
  return all
}

const names = readdirSync(FOLDER)
describe('sessions that work', () => {
  for (const name of names.filter(name => name.endsWith('-work.jsonl'))) {
    const asked = session(name)
    test(`${name}: ${asked.length} requests, none of which is slowed, with bounds of two repeats and no money`, async () => {
      assert.ok(asked.length >= 15)
      const all = await became(asked, { slow_repeats: 2, refuse_repeats: 2 })
      assert.deepEqual(new Set(all), new Set(['free']), all.join())
    })
    test(`${name}, three times one after the other, as an evaluation does: none, with the bounds that are the default`, async () => {
      const all = await became([...asked, ...asked, ...asked], {})
      assert.deepEqual(new Set(all), new Set(['free']), all.join())
    })
  }
  test('of eight agents', () => assert.equal(names.filter(name => name.endsWith('-work.jsonl')).length, 8))
})

describe('sessions in a circle', () => {
  // qwen-code and cline see it themselves after five calls, and end.
  const long = names.filter(name => name.endsWith('-circle.jsonl')).map(name => ({ name, asked: session(name) }))
  for (const { name, asked } of long.filter(({ asked }) => asked.length > 5)) {
    test(`${name}: found, although Codex numbers its outputs and each output has another time`, async () => {
      const all = await became(asked, { slow_repeats: 3, refuse_repeats: 6 })
      const at = all.indexOf('refused')
      assert.ok(at > 0 && at <= 9, all.join())
      assert.ok(
        all.slice(at).every(one => one === 'refused'),
        all.join(),
      )
      assert.equal(all.filter(one => one === 'slowed').length, 3)
    })
  }
  test('of six agents', () => assert.equal(long.filter(({ asked }) => asked.length > 5).length, 6))
})
