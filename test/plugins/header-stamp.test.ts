/** `header-stamp`: stands below the terminal, sees every reply, and puts the standing headers on it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ErrorCode } from '../../core/errors.ts'
import { headerStamp } from '../../plugins/header-stamp.ts'
import { type Reservation, reservation } from '../../plugins/shared/slots.ts'
import { GatewayError, runPlugin } from '../../plugins/testing.ts'
import { bucket, slots as places, spend } from '../stores/kit.ts'
import { reading, text } from './kit.ts'

const reserved: Reservation = {
  cells: [bucket('o:rpm', 60), bucket('k:key_ci:rpd', 100, 86_400_000), places('o:conc', 4), spend('o:day', 5e9)],
  states: [
    { remaining: 59.7, resetMs: 250 },
    { remaining: 10, resetMs: 56_001 },
    { remaining: 3, resetMs: 0 },
    { remaining: 1.5e9, resetMs: 0 },
  ],
  compressed: false,
  input: 1,
  output: 1,
  cost: 1,
}
const stamp = async (held: Reservation | null, events: any[] = [text('hi')], surface = reading('chat')) => {
  const run = await runPlugin(headerStamp, {
    below: true,
    slots: held ? [[reservation, held]] : [],
    events,
    surface,
  })
  return Object.fromEntries([...run.headers].filter(([name]) => /ratelimit|request-id/.test(name)))
}
const failing = (code: ErrorCode) => [{ type: 'error', error: new GatewayError(code, { message: 'x' }) }]

test('[LIM-9] each limited dimension: the cell with the least share left, as it stood at admission', async () => {
  assert.deepEqual(await stamp(reserved), {
    'x-request-id': 'req_test',
    'x-ratelimit-limit-requests': '100',
    'x-ratelimit-remaining-requests': '10',
    'x-ratelimit-reset-requests': '57s',
    'x-ratelimit-limit-concurrency': '4',
    'x-ratelimit-remaining-concurrency': '3',
    'x-ratelimit-limit-spend': '5.00',
    'x-ratelimit-remaining-spend': '1.50',
    'x-ratelimit-scope': 'org',
  })
})

test('[LIM-10] limits that the load of the platform compressed say so', async () => {
  assert.equal((await stamp({ ...reserved, compressed: true }))['x-ratelimit-scope'], 'platform')
})

test('a request that was never admitted has no limits to tell', async () => {
  assert.deepEqual(await stamp(null), { 'x-request-id': 'req_test' })
})

test('[LIM-9] a reply that failed tells them too', async () => {
  assert.equal((await stamp(reserved, failing('upstream_server_error')))['x-ratelimit-limit-requests'], '100')
})

for (const code of ['insufficient_quota', 'capacity_exceeded'] as const) {
  test(`[ERR-7] [LIM-10] ${code} is not about the caller’s limits, and tells none`, async () => {
    assert.deepEqual(await stamp(reserved, failing(code)), { 'x-request-id': 'req_test' })
  })
}

test('[ERR-2] on Messages the request id stands under the name that its SDK reads as well', async () => {
  assert.deepEqual(await stamp(null, undefined, reading('messages')), {
    'x-request-id': 'req_test',
    'request-id': 'req_test',
  })
})
