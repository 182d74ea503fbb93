/**
 * Tunnels on `node`: a WebSocket handshake answered with 101 is a pipe of raw bytes; answered with anything else it is
 * an upgrade request like any other.
 */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:net'
import { join } from 'node:path'
import { suite, test } from 'node:test'
import { connect as connectTls } from 'node:tls'
import type { BodyFlow, Incoming, ListenerOptions, OutgoingStream } from '../../core/ports/listener.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { eventually } from '../eventually.ts'
import { type Harness, json, kinds, RawClient, serving, text, turns } from './harness.ts'

const KEY = 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n'
const ASKS = 'Connection: Upgrade\r\nUpgrade: websocket\r\n'
const HANDSHAKE = `GET /a?b=c HTTP/1.1\r\nHost: a\r\n${ASKS}Sec-WebSocket-Version: 13\r\n${KEY}\r\n`
const TAIL = 'GET /behind HTTP/1.1\r\nHost: a\r\n\r\n'

/** One tunnel as its handler sees it. */
class Ends {
  readonly heard: Buffer[] = []
  ended = false
  aborted = 0
  drains = 0
  out!: OutgoingStream
  flow!: BodyFlow
  constructor(incoming: Incoming) {
    incoming.onAborted(() => {
      this.aborted++
    })
  }
  open(incoming: Incoming): void {
    this.out = incoming.stream(101, [['sec-websocket-accept', 'x']])
    this.out.onDrain(() => {
      this.drains++
    })
    this.flow = incoming.streamBody({
      chunk: bytes => void this.heard.push(Buffer.from(bytes)),
      end: () => {
        this.ended = true
      },
    })
  }
  get text(): string {
    return Buffer.concat(this.heard).toString('latin1')
  }
  say(data: string | Uint8Array): boolean {
    this.out.write(data)
    return this.out.flush()
  }
}

/** A listener that opens each tunnel at once, or when the test says so. */
async function tunnelling(
  body: (harness: Harness & { ends: Ends[]; waiting: Incoming[] }) => Promise<void>,
  options: Partial<ListenerOptions> & { wait?: boolean } = {},
): Promise<void> {
  const ends: Ends[] = []
  const waiting: Incoming[] = []
  await serving(
    'node',
    incoming => {
      if (!incoming.tunnel) return incoming.respond(200, text, incoming.path)
      const end = new Ends(incoming)
      ends.push(end)
      if (options.wait) waiting.push(incoming)
      else end.open(incoming)
    },
    harness => body({ ...harness, ends, waiting }),
    options,
  )
}

async function dial(port: number, behind = ''): Promise<RawClient> {
  const client = await RawClient.open(port)
  client.send(HANDSHAKE + behind)
  await client.until(() => client.received.includes('\r\n\r\n'))
  return client
}

const told = (client: RawClient): Buffer => client.received.subarray(client.received.indexOf('\r\n\r\n') + 4)

test('a tunnel is offered for a whole handshake alone', async () => {
  const head = (lines: string, start = 'GET / HTTP/1.1') => `${start}\r\nHost: a\r\n${lines}\r\n`
  const whole = `${ASKS}Sec-WebSocket-Version: 13\r\n${KEY}`
  const cases: [name: string, bytes: string, offered: boolean][] = [
    ['whole', head(whole), true],
    ['upgrade among others', head(whole.replace('Connection: Upgrade', 'Connection: keep-alive, upgrade')), true],
    ['a body of no bytes', head(`${whole}Content-Length: 0\r\n`), true],
    ['no key', head(`${ASKS}Sec-WebSocket-Version: 13\r\n`), false],
    ['a key of another length', head(whole.replace('dGhl', '')), false],
    ['no version', head(`${ASKS}${KEY}`), false],
    ['another version', head(whole.replace('13', '8')), false],
    ['two versions', head(`${whole}Sec-WebSocket-Version: 13\r\n`), false],
    ['another protocol', head(whole.replace('websocket', 'tcp')), false],
    ['h2c beside it', head(whole.replace('websocket', 'websocket, h2c')), false],
    ['h2c', head(whole.replace('websocket', 'h2c')), false],
    ['Connection without upgrade', head(whole.replace('Connection: Upgrade', 'Connection: keep-alive')), false],
    ['POST', head(whole, 'POST / HTTP/1.1'), false],
    ['a body', `${head(`${whole}Content-Length: 2\r\n`)}hi`, false],
    ['a chunked body', `${head(`${whole}Transfer-Encoding: chunked\r\n`)}2\r\nhi\r\n0\r\n\r\n`, false],
  ]
  for (const kind of kinds) {
    let offered: unknown
    await serving(
      kind,
      incoming => {
        offered = incoming.tunnel ?? false
        incoming.respond(426, json, '{}')
      },
      async ({ port }) => {
        for (const [name, bytes, expected] of cases) {
          offered = undefined
          const client = await RawClient.open(port)
          client.send(bytes)
          assert.equal((await client.answers(1))[0]?.status, 426, name)
          assert.equal(offered, expected && (kind === 'node' ? 'bytes' : 'frames'), `${kind}: ${name}`)
          client.destroy()
        }
      },
    )
  }
})

test('[GEN-4] any other answer is byte for byte that of an upgrade without an offer, closes, and nothing behind it is served', async () => {
  const answers: Record<string, (incoming: Incoming) => void> = {
    whole: incoming => incoming.respond(426, json, '{"a":1}'),
    empty: incoming => incoming.respond(204, [], ''),
    later: incoming => void setImmediate(() => incoming.respond(401, [['www-authenticate', 'Bearer']], 'no')),
    'a key asked for a body': incoming =>
      incoming.readBody({ maxBytes: 9, timeoutMs: 9 }, () => incoming.respond(400, text, 'x')),
    streamed: incoming => {
      const out = incoming.stream(403, text)
      for (let i = 0; i < 50; i++) out.write('0123456789'.repeat(10_000))
      out.flush()
      setImmediate(() => {
        out.write('end')
        out.end()
      })
    },
    cut: incoming => {
      const out = incoming.stream(200, text)
      out.write('part')
      out.flush()
      out.cut()
    },
    thrown: () => {
      throw new Error('handler')
    },
  }
  const [offering, plain] = [HANDSHAKE, HANDSHAKE.replace('13', '12')]
  for (const [name, answer] of Object.entries(answers)) {
    const paths: string[] = []
    await serving(
      'node',
      incoming => {
        paths.push(`${incoming.path} ${incoming.tunnel !== undefined}`)
        answer(incoming)
      },
      async ({ port, listener }) => {
        const received: string[] = []
        for (const bytes of [offering, plain, offering + TAIL]) {
          const client = await RawClient.open(port)
          client.send(bytes)
          await client.closing()
          assert.equal(client.closed, 'end', name)
          received.push(client.received.toString('latin1').replace(/date: [^\r]*/i, 'date'))
        }
        assert.match(received[0]!, /^HTTP\/1\.1 \d{3} .*\r\nconnection: close\r\n/s)
        assert.equal(received[0], received[1], name)
        assert.equal(received[2], received[1], name)
        assert.deepEqual(paths, ['/a true', '/a false', '/a true'])
        await eventually(() => listener.connections === 0 && listener.unsent === 0)
      },
    )
  }
})

test('the 101 leaves at once with its headers; bytes go both ways as they are, those in the handshake’s packet too', async () => {
  await tunnelling(async ({ port, ends }) => {
    const client = await dial(port, `\u0000ÿ${TAIL}`)
    assert.equal(
      client.received.toString('latin1'),
      'HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\n',
    )
    const [end] = ends
    await eventually(() => end!.text === `\u0000ÿ${TAIL}`)
    client.send('more')
    await eventually(() => end!.text === `\u0000ÿ${TAIL}more`)
    end!.say('é')
    end!.say(Buffer.from([0, 255]))
    await client.until(() => told(client).length === 4)
    assert.deepEqual([...told(client)], [0xc3, 0xa9, 0, 255])
    assert.equal(ends.length, 1)
    client.destroy()
  })
})

test('a handshake in two packets, cut anywhere, opens the same tunnel', async () => {
  await tunnelling(async ({ port, ends }) => {
    for (let cut = 1; cut < HANDSHAKE.length; cut += 5) {
      const client = await RawClient.open(port)
      await client.sendPieces([HANDSHAKE.slice(0, cut), `${HANDSHAKE.slice(cut)}x`])
      await client.until(() => client.received.includes('\r\n\r\n'))
      await eventually(() => ends.at(-1)!.text === 'x')
      client.destroy()
    }
  })
})

test('a header that would break the head apart throws; another answer can still be given', async () => {
  let thrown: unknown
  await serving(
    'node',
    incoming => {
      try {
        incoming.stream(101, [['x-a', 'b\r\nc: d']])
      } catch (error) {
        thrown = error
        incoming.respond(500, [], 'sorry')
      }
    },
    async ({ port }) => {
      const client = await dial(port)
      assert.ok(thrown instanceof TypeError)
      assert.equal((await client.answers(1))[0]?.status, 500)
    },
  )
})

test('framing headers of a 101 are left out', async () => {
  await serving(
    'node',
    incoming =>
      void incoming.stream(101, [
        ['content-length', '5'],
        ['transfer-encoding', 'chunked'],
        ['connection', 'close'],
        ['x-a', 'b'],
      ]),
    async ({ port }) => {
      const client = await dial(port)
      assert.match(client.received.toString(), /\r\nx-a: b\r\n\r\n$/)
      assert.doesNotMatch(client.received.toString(), /content-length|transfer-encoding|close/)
      client.destroy()
    },
  )
})

test('without an offer 101 is no answer', async () => {
  let thrown: unknown
  await serving(
    'node',
    incoming => {
      try {
        incoming.stream(101, [])
      } catch (error) {
        thrown = error
        incoming.respond(501, [], '')
      }
    },
    async ({ port }) => {
      const client = await RawClient.open(port)
      client.send(TAIL)
      assert.equal((await client.answers(1))[0]?.status, 501)
      assert.ok(thrown instanceof TypeError)
      client.destroy()
    },
  )
})

test('the client ends its side: that is told, the other side goes on to its own end', async () => {
  await tunnelling(async ({ port, ends, listener }) => {
    const client = await dial(port)
    client.send('last words')
    client.socket.end()
    const [end] = ends
    await eventually(() => end!.ended)
    assert.equal(end!.text, 'last words')
    end!.say('answer')
    await client.until(() => told(client).includes('answer'))
    end!.say('!')
    end!.out.end()
    await client.closing()
    assert.equal(told(client).toString(), 'answer!')
    assert.equal(client.closed, 'end')
    assert.equal(end!.aborted, 0)
    await eventually(() => listener.connections === 0 && listener.unsent === 0)
  })
})

test('[GEN-4] a client that still talks gets the end of a tunnel, or the answer instead of one, whole', async () => {
  const data = Buffer.alloc(1024 * 1024, 'x')
  await tunnelling(
    async ({ port, ends, waiting, listener }) => {
      for (const answer of ['tunnel', 'respond', 'stream']) {
        const client = await RawClient.open(port)
        client.send(HANDSHAKE)
        client.socket.pause()
        await eventually(() => waiting.length === 1)
        const [incoming] = waiting.splice(0)
        const end = ends.at(-1)!
        if (answer === 'tunnel') {
          end.open(incoming!)
          end.say(data)
          end.out.end()
        } else if (answer === 'respond') incoming!.respond(403, text, data)
        else {
          const out = incoming!.stream(403, text)
          out.write(data)
          out.flush()
          out.end()
        }
        assert.equal(listener.unsent, 1)
        // What is on its way to a socket that has been closed is answered with a reset, which takes all unread bytes
        // along.
        for (let i = 0; i < 200; i++) {
          client.send(Buffer.alloc(5_000))
          await turns(2)
        }
        client.socket.resume()
        await client.closing()
        assert.equal(client.closed, 'end', answer)
        assert.ok(client.bytes > data.length, answer)
        if (answer !== 'tunnel') assert.ok((await client.answers(1))[0]!.whole, answer)
        // Nothing is heard of an ended tunnel.
        assert.deepEqual([end.text, end.ended, end.aborted], ['', false, 0])
        await eventually(() => listener.connections === 0 && listener.unsent === 0)
      }
    },
    { wait: true },
  )
})

test('a client that does not close its side after the end is closed', async () => {
  const clock = new ManualClock()
  await tunnelling(
    async ({ port, ends, listener }) => {
      const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
      socket.write(HANDSHAKE)
      await eventually(() => ends.length === 1)
      ends[0]!.out.end()
      socket.resume()
      await once(socket, 'end')
      assert.equal(listener.connections, 1)
      clock.advance(5_000)
      await eventually(() => listener.connections === 0 && listener.unsent === 0)
      socket.destroy()
    },
    { clock },
  )
})

suite('a client that leaves', () => {
  test('by a reset, in the tunnel: told once, writes go nowhere', async () => {
    await tunnelling(async ({ port, ends, listener }) => {
      const client = await dial(port)
      client.socket.resetAndDestroy()
      const [end] = ends
      await eventually(() => end!.aborted === 1)
      assert.equal(end!.say('x'), false)
      end!.out.end()
      end!.out.cut()
      assert.equal(end!.aborted, 1)
      await eventually(() => listener.connections === 0 && listener.unsent === 0)
    })
  })

  for (const how of ['reset', 'end'] as const) {
    test(`by a${how === 'end' ? 'n' : ''} ${how}, before the answer: told once, an answer goes nowhere`, async () => {
      await tunnelling(
        async ({ port, ends, waiting, listener }) => {
          const client = await RawClient.open(port)
          client.send(HANDSHAKE)
          await eventually(() => waiting.length === 1)
          if (how === 'reset') client.socket.resetAndDestroy()
          else client.socket.end()
          await eventually(() => ends[0]!.aborted === 1)
          ends[0]!.open(waiting[0]!)
          assert.equal(ends[0]!.say('x'), false)
          ends[0]!.out.end()
          await eventually(() => listener.connections === 0 && listener.unsent === 0)
          assert.equal(ends[0]!.aborted, 1)
        },
        { wait: true },
      )
    })
  }
})

test('[STR-4] a client that takes nothing holds the writer back, and gets every byte once it reads', async () => {
  await tunnelling(async ({ port, ends }) => {
    const client = await dial(port)
    client.socket.pause()
    const [end] = ends
    const sum = createHash('sha256')
    const piece = Buffer.alloc(64 * 1024)
    let written = 0
    const pump = (): void => {
      while (written < 24 * 1024 * 1024) {
        piece.fill(written >> 16)
        const copy = Buffer.from(piece)
        sum.update(copy)
        written += copy.length
        if (!end!.say(copy)) return
      }
      end!.out.end()
    }
    end!.out.onDrain(pump)
    pump()
    assert.ok(written < 24 * 1024 * 1024, 'every byte was taken')
    assert.ok(end!.out.buffered <= 2 * piece.length)
    client.socket.resume()
    await client.closing()
    assert.equal(client.closed, 'end')
    assert.equal(createHash('sha256').update(told(client)).digest('hex'), sum.digest('hex'))
  })
})

test('[STR-4] a reader that is paused holds the client back', async () => {
  await tunnelling(async ({ port, ends }) => {
    const client = await dial(port)
    const [end] = ends
    end!.flow.pause()
    const size = 24 * 1024 * 1024
    client.send(Buffer.alloc(size))
    await eventually(() => client.socket.writableLength > 0)
    assert.ok(end!.text.length < size)
    end!.flow.resume()
    await eventually(() => end!.heard.reduce((sum, { length }) => sum + length, 0) === size)
    client.destroy()
  })
})

test('decisions 15: a client that takes nothing for stall_timeout is gone', async () => {
  await tunnelling(
    async ({ port, ends }) => {
      const client = await dial(port)
      client.socket.pause()
      const [end] = ends
      while (end!.say(Buffer.alloc(64 * 1024))) {
        // Until the kernel takes no more.
      }
      await eventually(() => end!.aborted === 1)
      client.destroy()
    },
    { stallTimeoutMs: 100 },
  )
})

test('a callback that throws cuts the tunnel and is reported', async () => {
  await serving(
    'node',
    incoming => {
      incoming.stream(101, [])
      incoming.streamBody({
        chunk() {
          throw new Error('sink')
        },
        end() {},
      })
    },
    async ({ port, errors }) => {
      const client = await dial(port)
      client.send('x')
      await client.closing()
      assert.deepEqual(
        errors.map(error => (error as Error).message),
        ['sink'],
      )
    },
  )
})

test('a drain lets a tunnel run; close cuts it', async () => {
  await tunnelling(async ({ port, ends, listener }) => {
    const client = await dial(port)
    const [end] = ends
    listener.drain()
    client.send('up')
    await eventually(() => end!.text === 'up')
    end!.say('down')
    await client.until(() => told(client).includes('down'))
    assert.deepEqual([listener.connections, listener.unsent, client.closed], [1, 0, undefined])
    await listener.close()
    await client.closing()
    assert.deepEqual([listener.connections, end!.aborted], [0, 1])
  })
})

test('a handshake that is still unanswered is cut by close', async () => {
  await tunnelling(
    async ({ port, ends, waiting, listener }) => {
      const client = await RawClient.open(port)
      client.send(HANDSHAKE)
      await eventually(() => waiting.length === 1)
      await listener.close()
      await client.closing()
      assert.equal(client.received.length, 0)
      await eventually(() => ends[0]!.aborted === 1)
    },
    { wait: true },
  )
})

test('a handshake after an answer opens a tunnel; one behind a request without an answer is an upgrade without an offer', async () => {
  await tunnelling(async ({ port, ends }) => {
    const client = await RawClient.open(port)
    client.send(TAIL)
    assert.equal((await client.answers(1))[0]?.body.toString(), '/behind')
    client.send(HANDSHAKE)
    await client.until(() => client.received.includes('101 Switching'))
    assert.equal(ends.length, 1)
    client.destroy()
  })
  const waiting: Incoming[] = []
  await serving(
    'node',
    incoming => void waiting.push(incoming),
    async ({ port }) => {
      const client = await RawClient.open(port)
      client.send(TAIL + HANDSHAKE)
      await eventually(() => waiting.length === 2)
      assert.equal(waiting[1]!.tunnel, undefined)
      waiting[1]!.respond(501, text, 'second')
      waiting[0]!.respond(200, text, 'first')
      await client.closing()
      assert.deepEqual(
        (await client.answers(2)).map(({ status, body }) => [status, body.toString()]),
        [
          [200, 'first'],
          [501, 'second'],
        ],
      )
    },
  )
})

test('over TLS', async () => {
  const pem = (name: string): string => join(import.meta.dirname, 'tls', `${name}.pem`)
  await tunnelling(
    async ({ port, ends, listener }) => {
      const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false })
      await once(socket, 'secureConnect')
      let received = ''
      socket.on('data', data => {
        received += data.toString('latin1')
      })
      socket.write(`${HANDSHAKE}up`)
      await eventually(() => ends[0]?.text === 'up')
      ends[0]!.say('down')
      ends[0]!.out.end()
      await once(socket, 'close')
      assert.match(received, /^HTTP\/1\.1 101 .*\r\n\r\ndown$/s)
      await eventually(() => listener.connections === 0 && listener.unsent === 0)
    },
    { tls: { cert: pem('cert'), key: pem('key') } },
  )
})
