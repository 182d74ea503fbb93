/**
 * What only real time shows: uWebSockets.js closes after 8 to 12 s on its own clock, where we mean it to and nowhere
 * else (R11, decisions 15). What must outlast that clock is shown by a second connection, which the clock does close.
 * All cases run side by side.
 */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { after, before, suite, test } from 'node:test'
import type { Incoming, OutgoingStream } from '../../core/ports/listener.ts'
import { eventually, stall } from '../eventually.ts'
import { json, type Kind, kinds, parseAnswers, RawClient, serving, text, turns } from './harness.ts'

const big = Buffer.alloc(12_000_000, '0123456789')
const limits = { maxBytes: 1 << 20, timeoutMs: 60_000 }

/**
 * Resolves when a connection that was opened now has been closed for its silence: by then, so would any older one have
 * been.
 */
async function outlasted(port: number): Promise<void> {
  const control = await RawClient.open(port)
  await control.closing()
  // Those that go in one round of that clock go in one turn.
  await turns(20)
}

suite('uWebSockets.js’s clock and ours', { concurrency: true }, () => {
  for (const kind of kinds) suite(kind, { concurrency: true }, () => cases(kind))
})

function cases(kind: Kind): void {
  let port = 0
  let release!: () => void
  let served: Promise<unknown>
  let silent: OutgoingStream | undefined
  let late: Incoming | undefined
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
          if (incoming.path === '/later') return void (late = incoming)
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
    test(name, { timeout: 120_000 }, body)
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
    client.send('POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n')
    let sent = 0
    const drip = setInterval(() => {
      client.send('1\r\nx\r\n')
      sent += 1
    }, 500)
    await outlasted(port)
    clearInterval(drip)
    client.send('0\r\n\r\n')
    assert.equal((await client.answers(1))[0]?.body.toString(), String(sent))
    client.destroy()
  })

  it('an answer that takes long to begin is waited for', async () => {
    const client = await RawClient.open(port)
    client.send('POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi')
    await eventually(() => late !== undefined)
    await outlasted(port)
    assert.equal(client.closed, undefined)
    late!.respond(200, text, 'later')
    assert.equal((await client.answers(1))[0]?.body.toString(), 'later')
    client.destroy()
  })

  it('a silent stream stays open', async () => {
    const client = await RawClient.open(port)
    client.send('GET /silent HTTP/1.1\r\nHost: a\r\n\r\n')
    await client.until(() => client.received.length > 0)
    await outlasted(port)
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
      await outlasted(port)
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

test('[STR-4] uws: a loop whose every turn takes seconds cuts no reader that stalls', {
  timeout: 120_000,
}, async () => {
  // The exchanges were ticked one slice a timer, so that slow turns came round to each too late for uWebSockets.js’s
  // own 8 to 12 s.
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
      const control = await RawClient.open(h.port)
      while (control.closed === undefined) {
        stall(2200)
        await turns(1)
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

// `listener: node` left the handshake to Node's own limit of 120 s, and then waited without an end for a client that
// could not be written to.
test('a TLS handshake that never ends is closed, by both listeners', { timeout: 100_000 }, async () => {
  const pem = (name: string) => join(import.meta.dirname, 'tls', `${name}.pem`)
  const tls = { cert: pem('cert'), key: pem('key') }
  const closed = (kind: Kind) =>
    serving(
      kind,
      incoming => incoming.respond(200, text, ''),
      async ({ port, errors }) => {
        const [quiet, drips] = [await RawClient.open(port), await RawClient.open(port)]
        // A record of 256 bytes that begins like a ClientHello.
        const hello = Buffer.from([22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3, ...Array(200).fill(7)])
        let sent = 0
        const drip = setInterval(() => drips.send(hello.subarray(sent, ++sent)), 500)
        await Promise.all([quiet.closing(), drips.closing()])
        clearInterval(drip)
        assert.deepEqual(errors, [])
      },
      { tls },
    )
  await Promise.all(kinds.map(closed))
})
