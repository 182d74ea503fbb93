/**
 * What only real time shows: uWebSockets.js closes after 8 to 12 s on its own clock, where we mean it to and nowhere else (R11, decisions 15).
 * All cases run side by side and take 14 s together.
 */
import assert from 'node:assert/strict'
import { after, before, suite, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Incoming, OutgoingStream } from '../../core/listener/port.ts'
import { eventually, json, type Kind, kinds, parseAnswers, RawClient, serving, text } from './harness.ts'

/** Longer than uWebSockets.js waits. */
const LONG_MS = 13_000
const big = Buffer.alloc(12_000_000, '0123456789')
const limits = { maxBytes: 1 << 20, timeoutMs: 60_000 }

suite('uWebSockets.js’s clock and ours', { concurrency: true }, () => {
  for (const kind of kinds) suite(kind, { concurrency: true }, () => cases(kind))
})

function cases(kind: Kind): void {
  let port = 0
  let release!: () => void
  let served: Promise<unknown>
  let silent: OutgoingStream | undefined
  let aborted = 0

  before(async () => {
    const done = new Promise<void>(resolve => {
      release = resolve
    })
    await new Promise<void>(ready => {
      served = serving(
        kind,
        (incoming: Incoming) => {
          incoming.onAborted(() => {
            aborted += 1
          })
          if (incoming.path === '/read') {
            return incoming.readBody(limits, (_fault, body) => incoming.respond(200, text, String(body.byteLength)))
          }
          if (incoming.path === '/later') return void setTimeout(() => incoming.respond(200, text, 'later'), LONG_MS)
          if (incoming.path === '/refuse') return incoming.respond(401, json, '{}')
          if (incoming.path === '/whole') return incoming.respond(200, text, big)
          const out = incoming.stream(200, text)
          if (incoming.path === '/silent') {
            silent = out
            out.write('a')
            return void out.flush()
          }
          let at = 0
          const pump = (): void => {
            while (at < big.byteLength) {
              out.write(big.subarray(at, at + 50_000))
              at += 50_000
              if (!out.flush()) return
            }
            out.end()
          }
          out.onDrain(pump)
          pump()
        },
        async h => {
          port = h.port
          ready()
          await done
          assert.deepEqual(h.errors, [])
        },
        { stallTimeoutMs: 60_000 },
      )
    })
  })
  after(async () => {
    release()
    await served
  })

  const it = (name: string, body: () => Promise<void>): void => {
    test(name, { timeout: 40_000 }, body)
  }

  it('a head that drips is not waited for', async () => {
    const client = await RawClient.open(port)
    const drip = setInterval(() => client.send('x'), 500)
    client.send('GET / HTTP/1.1\r\nHost: ')
    await client.closing()
    clearInterval(drip)
    assert.equal(parseAnswers(client.received, 0, true)[0]?.status, kind === 'node' ? 408 : undefined)
  })

  it('a connection without a request is closed', async () => {
    const client = await RawClient.open(port)
    await client.closing()
    assert.equal(client.closed, 'end')
  })

  it('a body that drips is read as long as our deadline allows', async () => {
    const client = await RawClient.open(port)
    client.send('POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n\r\n')
    for (let i = 0; i < 13; i++) {
      client.send('x')
      await sleep(LONG_MS / 13)
    }
    client.send('x')
    assert.equal((await client.answers(1))[0]?.body.toString(), '14')
    client.destroy()
  })

  it('an answer that takes long to begin is waited for', async () => {
    const client = await RawClient.open(port)
    client.send('POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi')
    assert.equal((await client.answers(1))[0]?.body.toString(), 'later')
    client.destroy()
  })

  it('a silent stream stays open', async () => {
    const client = await RawClient.open(port)
    client.send('GET /silent HTTP/1.1\r\nHost: a\r\n\r\n')
    await sleep(LONG_MS)
    assert.equal(client.closed, undefined)
    silent!.write('b')
    silent!.end()
    assert.equal((await client.answers(1))[0]?.body.toString(), 'ab')
    client.destroy()
  })

  for (const path of ['/stream', '/whole']) {
    it(`[STR-4] a reader that stalls for less than stall_timeout gets everything (${path})`, async () => {
      const client = await RawClient.open(port)
      client.socket.pause()
      client.send(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`)
      await sleep(LONG_MS)
      client.socket.resume()
      const [answer] = await client.answers(1, big.byteLength)
      assert.ok(answer?.whole)
      assert.ok(answer.body.equals(big))
      client.destroy()
    })
  }

  it('an upload refused by its head does not hold the connection for ever', async () => {
    const client = await RawClient.open(port)
    client.send('POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n')
    const drip = setInterval(() => client.send('x'), 500)
    assert.equal((await client.answers(1))[0]?.status, 401)
    await client.closing()
    clearInterval(drip)
  })

  it('an idle kept connection is closed', async () => {
    const client = await RawClient.open(port)
    client.send('POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi')
    assert.equal((await client.answers(1))[0]?.status, 200)
    await client.closing()
    assert.equal(aborted, 0)
  })
}

test('[STR-4] uws: a loop whose every turn takes seconds cuts no reader that stalls', { timeout: 60_000 }, async () => {
  // The exchanges were ticked one slice a timer, so that slow turns came round to each too late for uWebSockets.js’s own 8 to 12 s.
  await serving(
    'uws',
    incoming => incoming.respond(200, text, big),
    async h => {
      const clients = await Promise.all(Array.from({ length: 8 }, () => RawClient.open(h.port)))
      for (const client of clients) {
        client.socket.pause()
        client.send('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
      }
      await eventually(() => h.listener.unsent === clients.length)
      for (const begun = performance.now(); performance.now() - begun < 16_000; ) {
        const turn = performance.now()
        while (performance.now() - turn < 2200);
        await sleep(1)
      }
      for (const client of clients) {
        client.socket.resume()
        assert.ok((await client.answers(1, big.byteLength))[0]?.whole)
        client.destroy()
      }
    },
    { stallTimeoutMs: 60_000 },
  )
})
