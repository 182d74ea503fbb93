import assert from 'node:assert/strict'
import { DIALECTS } from '../kit/gateways.ts'
import { SURFACES } from '../kit/reply.ts'
import { type Row, section } from '../kit/row.ts'
import type { World } from '../kit/world.ts'

/** A window of the table, as the quickstart's file and the list of a key show it. */
const listed = (id: string, window: number): Row => ({
  at: `table: ${id}`,
  says: `${id} reports ${window} as context_window and max_input_tokens`,
  gateway: 'quickstart',
  async check(w) {
    const entry = (await w.models()).find(model => model.id === id)
    assert.deepEqual([entry?.context_window, entry?.max_input_tokens], [window, window])
    return `${window}, ${window}`
  },
})

const LEGACY = {
  'eb1-preview-efficient': 'eb1-efficient-preview',
  'eb1-preview-fast': 'eb1-fast-preview',
  'eb1-preview-delta': 'eb1-delta-preview',
}

/** All legacy and unlisted ids answer in a file as it is shipped. */
async function shippedLegacy(w: World): Promise<string> {
  for (const [legacy, canonical] of Object.entries(LEGACY)) {
    for (const model of [legacy, canonical]) assert.equal((await w.well('chat', { model })).model, canonical)
  }
  return Object.keys(LEGACY).join(', ')
}

/** A text that makes a Messages prompt of exactly this many tokens. */
async function promptOf(w: World, tokens: number, model: string): Promise<string> {
  const { json } = await w.count({ model, say: ' a' })
  return ' a'.repeat(tokens - json.input_tokens + 1)
}

export const models = section('Public models', 'models', [
  listed('eb1-preview', 400_000),
  listed('eb1-efficient-preview', 400_000),
  listed('eb1-fast-preview', 400_000),
  listed('eb1-frontier-preview', 869_811),
  {
    at: 'rule 1',
    says: 'the window is there for the prompt, whatever max_output_tokens is',
    async check(w) {
      const more = { say: await promptOf(w, 60, 'small') }
      for (const surface of SURFACES) {
        for (const cap of [undefined, 900]) {
          if (surface === 'messages' && cap === undefined) continue
          const reply = await w.well(surface, { model: 'small', cap, ...more })
          assert.equal(reply.input, 60)
        }
      }
      return 'a prompt of 60 in a window of 60, with and without a cap of 900'
    },
  },
  {
    at: 'rule 1',
    says: 'what a key may send is what its list reports',
    account: { limits: { max_input_tokens: 50 } },
    async check(w) {
      for (const entry of await w.models())
        assert.deepEqual([entry.context_window, entry.max_input_tokens], [50, 50], entry.id)
      const reply = await w.ask('chat', { say: 'word '.repeat(60) })
      assert.equal(reply.error.details.context_window, 50)
      return 'an account limit of 50 is the window of its list'
    },
  },
  {
    at: 'rule 1',
    says: 'a prompt beyond the window is context_length_exceeded',
    async check(w) {
      const say = await promptOf(w, 61, 'small')
      await w.surfaces(async (surface, stream) => {
        const reply = await w.ask(surface, { model: 'small', say, stream, cap: 100 })
        assert.deepEqual([reply.status, reply.code], [400, 'context_length_exceeded'], String(reply))
      })
      assert.equal(w.sent.length, 0)
      return '61 tokens in a window of 60, on three surfaces; nothing is sent'
    },
  },
  {
    at: 'rule 2',
    says: 'the list is that of account and key, and so is admission',
    accounts: {
      plan: { models: ['eb1-preview', 'eb1-fast-preview'] },
      key: { models: ['eb1-preview', 'eb1-fast-preview'], key: { models: ['eb1-fast-preview'] } },
    },
    async check(w) {
      const ids = async (as: string) => (await w.models({ as })).map(({ id }) => id)
      assert.deepEqual(await ids('plan'), ['eb1-preview', 'eb1-fast-preview'])
      assert.deepEqual(await ids('key'), ['eb1-fast-preview'])
      for (const surface of SURFACES) {
        assert.equal((await w.ask(surface, { as: 'key' })).code, 'model_not_available')
        await w.well(surface, { as: 'key', model: 'eb1-fast-preview' })
        assert.equal((await w.ask(surface, { as: 'plan', model: 'eb1-efficient-preview' })).status, 403)
      }
      return 'two models of the account, one of its key; 403 for the rest'
    },
  },
  {
    at: 'rule 3',
    says: 'legacy ids are accepted on requests',
    async check(w) {
      for (const model of Object.keys(LEGACY)) for (const surface of SURFACES) await w.well(surface, { model })
      return Object.keys(LEGACY).join(', ')
    },
  },
  {
    at: 'rule 3',
    says: 'legacy ids are accepted by the quickstart as it is shipped',
    gateway: 'quickstart',
    check: shippedLegacy,
  },
  {
    at: 'rule 3',
    says: 'the shipped compose file has eb1-delta-preview and its legacy id',
    gateway: 'compose',
    async check(w) {
      for (const model of ['eb1-preview-delta', 'eb1-delta-preview'])
        assert.equal((await w.well('chat', { model })).model, 'eb1-delta-preview')
      return 'both ids name eb1-delta-preview'
    },
  },
  {
    at: 'rule 3',
    says: 'legacy ids are accepted in stored conversations',
    async check(w) {
      for (const model of Object.keys(LEGACY)) {
        const first = await w.well('responses', { model, say: 'my name is Ada' })
        await w.well('responses', { model, say: 'who am I', more: { previous_response_id: first.json.id } })
        assert.match(JSON.stringify(w.forwarded), /my name is Ada/)
      }
      return 'each continues its conversation'
    },
  },
  {
    at: 'rule 3',
    says: 'legacy ids behave and are priced as before',
    async check(w) {
      for (const [legacy, canonical] of Object.entries(LEGACY)) {
        const costs: unknown[] = []
        // Different prompts of one length: the provider reports none of them as cached.
        for (const [model, say] of [
          [legacy, 'alpha'],
          [canonical, 'gamma'],
        ] as const) {
          const reply = await w.well('chat', { model, say: `[[sim: text "one two three"]] ${say}` })
          w.bill(reply, row => {
            assert.equal(row?.model, canonical)
            costs.push(row?.cost)
            assert.ok(row!.cost > 0)
            assert.equal(row!.cost, costs[0])
          })
        }
      }
      return 'the same cost in the ledger under both ids'
    },
  },
  {
    at: 'rule 3',
    says: 'legacy ids and eb1-delta-preview are absent from the list',
    async check(w) {
      const ids = (await w.models()).map(({ id }) => id)
      assert.deepEqual(ids, Object.values(DIALECTS))
      return ids.join(', ')
    },
  },
  {
    at: 'rule 3',
    says: 'a reply to a legacy id names the canonical id; eb1-delta-preview for eb1-preview-delta',
    check: w =>
      w.surfaces(async (surface, stream) => {
        for (const [model, canonical] of Object.entries(LEGACY))
          assert.equal((await w.well(surface, { model, stream })).model, canonical)
      }),
  },
  {
    at: 'rule 3',
    says: 'eb1-delta-preview can be called',
    check: w =>
      w.surfaces(async (surface, stream) => void (await w.well(surface, { model: 'eb1-delta-preview', stream }))),
  },
  {
    at: 'rule 4',
    says: 'an entry does not change with a reload',
    gateway: 'compose',
    async check(w) {
      const before = await w.models()
      await w.pass(100)
      await w.gateway.reload()
      assert.deepEqual(await w.models(), before)
      return `created ${before[0]!.created}`
    },
  },
  {
    at: 'rule 4',
    says: 'an entry of the list may have the static limits of the key',
    account: {
      limits: { requests_per_minute: 7, tokens_per_minute: 900 },
      key: { limits: { tokens_per_minute: 800 } },
    },
    async check(w) {
      const [entry] = await w.models()
      assert.deepEqual([entry!.limits.requests_per_minute, entry!.limits.tokens_per_minute], [7, 800])
      return JSON.stringify(entry!.limits)
    },
  },
])
