import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Link } from '../../core/engine/chain.ts'
import { Lifetime, type LifetimeOwner } from '../../core/engine/exchange/lifetime.ts'
import type { Settlement } from '../../core/plugin.ts'

const settlement: Settlement = { outcome: 'completed', delivered: true, status: 200, durationMs: 1, ttfbMs: 1 }

/** What a lifetime needs of its exchange: links 0, 1 (the terminal) and 2, each of which says that it was told. */
function exchange(said: string[], onSettle: (index: number) => void = () => {}): LifetimeOwner {
  const links = [0, 1, 2].map(index => ({ index, id: `link ${index}` })) as Link[]
  return {
    timeline: null,
    chain: {
      terminal: 1,
      settles: {
        links,
        hooks: links.map(({ id, index }) => () => {
          said.push(id)
          onSettle(index)
        }),
      },
    },
    hookFailed: (link: Link) => void said.push(`${link.id} failed`),
    logError: (_: unknown, what: string) => void said.push(what),
  } as unknown as LifetimeOwner
}

test('settled once: hooks, then releases, last in first out; nothing the second time, not even from within', () => {
  const said: string[] = []
  const life = new Lifetime()
  const x = exchange(said, () => life.settle(x, settlement, 3))
  life.defer(() => said.push('first'))
  life.defer(() => said.push('second'))
  life.settle(x, settlement, 3)
  life.settle(x, settlement, 3)
  assert.equal(life.state, 'settled')
  assert.deepEqual(said, ['link 0', 'link 1', 'link 2', 'second', 'first'])
})

test('what breaks at the end keeps nobody else from being told, and no release from running', () => {
  const said: string[] = []
  const life = new Lifetime()
  const x = exchange(said, index => {
    if (index === 0) throw new Error('bug')
  })
  life.defer(() => said.push('given back'))
  life.defer(() => {
    throw new Error('bug')
  })
  life.settle(x, settlement, 3)
  assert.deepEqual(said, ['link 0', 'link 0 failed', 'link 1', 'link 2', 'a deferred release failed', 'given back'])
})

test('links that the request never came to are not told; those from the terminal on are', () => {
  const said: string[] = []
  new Lifetime().settle(exchange(said), settlement, -1)
  assert.deepEqual(said, ['link 1', 'link 2'])
})

test('a release that comes after the end runs at once', () => {
  const said: string[] = []
  const life = new Lifetime()
  life.settle(exchange([]), settlement, 3)
  life.defer(() => said.push('given back'))
  assert.deepEqual(said, ['given back'])
})

test('that the client left is remembered, and a settled exchange stays settled', () => {
  const life = new Lifetime()
  life.clientLeft()
  assert.equal(life.state, 'draining')
  life.notDraining()
  assert.equal(life.state, 'running')
  life.clientLeft()
  // The upstream's own end settles a draining exchange within the call that tells it of the client.
  life.settle(exchange([]), settlement, 3)
  life.notDraining()
  assert.equal(life.state, 'settled')
  assert.equal(life.clientGone, true)
})
