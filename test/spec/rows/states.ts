import assert from 'node:assert/strict'
import { idles, reaches } from '../kit/clocks.ts'
import { DIALECTS } from '../kit/gateways.ts'
import { SURFACES } from '../kit/reply.ts'
import { section } from '../kit/row.ts'
import { effort } from '../kit/shapes.ts'
import type { Billed } from '../kit/world.ts'

const models = Object.values(DIALECTS)
const consumed = (row: Billed | undefined) =>
  assert.ok(row?.outcome === 'incomplete' && row.input > 0 && row.cost > 0, JSON.stringify(row))

export const states = section('States and transitions', 'states', [
  {
    at: 'table: idle',
    says: '90 seconds without activity end a stream, each surface in its way, and what was consumed is billed',
    async check(w) {
      for (const model of models) {
        for (const surface of SURFACES)
          w.bill(await idles(w, surface, 90, { model, more: effort(surface, 'medium') }), consumed)
      }
      return 'runs after 87 s, ended after 93; three surfaces, four dialects'
    },
  },
  {
    at: 'table: idle',
    says: '120 seconds at xhigh and above',
    async check(w) {
      for (const surface of SURFACES) {
        const model = DIALECTS['anthropic-messages']
        for (const level of surface === 'chat' ? ['xhigh'] : ['xhigh', 'max'])
          w.bill(await idles(w, surface, 120, { model, more: effort(surface, level) }), consumed)
      }
      return 'runs after 117 s, ended after 123'
    },
  },
  {
    at: 'table: ceiling',
    says: 'the ceiling of the effort’s row ends a stream, each surface in its way, and what was consumed is billed',
    async check(w) {
      for (const model of models) {
        for (const surface of SURFACES)
          w.bill(await reaches(w, surface, 300, { model, more: effort(surface, 'minimal') }), consumed)
      }
      return 'runs after 297 s, ended after 303; three surfaces, four dialects'
    },
  },
  {
    at: 'table: budget',
    says: 'reasoning that uses the whole output cap is incomplete, with a warning that names the cure; Chat: length',
    async check(w) {
      for (const model of models) {
        for (const stream of [false, true]) {
          const ask = { model, stream, say: '[[sim: hidden 100]]', cap: 50 }
          const told = await w.well('responses', ask)
          assert.equal(told.end, 'incomplete max_output_tokens', model)
          assert.match(JSON.stringify(told.json.warning ?? ''), /max_output_tokens/, model)
          assert.equal((await w.well('chat', ask)).end, 'length', model)
        }
      }
      return 'four dialects, buffered and streamed'
    },
  },
  {
    at: 'table: budget',
    says: 'its usage is billed and reported as it is',
    async check(w) {
      for (const surface of SURFACES) {
        const reply = await w.well(surface, { say: '[[sim: hidden 50]]', cap: 50 })
        assert.equal(reply.output, 50)
        w.bill(reply, row => assert.deepEqual([row?.output, row?.reasoning], [50, 50]))
      }
      return '50 tokens of reasoning in usage and ledger'
    },
  },
  {
    at: 'after the table',
    says: 'a stream that works is never ended before its ceiling',
    async check(w) {
      for (const surface of SURFACES) await reaches(w, surface, 600, {})
      return 'ten minutes of work, with 80 s between two events'
    },
  },
  {
    at: 'table: idle',
    says: 'on a real clock: 90 seconds of silence end a stream',
    long: true,
    async check(w) {
      const ask = { stream: true, say: '[[sim: text "one two three four five six"; stall 6]]' }
      const replies = await Promise.all(SURFACES.map(surface => w.well(surface, ask)))
      assert.deepEqual(
        replies.map(({ end }) => end),
        ['incomplete stream_idle_timeout', 'length', 'max_tokens'],
      )
      return 'three surfaces'
    },
  },
])
