import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { CallFacts, WireRequest } from '../../core/plugin.ts'
import { traceHeaders } from '../../plugins/upstream/trace-headers.ts'

const PARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

function passedOn(tracestate: string): string | undefined {
  const headers = new Map([
    ['traceparent', PARENT],
    ['tracestate', tracestate],
  ])
  const facts = { id: 'req_1', incoming: { headers } } as unknown as CallFacts
  const own = traceHeaders({ call: { facts }, headers: {}, own: {} } as WireRequest)
  assert.equal(own['traceparent'], PARENT)
  return own['tracestate']
}

test('[ERR-6] a tracestate that no head may hold stays here: a client must not make a backend look dead', () => {
  for (const state of ['vendor=1', 'a=1,b=2', 'a=1, b=2', 'a=1,\tb=2']) assert.equal(passedOn(state), state)
  for (const state of ['', 'a=\x7f', 'a=\x01', 'a=\xe9', 'a=\u20ac', `a=${'x'.repeat(511)}`])
    assert.equal(passedOn(state), undefined, JSON.stringify(state))
})
