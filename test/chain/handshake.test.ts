/** The part of a chain that a WebSocket's handshake passes. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { handshakeChain } from '../../core/engine/chain.ts'
import { deny, type PluginHooks, requestBody } from '../../core/plugin.ts'
import { part, run, terminal, turn } from './harness.ts'

function chainOf(calls: string[], first: PluginHooks['onRequest'] = () => undefined) {
  const noting = (name: string, onRequest: PluginHooks['onRequest'], more = {}) =>
    part(
      name,
      {
        onRequest(x) {
          calls.push(`${name} in`)
          return onRequest!(x)
        },
        onResponseHead(_, head) {
          calls.push(`${name} head`)
          head.headers.set(`x-${name}`, '1')
          return undefined
        },
        onSettle: () => void calls.push(`${name} settled`) as undefined,
      },
      more,
    )
  return [
    noting('above', first),
    noting('reader', () => undefined, { needs: [requestBody] }),
    noting('beneath', () => undefined),
    terminal(() => calls.push('upstream')),
    noting('out', () => undefined),
  ]
}

test('a handshake passes what stands above the body and what stands below the terminal, and nothing between', async () => {
  const calls: string[] = []
  const { incoming, settled, chain } = await run(chainOf(calls), { of: handshakeChain })
  const settlement = await settled
  assert.deepEqual(calls, ['above in', 'above head', 'out head', 'above settled', 'out settled'])
  assert.equal(incoming.status, 101)
  assert.deepEqual([...incoming.sentHeaders.keys()].sort(), ['content-type', 'x-above', 'x-out', 'x-request-id'])
  assert.deepEqual([settlement.outcome, settlement.status], ['completed', 101])
  assert.equal(chain.body, null)
})

test('a plugin above the body refuses the handshake as it would a request', async () => {
  const calls: string[] = []
  const refusing = chainOf(calls, () => deny('invalid_api_key', { message: 'no' }))
  const { incoming, settled } = await run(refusing, { of: handshakeChain })
  assert.equal((await settled).outcome, 'refused')
  assert.equal(incoming.status, 401)
  assert.deepEqual(calls, ['above in', 'out head', 'above settled', 'out settled'])
})

test('one that waits is waited for', async () => {
  const { promise, resolve } = Promise.withResolvers<undefined>()
  const { incoming, settled } = await run(
    chainOf([], () => promise),
    { of: handshakeChain },
  )
  await turn()
  assert.equal(incoming.status, 0)
  resolve(undefined)
  await settled
  assert.equal(incoming.status, 101)
})

test('a chain that reads no body is passed down to its terminal', async () => {
  const calls: string[] = []
  const { settled } = await run(
    [part('only', { onRequest: () => void calls.push('only') as undefined }), terminal(() => calls.push('upstream'))],
    { of: handshakeChain },
  )
  await settled
  assert.deepEqual(calls, ['only'])
})
