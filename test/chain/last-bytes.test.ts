/**
 * The outcome of an exchange is written before its last bytes are sent. Before that was so, a gateway that was killed
 * right behind a burst had told clients whole replies and knew nothing of them: their rows said `lost`, and billed
 * nothing.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import type { Exchange, SentTap, Settlement } from '../../core/plugin.ts'
import { asks, part, run, silent, terminal, turn } from './harness.ts'

const text = (words: string) => ({ type: 'text', text: words }) as const

/** A plugin that writes the outcome when the test says so. */
function writer(seen: string[]) {
  const told = Promise.withResolvers<undefined>()
  told.promise.catch(() => {})
  const note = (name: string) => () => void seen.push(name)
  const tap: SentTap = { head: note('tap head'), bytes() {}, end: note('tap end') }
  return {
    ...told,
    plugin: part('writer', {
      onRequest(x) {
        x.onSent(tap)
        x.defer(note('release'))
        return undefined
      },
      onSettle(_, settlement: Settlement) {
        seen.push(settlement.outcome)
        return told.promise
      },
    }),
  }
}

test('[STR-6] a stream: its last frames leave once the outcome is written, and whoever left before that has completed', async () => {
  const seen: string[] = []
  const written = writer(seen)
  let reached!: Exchange
  const r = await run([asks(), written.plugin, terminal(x => void (reached = x))])
  await turn()
  reached.emit(text('one'))
  reached.flush()
  reached.end()
  assert.deepEqual(seen, ['tap head', 'tap end', 'completed', 'release'])
  assert.equal(r.incoming.ending, 'open')
  const before = r.events().length
  assert.equal(r.settlements.length, 0)
  r.incoming.abort()
  written.resolve(undefined)
  await turn()
  assert.equal(r.settlements.length, 1)
  assert.equal(r.settlements[0]!.outcome, 'completed')
  assert.equal(r.events().length, before)
})

test('a stream that nobody left ends whole with the turn in which its outcome was written', async () => {
  const written = writer([])
  const r = await run([
    asks(),
    written.plugin,
    terminal(x => {
      x.emit(text('one'))
      x.end()
    }),
  ])
  await turn()
  assert.equal(r.incoming.ending, 'open')
  written.resolve(undefined)
  await r.settled
  assert.equal(r.incoming.ending, 'whole')
  assert.equal(r.events().at(-1).type, 'finish')
})

test('a slow reader has its outcome once it has taken the earlier bytes; leaving before that is client_gone', async () => {
  for (const leaves of [false, true]) {
    const seen: string[] = []
    const written = writer(seen)
    let reached!: Exchange
    const r = await run([asks(), written.plugin, terminal(x => void (reached = x))])
    await turn()
    reached.emit(text('one'))
    r.incoming.fast = false
    assert.equal(reached.flush(), false)
    reached.end()
    assert.deepEqual(seen, ['tap head'])
    if (leaves) r.incoming.abort()
    else r.incoming.drain()
    assert.ok(seen.includes(leaves ? 'client_gone' : 'completed'))
    written.resolve(undefined)
    await r.settled
    assert.equal(r.settlements.length, 1)
    assert.equal(r.incoming.ending, leaves ? 'open' : 'whole')
  }
})

test('a slow reader that takes nothing until the drain deadline gets an error frame', async () => {
  const written = writer([])
  let reached!: Exchange
  const r = await run([asks(), written.plugin, terminal(x => void (reached = x))])
  await turn()
  reached.emit(text('one'))
  r.incoming.fast = false
  reached.flush()
  reached.end()
  r.x.expire()
  written.resolve(undefined)
  assert.equal((await r.settled).error?.code, 'route_unavailable')
  assert.equal(r.events().at(-1).type, 'error')
})

test('an outcome that cannot be written cuts a stream, and makes a reply of one body an error', async () => {
  for (const stream of [true, false]) {
    const written = writer([])
    const r = await run([
      asks({ stream }),
      written.plugin,
      terminal(x => {
        x.emit(text('one'))
        x.end()
      }),
    ])
    await turn()
    written.reject(new StoreUnavailable('the disk is full'))
    const settlement = await r.settled
    assert.equal(settlement.outcome, 'gateway_error')
    assert.equal(r.incoming.ending, stream ? 'cut' : 'whole')
    if (stream) assert.ok(r.events().every(event => event.type !== 'finish'))
    else assert.equal(r.incoming.status, 503)
    assert.equal(r.incoming.answers, 1)
  }
})

test('an error frame after output waits as well: what was delivered is billed', async () => {
  const seen: string[] = []
  const written = writer(seen)
  let reached!: Exchange
  const r = await run([asks(), written.plugin, terminal(x => void (reached = x))])
  await turn()
  reached.emit(text('one'))
  reached.flush()
  r.x.expire()
  assert.ok(seen.includes('upstream_error'))
  assert.equal(r.incoming.ending, 'open')
  written.resolve(undefined)
  await r.settled
  assert.equal(r.incoming.ending, 'whole')
})

// The check of a chain refused `async onSettle`, which the contract allows and the engine waits for.
test('an async onSettle is waited for like a promise that is returned', async () => {
  const done = Promise.withResolvers<void>()
  const seen: string[] = []
  const writer = part('writer', {
    async onSettle(_, { outcome }: Settlement) {
      seen.push(outcome)
      await done.promise
      seen.push('written')
      return undefined
    },
  })
  const r = await run([
    asks(),
    writer,
    terminal(x => {
      x.emit(text('one'))
      x.end()
    }),
  ])
  await turn()
  assert.deepEqual([seen, r.incoming.ending], [['completed'], 'open'])
  done.resolve()
  await r.settled
  assert.deepEqual([seen, r.incoming.ending], [['completed', 'written'], 'whole'])
})

// The rejection was swallowed when no reply waited for it, so that a broken plugin was not seen at all.
test('an onSettle that rejects when nobody waits for it is logged, and ends nothing', async t => {
  const logged = t.mock.method(silent, 'error')
  let reached!: Exchange
  const writer = part('writer', {
    async onSettle() {
      throw new Error('bug')
    },
  })
  const r = await run([asks(), writer, terminal(x => void (reached = x))])
  await turn()
  reached.emit(text('one'))
  reached.flush()
  r.incoming.abort()
  assert.equal((await r.settled).outcome, 'client_gone')
  await turn()
  const errors = logged.mock.calls.map(({ arguments: [fields] }) => (fields as { err: Error }).err.message)
  assert.deepEqual(errors, ['bug'])
})
