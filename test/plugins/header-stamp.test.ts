/** `header-stamp`: stands below the terminal, sees every reply, and puts the standing headers on it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ErrorCode } from '../../core/canon/errors.ts'
import { conversation, usage } from '../../core/plugin.ts'
import { type Standing, standingsOf } from '../../plugins/admission/standing.ts'
import { headerStamp } from '../../plugins/header-stamp.ts'
import { identity, type Reservation, reservation } from '../../plugins/shared/slots.ts'
import { createSharedState, GatewayError, ManualClock, plainConversation, runPlugin } from '../../plugins/testing.ts'
import { bucket, slots as places, spend } from '../stores/kit.ts'
import { caller, reading, text } from './kit.ts'

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
  most: 1,
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

// The plain names showed a limit per day where that was tighter, and nothing told the two apart.
test('[LIM-9] each limited dimension as it stood at admission; the plain names are the minute, the day has its own', async () => {
  assert.deepEqual(await stamp(reserved), {
    'x-request-id': 'req_test',
    'x-ratelimit-limit-requests': '60',
    'x-ratelimit-remaining-requests': '59',
    'x-ratelimit-reset-requests': '250ms',
    'x-ratelimit-limit-requests-day': '100',
    'x-ratelimit-remaining-requests-day': '10',
    'x-ratelimit-reset-requests-day': '57s',
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
  assert.equal((await stamp(reserved, failing('upstream_server_error')))['x-ratelimit-limit-requests'], '60')
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

// ---- replies without an admission -----------------------------------------------------------------------------------

/** `header-stamp` in a process that has seen this of its caller. */
async function standing(seen: Partial<Standing>, later: number, events: any[] = [text('hi')]) {
  const shared = createSharedState()
  const clock = new ManualClock(1_780_000_000_000)
  const who = caller()
  standingsOf(shared).set(who, { ...reserved, seenAt: clock.mono(), ...seen })
  clock.advance(later)
  const run = await runPlugin(headerStamp, { below: true, shared, clock, slots: [[identity, who]], events })
  return Object.fromEntries([...run.headers].filter(([name]) => name.startsWith('x-ratelimit')))
}

// A 400, a 403, the list of models and a count told nothing of the limits of their caller.
test('[LIM-9] a reply without an admission tells what this process saw last of its caller, at most a second ago', async () => {
  const headers = await standing({}, 1000)
  assert.equal(headers['x-ratelimit-remaining-requests'], '59')
  assert.equal(headers['x-ratelimit-scope'], 'org')
  assert.deepEqual(await standing({}, 1001), {})
  assert.equal((await standing({ compressed: true }, 0))['x-ratelimit-scope'], 'platform')
  assert.equal((await standing({}, 0, failing('invalid_value')))['x-ratelimit-remaining-spend'], '1.50')
})

test('[LIM-9] the limits of one model are not told on replies that are for no model', async () => {
  const cells = [bucket('o:rpm', 60), { ...bucket('o:m:eb1-preview:rpm', 2), model: 'eb1-preview' }]
  const states = [
    { remaining: 59, resetMs: 0 },
    { remaining: 0, resetMs: 0 },
  ]
  assert.equal((await standing({ cells, states }, 0))['x-ratelimit-limit-requests'], '60')
})

test('[LIM-5] [LIM-10] a refusal that brings headers of its own keeps to them; capacity_exceeded has none', async () => {
  const own = new GatewayError('concurrency_limit_exceeded', { message: 'x', headers: { 'x-ratelimit-scope': 'org' } })
  assert.deepEqual(await standing({}, 0, [{ type: 'error', error: own }]), { 'x-ratelimit-scope': 'org' })
  assert.deepEqual(await standing({}, 0, failing('capacity_exceeded')), {})
})

// ---- whole replies --------------------------------------------------------------------------------------------------

// Its headers still held its own reservation: 4 USD were gone after a reply of 0.0002.
test('[LIM-9] a whole reply tells what is left after it, a stream what was left when it began', async () => {
  const cells = [bucket('o:tpm', 1000, 60_000, 'tokens'), places('o:conc', 4), spend('o:day', 5e9)]
  const states = [
    { remaining: 400, resetMs: 36_000 },
    { remaining: 3, resetMs: 0 },
    { remaining: 1e9, resetMs: 0 },
  ]
  const clock = new ManualClock(1_780_000_000_000)
  const held: Reservation = {
    ...reserved,
    cells,
    states,
    taken: { amounts: [500, 1, 4e9], at: clock.now() },
  }
  const used = { usage: { input: 10, output: 20 }, cost: 30_000, billed: true }
  const told = async (stream: boolean, bill: object = used, events: any[] = [text('hi')]) => {
    const run = await runPlugin(headerStamp, {
      below: true,
      clock,
      slots: [
        [reservation, held],
        [conversation, plainConversation({ stream })],
        [usage, bill as never],
      ],
      events,
      surface: reading('chat'),
    })
    return ['tokens', 'concurrency', 'spend'].map(name => run.headers.get(`x-ratelimit-remaining-${name}`))
  }
  assert.deepEqual(await told(true), ['400', '3', '1.00'])
  assert.deepEqual(await told(false), ['870', '4', '4.99997'])
  assert.deepEqual(await told(false, { ...used, billed: false }), ['400', '3', '1.00'])
  assert.deepEqual(await told(false, used, failing('upstream_server_error')), ['400', '3', '1.00'])
})
