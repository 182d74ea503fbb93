/**
 * A caller who brings another random key each time, beside a client with a key, both at one address. Callers were told
 * apart by the text of their credential: such a caller had a share for each of its keys.
 */
import assert from 'node:assert/strict'
import { connect, type Socket } from 'node:net'
import { test } from 'node:test'
import type { PluginHooks } from '../../core/plugin.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { FairTurns } from '../../core/tools/fair.ts'
import { eventually } from '../eventually.ts'
import { KEY, startGateway, type TestGateway } from './harness.ts'

const PATH = '/v1/chat/completions'
const ask = { model: 'eb1-preview', messages: [{ role: 'user', content: 'x' }] }
let keys = 0
const stranger = () => ({ authorization: `Bearer sk-random-${keys++}` })

test('while load is shed, all its keys have one share, and the client keeps that of its organization', async () => {
  let lag = 0
  const lagClock = new ManualClock()
  const held: (() => void)[] = []
  /** Requests wait at `auth`, as they do while it looks a key up. */
  const around = (plugin: { name: string }, hooks: PluginHooks): PluginHooks => {
    if (plugin.name !== 'auth') return hooks
    return {
      ...hooks,
      async onRequest(x) {
        await new Promise<void>(go => held.push(go))
        return hooks.onRequest!(x)
      },
    }
  }
  const t = await startGateway({ gateway: { lag: { lagMs: () => lag, close() {} }, lagClock, around } })
  try {
    const running = (count: number) => eventually(() => t.gateway.ingress.running.size === count)
    const statuses: number[] = []
    const send = (headers: Record<string, string>) =>
      t.post(PATH, ask, headers).then(async response => {
        await response.text()
        statuses.push(response.status)
        return response.status
      })
    const flood = Array.from({ length: 70 }, () => send(stranger()))
    await running(70)
    // From now on 64 may run, and up to 80 with those of tenants below their share.
    lag = 250
    lagClock.advance(100)
    for (let i = 0; i < 5; i++) assert.equal(await send(stranger()), 503, 'each of its keys is new')
    const client = Array.from({ length: 5 }, () => send({ authorization: `Bearer ${KEY}` }))
    await running(75)
    for (const go of held.splice(0)) go()
    assert.deepEqual(await Promise.all(client), [200, 200, 200, 200, 200])
    await Promise.all(flood)
    assert.deepEqual(
      [401, 503].map(of => statuses.filter(status => status === of).length),
      [70, 5],
    )
  } finally {
    for (const go of held) go()
    await t.close()
  }
})

test('its large uploads are read in one line, whatever their keys and their fate', async t => {
  const lines = new Set<string>()
  const next = FairTurns.prototype.next
  t.mock.method(FairTurns.prototype, 'next', function (this: FairTurns, owner: string) {
    lines.add(owner)
    return next.call(this, owner)
  })
  const gateway = await startGateway({ gateway: { listener: 'uws' } })
  t.after(() => gateway.close())
  const sockets = [
    ...Array.from({ length: 4 }, () => upload(gateway, PATH, stranger().authorization)),
    upload(gateway, '/nowhere', stranger().authorization),
  ]
  await eventually(() => sockets.every(({ bytesRead }) => bytesRead > 0))
  assert.deepEqual([...lines], ['@127.0.0.1'])
  const client = upload(gateway, PATH, `Bearer ${KEY}`)
  await eventually(() => lines.size === 2)
  assert.deepEqual([...lines], ['@127.0.0.1', 'acme'])
  for (const socket of [...sockets, client]) socket.destroy()
})

function upload({ gateway }: TestGateway, path: string, authorization: string): Socket {
  const socket = connect(gateway.port, '127.0.0.1').resume()
  socket.on('error', () => {})
  const length = 8 * 1024 * 1024
  socket.write(
    `POST ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: ${authorization}\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`,
  )
  socket.write(Buffer.alloc(length - 1, 0x20))
  return socket
}
