/** The port's promises, one by one, on both adapters. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { connect } from 'node:net'
import { suite, test } from 'node:test'
import { connect as connectTls } from 'node:tls'
import { fileURLToPath } from 'node:url'
import type { HeaderList, Incoming, OutgoingStream } from '../../core/ports/listener.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { listenNode } from '../../http/node/listener.ts'
import { listenUws } from '../../http/uws/listener.ts'
import { eventually } from '../eventually.ts'
import { echo, fastClock, json, kinds, parseAnswers, RawClient, serving, text, turns } from './harness.ts'

const limits = { maxBytes: 1 << 20, timeoutMs: 60_000 }
const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`
const post = (path: string, length: number, more = ''): string =>
  `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${length}\r\n${more}\r\n`
const sse: HeaderList = [['content-type', 'text/event-stream']]

for (const kind of kinds) {
  suite(kind, { concurrency: false }, () => {
    const it = (name: string, body: () => Promise<unknown>): void => {
      test(name, { timeout: 120_000 }, async () => void (await body()))
    }

    // ---- bodies ----

    it('[GEN-6] the body deadline is the gateway’s clock: dripping does not move it, and the 408 arrives', async () => {
      const clock = new ManualClock()
      let faults: unknown[] = []
      const handler = (incoming: Incoming): void =>
        incoming.readBody(limits, (fault, body) => {
          faults = [fault, body.byteLength]
          incoming.respond(408, json, '{"late":true}')
        })
      await serving(
        kind,
        handler,
        async h => {
          const client = await RawClient.open(h.port)
          client.send(post('/', 100))
          await eventually(() => clock.pending > 0)
          for (let i = 0; i < 59; i++) {
            client.send('x')
            await turns(2)
            clock.advance(1_000)
          }
          clock.advance(999)
          await turns(5)
          assert.deepEqual(faults, [])
          clock.advance(1)
          assert.deepEqual(faults, ['timeout', 0])
          const [answer] = await client.answers(1)
          assert.equal(answer?.status, 408)
          assert.deepEqual(JSON.parse(answer!.body.toString()), { late: true })
          assert.equal(answer!.headers.get('connection'), 'close')
          assert.equal(client.closed, undefined, 'the client gets time to read it')
          clock.advance(5_000)
          await client.closing()
          await eventually(() => h.listener.connections === 0)
          assert.equal(clock.pending, 0)
        },
        { clock },
      )
    })

    for (const framing of ['length', 'chunks'] as const) {
      it(`[GEN-5] a 413 early in a 10 MB upload (${framing}) reaches a client that writes all before it reads`, async () => {
        const seen: unknown[] = []
        await serving(
          kind,
          incoming =>
            incoming.readBody(limits, (fault, body) => {
              seen.push(fault, body.byteLength)
              incoming.respond(413, json, '{"error":"too_large"}')
            }),
          async h => {
            const client = await RawClient.open(h.port)
            client.socket.pause()
            const megabyte = Buffer.alloc(1 << 20, 'x')
            client.send(
              framing === 'length'
                ? post('/', 10 << 20)
                : 'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n',
            )
            for (let i = 0; i < 10; i++) {
              if (framing === 'chunks') client.send('100000\r\n')
              await new Promise<void>(resolve => client.socket.write(megabyte, () => resolve()))
              if (framing === 'chunks') client.send('\r\n')
            }
            if (framing === 'chunks') client.send('0\r\n\r\n')
            client.socket.resume()
            await client.closing()
            const answers = parseAnswers(client.received, 0, true)
            assert.equal(client.closed, 'end')
            assert.deepEqual(
              answers.map(a => [a.status, a.whole, a.headers.get('connection')]),
              [[413, true, 'close']],
            )
            assert.deepEqual(seen, ['too_large', 0])
          },
        )
      })
    }

    it('a 413 arrives although the client asked to close', async () => {
      await serving(kind, echo, async h => {
        const client = await RawClient.open(h.port)
        client.send(post('/', 3 << 20, 'Connection: close\r\n'))
        client.send(Buffer.alloc(3 << 20, 'x'))
        await client.closing()
        assert.equal(parseAnswers(client.received, 0, true)[0]?.status, 413)
        assert.equal(client.closed, 'end')
      })
    })

    it('a body at the cap passes, one byte more does not', async () => {
      const handler = (incoming: Incoming): void =>
        incoming.readBody({ maxBytes: 10, timeoutMs: 1_000 }, (fault, body) =>
          incoming.respond(fault ? 413 : 200, json, JSON.stringify(Buffer.from(body).toString())),
        )
      await serving(kind, handler, async h => {
        for (const [framed, status] of [
          [`${post('/', 10)}0123456789`, 200],
          [`${post('/', 11)}0123456789a`, 413],
          [
            'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n',
            200,
          ],
          [
            'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n6\r\n56789a\r\n0\r\n\r\n',
            413,
          ],
        ] as const) {
          const client = await RawClient.open(h.port)
          client.send(framed)
          const [answer] = await client.answers(1)
          assert.equal(answer?.status, status)
          if (status === 200) assert.equal(answer.body.toString(), '"0123456789"')
          client.destroy()
        }
      })
    })

    it('an early 401 from the head alone leaves the connection in step', async () => {
      await serving(
        kind,
        incoming =>
          incoming.path === '/in' ? incoming.respond(200, text, 'in') : incoming.respond(401, json, '{"no":1}'),
        async h => {
          const client = await RawClient.open(h.port)
          for (let i = 0; i < 3; i++) {
            client.send(post('/out', 300_000))
            // Half of it before the answer is awaited, half after: whatever is left over belongs to the refused
            // request.
            client.send(Buffer.alloc(150_000, 'GET /in HTTP/1.1\r\nHost: a\r\n\r\n'))
            const answers = await client.answers(2 * i + 1)
            assert.equal(answers.at(-1)?.status, 401)
            client.send(Buffer.alloc(150_000, 'GET /in HTTP/1.1\r\nHost: a\r\n\r\n'))
            client.send(get('/in'))
            assert.equal((await client.answers(2 * i + 2)).at(-1)?.body.toString(), 'in')
          }
          client.destroy()
        },
      )
    })

    it('an early answer to a body in chunks closes, whole body or not, and arrives whatever the chunks are', async () => {
      const handler = (incoming: Incoming): void => incoming.respond(401, json, '{"no":1}')
      const later = (incoming: Incoming): void => void setTimeout(handler, 5, incoming)
      for (const handle of [handler, later]) {
        await serving(kind, handle, async h => {
          // Broken ones meet a parser that has its own say, unless the answer was there first.
          const broken = kind === 'node' && handle === handler ? ['0x5\r\nhello'] : []
          for (const chunks of ['0\r\n\r\n', '5\r\nhello\r\n0\r\n\r\n', '5\r\nhel', '', ...broken]) {
            const client = await RawClient.open(h.port)
            client.send(`POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`)
            const [answer] = await client.answers(1)
            assert.equal(answer?.status, 401, chunks)
            assert.equal(answer.headers.get('connection'), 'close')
            client.send('\r\n0\r\n\r\n')
            await client.closing()
          }
        })
      }
    })

    it('chunks that were read to their end keep the connection', async () => {
      await serving(kind, echo, async h => {
        const client = await RawClient.open(h.port)
        for (let i = 1; i <= 3; i++) {
          client.send('POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n')
          assert.equal((await client.answers(i)).at(-1)?.body.toString(), 'POST / 5')
        }
        client.destroy()
      })
    })

    it('a 408 closes, whoever gives it and when', async () => {
      await serving(
        kind,
        incoming => {
          if (incoming.path === '/stream') {
            const out = incoming.stream(408, json)
            out.write('{}')
            out.end()
          } else incoming.respond(408, json, '{}')
        },
        async h => {
          for (const path of ['/', '/stream']) {
            const client = await RawClient.open(h.port)
            client.send(get(path))
            const [answer] = await client.answers(1)
            assert.equal(answer?.status, 408)
            assert.equal(answer.headers.get('connection'), 'close')
            if (path === '/') await client.closing()
            client.destroy()
          }
        },
      )
    })

    it('a refusal given later keeps the connection when the body is whole, and else closes it', async () => {
      const waiting: Incoming[] = []
      await serving(
        kind,
        incoming => void waiting.push(incoming),
        async h => {
          const client = await RawClient.open(h.port)
          const refuse = async (): Promise<void> => {
            await eventually(() => waiting.length === 1)
            waiting.pop()!.respond(401, json, '{"no":1}')
          }
          for (let i = 1; i <= 2; i++) {
            client.send(`${post('/', 5)}hello`)
            await refuse()
            assert.deepEqual(
              (await client.answers(i)).map(a => a.status),
              Array(i).fill(401),
            )
          }
          client.send(post('/', 5_000_000))
          client.send(Buffer.alloc(2_500_000))
          await refuse()
          client.send(Buffer.alloc(2_500_000))
          // uws: closed once the upload is swallowed; node: can go on.
          const third = (await client.answers(3))[2]
          assert.equal(third?.status, 401)
          assert.deepEqual(JSON.parse(third.body.toString()), { no: 1 })
          if (kind === 'uws') {
            assert.equal(third.headers.get('connection'), 'close')
            await client.closing()
            assert.equal(client.closed, 'end')
          }
          client.destroy()
        },
      )
    })

    it('a body that arrives before anyone asks is kept', async () => {
      const waiting: Incoming[] = []
      await serving(
        kind,
        incoming => void waiting.push(incoming),
        async h => {
          for (const size of [1, 1_000, 900_000]) {
            const client = await RawClient.open(h.port)
            client.send(Buffer.concat([Buffer.from(post('/', size)), Buffer.alloc(size, 'x')]))
            // The kernel has it all, and the listener as much as it takes unasked.
            await eventually(() => waiting.length === 1 && client.socket.writableLength === 0)
            await turns(20)
            echo(waiting.pop()!)
            assert.equal((await client.answers(1))[0]?.body.toString(), `POST / ${size}`)
            client.destroy()
          }
        },
      )
    })

    it('half a body, then the client leaves: aborted once, done never', async () => {
      let aborts = 0
      let dones = 0
      let begun = false
      await serving(
        kind,
        incoming => {
          begun = true
          incoming.onAborted(() => {
            aborts += 1
          })
          incoming.readBody(limits, () => {
            dones += 1
          })
        },
        async h => {
          const client = await RawClient.open(h.port)
          client.send(`${post('/', 10)}hello`)
          await eventually(() => begun)
          await turns(5)
          client.destroy()
          await eventually(() => aborts === 1 && h.listener.connections === 0)
          assert.equal(dones, 0)
          assert.deepEqual(h.errors, [])
        },
      )
    })

    it('a body asked for twice throws, and none is empty at once', async () => {
      const seen: unknown[] = []
      await serving(
        kind,
        incoming => {
          incoming.readBody(limits, (fault, body) => seen.push(fault, body.byteLength, incoming.hasBody))
          assert.throws(() => incoming.readBody(limits, () => {}), /already/)
          incoming.respond(200, text, 'ok')
        },
        async h => {
          const client = await RawClient.open(h.port)
          client.send(get('/'))
          await client.answers(1)
          assert.deepEqual(seen, [null, 0, false])
          client.destroy()
        },
      )
    })

    it('a streamed body passes whole through a sink that pauses', async () => {
      const size = 6_000_000
      const sent = Buffer.alloc(size)
      for (let i = 0; i < size; i += 4) sent.writeUInt32LE(i, i)
      const hash = createHash('sha256')
      let pauses = 0
      await serving(
        kind,
        incoming => {
          const flow = incoming.streamBody({
            chunk(bytes) {
              hash.update(bytes)
              flow.pause()
              pauses += 1
              setImmediate(() => setImmediate(() => flow.resume()))
            },
            end: () => incoming.respond(200, text, hash.digest('hex')),
          })
        },
        async h => {
          const client = await RawClient.open(h.port)
          client.send(Buffer.concat([Buffer.from(post('/', size)), sent]))
          const [answer] = await client.answers(1)
          assert.equal(answer?.body.toString(), createHash('sha256').update(sent).digest('hex'))
          assert.ok(pauses > 5)
          client.destroy()
        },
      )
    })

    it('a streamed body may be answered by a stream before it ends', async () => {
      await serving(
        kind,
        incoming => {
          const out = incoming.stream(200, sse)
          incoming.streamBody({
            chunk(bytes) {
              out.write(bytes)
              out.flush()
            },
            end: () => out.end(),
          })
        },
        async h => {
          const client = await RawClient.open(h.port)
          client.send(`${post('/', 10)}hello`)
          await client.until(() => client.received.includes('hello'))
          client.send('world')
          const [answer] = await client.answers(1)
          assert.equal(answer?.body.toString(), 'helloworld')
          client.send(`${post('/', 2)}hi`)
          assert.equal((await client.answers(2))[1]?.body.toString(), 'hi')
          client.destroy()
        },
      )
    })

    // ---- answers ----

    it('[GEN-4] HEAD has the length and no body, OPTIONS reaches the handler, 204 has neither', async () => {
      await serving(
        kind,
        incoming => {
          if (incoming.path === '/none') incoming.respond(204, [], '')
          else if (incoming.path === '/stream') {
            const out = incoming.stream(200, [...sse, ['content-length', '77']])
            out.write('data: not sent\n\n')
            out.flush()
            out.end()
          } else incoming.respond(200, text, incoming.method)
        },
        async h => {
          const head = await RawClient.open(h.port)
          head.headAnswers = 3
          head.send('HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n')
          await head.answers(1)
          head.send('HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n')
          await head.answers(2)
          head.send('HEAD /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n')
          const answers = await head.answers(3)
          assert.deepEqual(
            answers.map(a => [a.status, a.headers.get('content-length')]),
            [
              [200, '4'],
              [200, '77'],
              [200, '4'],
            ],
          )
          await head.closing()
          assert.ok(head.received.toString().endsWith('\r\n\r\n'))

          const client = await RawClient.open(h.port)
          client.send('OPTIONS /x HTTP/1.1\r\nHost: a\r\n\r\n')
          assert.equal((await client.answers(1))[0]?.body.toString(), 'OPTIONS')
          client.send(get('/none'))
          const none = (await client.answers(2))[1]
          assert.equal(none?.status, 204)
          assert.equal(none.headers.has('content-length'), false)
          client.send(get('/x'))
          assert.equal((await client.answers(3))[2]?.body.toString(), 'GET')
          client.destroy()
        },
      )
    })

    it('[GEN-4] an upgrade is answered by the handler, then the connection closes', async () => {
      await serving(
        kind,
        incoming => incoming.respond(426, json, JSON.stringify(incoming.upgrade)),
        async h => {
          const client = await RawClient.open(h.port)
          client.send('GET /v1/responses HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n')
          await client.closing()
          const [answer] = parseAnswers(client.received, 0, true)
          assert.equal(answer?.status, 426)
          assert.equal(answer.headers.get('connection'), 'close')
          assert.equal(answer.body.toString(), '"websocket"')
        },
      )
    })

    it('Expect: 100-continue is met', async () => {
      await serving(kind, echo, async h => {
        const client = await RawClient.open(h.port)
        client.send(post('/', 5, 'Expect: 100-continue\r\n'))
        await client.until(() => client.received.includes('100 Continue\r\n\r\n'))
        client.send('hello')
        assert.equal((await client.answers(1))[0]?.body.toString(), 'POST / 5')
        client.destroy()
      })
    })

    it('no banner, one Date, and the adapter’s own headers can’t be doubled', async () => {
      await serving(
        kind,
        incoming =>
          incoming.respond(
            200,
            [
              ['content-type', 'a/b'],
              ['content-length', '999'],
              ['date', 'never'],
              ['transfer-encoding', 'chunked'],
              ['keep-alive', 'x'],
              ['connection', 'keep-alive'],
              ['x-request-id', 'caf\xe9'],
            ],
            'ok',
          ),
        async h => {
          const client = await RawClient.open(h.port)
          client.send(get('/'))
          const [answer] = await client.answers(1) // throws on a doubled header
          assert.equal(answer?.body.toString(), 'ok')
          const names = [...answer.headers.keys()].filter(name => name !== 'connection' && name !== 'keep-alive').sort()
          assert.deepEqual(names, ['content-length', 'content-type', 'date', 'x-request-id'])
          assert.notEqual(answer.headers.get('date'), 'never')
          assert.equal(/uwebsockets|node/i.test(client.received.toString()), false)
          client.destroy()
        },
      )
    })

    it('connection: close among the answer’s headers closes after it', async () => {
      await serving(
        kind,
        incoming => incoming.respond(400, [['connection', 'close']], 'bye'),
        async h => {
          const client = await RawClient.open(h.port)
          client.send(get('/'))
          await client.closing()
          assert.equal(parseAnswers(client.received, 0, true)[0]?.body.toString(), 'bye')
        },
      )
    })

    it('a header that would split the answer throws and sends nothing', async () => {
      const bad: [string, string][] = [
        ['x-a', 'b\r\nset-cookie: c'],
        ['x-a', 'b\nc'],
        ['x-a', 'b\0'],
        ['x-a', '\u0100'],
        ['x a', 'b'],
        ['x:a', 'b'],
        ['', 'b'],
      ]
      await serving(
        kind,
        incoming => {
          for (const pair of bad) {
            assert.throws(() => incoming.respond(200, [pair], 'x'), TypeError)
            assert.throws(() => incoming.stream(200, [pair]), TypeError)
          }
          assert.throws(() => incoming.respond(99, [], 'x'), TypeError)
          incoming.respond(200, text, 'clean')
        },
        async h => {
          const client = await RawClient.open(h.port)
          client.send(get('/'))
          assert.equal((await client.answers(1))[0]?.body.toString(), 'clean')
          assert.deepEqual(h.errors, [])
          client.destroy()
        },
      )
    })

    for (const [where, handler] of [
      [
        'the handler',
        () => {
          throw new Error('boom')
        },
      ],
      [
        'readBody’s callback',
        (incoming: Incoming) =>
          incoming.readBody(limits, () => {
            throw new Error('boom')
          }),
      ],
      [
        'a sink',
        (incoming: Incoming) =>
          void incoming.streamBody({
            chunk() {
              throw new Error('boom')
            },
            end() {},
          }),
      ],
    ] as [string, (incoming: Incoming) => void][]) {
      it(`an exception in ${where} is a 500, and the listener goes on`, async () => {
        await serving(kind, handler, async h => {
          for (let i = 0; i < 2; i++) {
            const client = await RawClient.open(h.port)
            client.send(`${post('/', 5)}hello`)
            await client.closing()
            assert.equal(parseAnswers(client.received, 0, true)[0]?.status, 500)
          }
          assert.deepEqual(
            h.errors.map(error => (error as Error).message),
            ['boom', 'boom'],
          )
          assert.equal(h.listener.connections, 0)
        })
      })
    }

    it('answers of every size around the cork arrive as they are', async () => {
      const body = (size: number): string => 'é'.repeat(size >> 1) + (size & 1 ? 'x' : '')
      await serving(
        kind,
        incoming => {
          const size = Number(incoming.query)
          incoming.respond(200, text, incoming.path === '/bytes' ? Buffer.from(body(size)) : body(size))
        },
        async h => {
          const client = await RawClient.open(h.port)
          let count = 0
          let expected = 0
          for (const size of [
            0, 1, 3_999, 4_001, 11_900, 12_040, 12_100, 12_288, 16_383, 16_384, 16_385, 70_001, 3_000_000,
          ]) {
            for (const path of ['/bytes', '/text']) {
              client.send(get(`${path}?${size}`))
              count += 1
              expected += size
              const answer = (await client.answers(count, expected)).at(-1)!
              assert.equal(answer.body.byteLength, size)
              assert.ok(answer.body.equals(Buffer.from(body(size))), `${path} ${size}`)
            }
          }
          client.destroy()
        },
      )
    })

    it('30 MB to a client that vanishes: no error, no abort, no socket left', async () => {
      let aborts = 0
      await serving(
        kind,
        incoming => {
          incoming.onAborted(() => {
            aborts += 1
          })
          incoming.respond(200, text, Buffer.alloc(30_000_000, 'x'))
        },
        async h => {
          const client = await RawClient.open(h.port)
          client.send(get('/'))
          await client.until(() => client.received.length > 100_000)
          client.socket.resetAndDestroy()
          await eventually(() => h.listener.connections === 0)
          assert.equal(aborts, 0)
          assert.deepEqual(h.errors, [])
        },
      )
    })

    // ---- streams ----

    it('a stream arrives in order, whole, and the connection goes on', async () => {
      await serving(
        kind,
        incoming => {
          const out = incoming.stream(200, sse)
          let i = 0
          const next = (): void => {
            if (i === 20) return out.end()
            out.write(`data: ${i}\n\n`)
            out.write(Buffer.from(`data: ${i}b\n\n`))
            i += 1
            assert.equal(out.flush(), true)
            setImmediate(next)
          }
          next()
        },
        async h => {
          const client = await RawClient.open(h.port)
          let want = ''
          for (let i = 0; i < 20; i++) want += `data: ${i}\n\ndata: ${i}b\n\n`
          for (let round = 1; round <= 3; round++) {
            client.send(get('/'))
            const answer = (await client.answers(round)).at(-1)!
            assert.equal(answer.headers.get('transfer-encoding'), 'chunked')
            assert.equal(answer.body.toString(), want)
          }
          client.destroy()
        },
      )
    })

    it('[STR-4] a slow reader gets false, then onDrain; what waits is bounded', async () => {
      let out!: OutgoingStream
      let drains = 0
      let written = 0
      let highest = 0
      const block = Buffer.alloc(64 * 1024, 'x')
      const pump = (): void => {
        while (written < 40_000_000) {
          out.write(block)
          written += block.byteLength
          const more = out.flush()
          highest = Math.max(highest, out.buffered)
          if (!more) return
        }
        out.end()
      }
      await serving(
        kind,
        incoming => {
          out = incoming.stream(200, sse)
          out.onDrain(() => {
            drains += 1
            pump()
          })
          pump()
        },
        async h => {
          const client = await RawClient.open(h.port)
          client.socket.pause()
          client.send(get('/'))
          await eventually(() => written > 0)
          await turns(20)
          assert.ok(written < 40_000_000, 'the writer was stopped')
          client.socket.resume()
          const [answer] = await client.answers(1, 40_000_000)
          assert.equal(answer?.whole, true)
          assert.equal(answer.body.byteLength, written)
          assert.ok(drains > 0)
          assert.ok(highest < 1_000_000, `${highest} bytes waited`)
          client.destroy()
        },
      )
    })

    it('[STR-4] a client that takes nothing for stall_timeout is gone, streamed or whole', async () => {
      for (const path of ['/stream', '/whole']) {
        let aborts = 0
        let begun = false
        await serving(
          kind,
          incoming => {
            begun = true
            incoming.onAborted(() => {
              aborts += 1
            })
            if (path === '/whole') return incoming.respond(200, text, Buffer.alloc(30_000_000))
            const out = incoming.stream(200, sse)
            const pump = (): void => {
              do out.write(Buffer.alloc(100_000))
              while (out.flush())
            }
            out.onDrain(pump)
            pump()
          },
          async h => {
            const client = await RawClient.open(h.port)
            client.socket.pause()
            client.send(get(path))
            await eventually(() => begun && h.listener.connections === 0)
            assert.equal(aborts, path === '/stream' ? 1 : 0)
            client.destroy()
          },
          { stallTimeoutMs: 150 },
        )
      }
    })

    it('[STR-4] a slow reader’s answer is unsent until the kernel has it whole; closed then, it still arrives', async () => {
      const size = 20_000_000
      for (const path of ['/whole', '/stream', '/cut']) {
        await serving(
          kind,
          incoming => {
            if (path === '/whole') return incoming.respond(200, text, Buffer.alloc(size, 'x'))
            const out = incoming.stream(200, sse)
            out.write(Buffer.alloc(size, 'x'))
            if (path === '/cut') out.cut()
            else out.end()
          },
          async h => {
            assert.equal(h.listener.unsent, 0)
            const client = await RawClient.open(h.port)
            client.socket.pause()
            client.send(get(path))
            await eventually(() => h.listener.unsent === 1)
            h.listener.drain()
            await turns(50)
            assert.equal(h.listener.unsent, 1)
            client.socket.resume()
            await eventually(() => h.listener.unsent === 0)
            await h.listener.close()
            await client.closing()
            const [answer] = parseAnswers(client.received, 0, true)
            assert.equal(answer?.body.byteLength, size)
            assert.equal(answer.whole, path !== '/cut')
          },
        )
      }
    })

    it('an unsent answer whose client leaves is not waited for', async () => {
      await serving(
        kind,
        incoming => incoming.respond(200, text, Buffer.alloc(20_000_000)),
        async h => {
          const client = await RawClient.open(h.port)
          client.socket.pause()
          client.send(get('/'))
          await eventually(() => h.listener.unsent === 1)
          client.destroy()
          await eventually(() => h.listener.unsent === 0)
        },
      )
    })

    it('an upload that is swallowed behind its refusal is unsent until it ends', async () => {
      await serving(
        kind,
        incoming => incoming.readBody({ maxBytes: 10, timeoutMs: 1000 }, () => incoming.respond(413, json, '{}')),
        async h => {
          const client = await RawClient.open(h.port)
          client.send(`${post('/', 1000)}x`)
          assert.equal((await client.answers(1))[0]?.status, 413)
          assert.equal(h.listener.unsent, 1)
          client.send('x'.repeat(999))
          await client.closing()
          await eventually(() => h.listener.unsent === 0)
        },
      )
    })

    it('a writer that ignores false is cut before it fills the memory', async () => {
      let aborted = false
      let written = 0
      await serving(
        kind,
        incoming => {
          incoming.onAborted(() => {
            aborted = true
          })
          const out = incoming.stream(200, sse)
          const more = (): void => {
            if (aborted || written > 200_000_000) return
            out.write(Buffer.alloc(256 * 1024))
            written += 256 * 1024
            out.flush()
            setImmediate(more)
          }
          more()
        },
        async h => {
          const client = await RawClient.open(h.port)
          client.socket.pause()
          client.send(get('/'))
          await eventually(() => aborted)
          assert.ok(written < 50_000_000, `${written}`)
          client.destroy()
        },
      )
    })

    it('[STR-6] a cut stream has all its bytes and no terminator, with a fast reader and a slow one', async () => {
      for (const [slow, blocks] of [
        [false, 1],
        [true, 200],
      ] as const) {
        const block = Buffer.alloc(50_000, 'abcde')
        let aborts = 0
        await serving(
          kind,
          incoming => {
            incoming.onAborted(() => {
              aborts += 1
            })
            const out = incoming.stream(200, sse)
            let left: number = blocks
            const pump = (): void => {
              while (left > 0) {
                left -= 1
                out.write(block)
                if (!out.flush()) return
              }
              out.write('event: error\n\n')
              out.cut()
            }
            out.onDrain(pump)
            pump()
          },
          async h => {
            const client = await RawClient.open(h.port)
            if (slow) client.socket.pause()
            client.send(get('/'))
            if (slow) {
              await eventually(() => h.listener.connections === 1)
              await turns(20)
              client.socket.resume()
            }
            await client.closing()
            const [answer] = parseAnswers(client.received, 0, true)
            assert.equal(answer?.whole, false)
            assert.equal(answer.body.byteLength, blocks * block.byteLength + 14)
            assert.ok(answer.body.toString().endsWith('event: error\n\n'))
            assert.equal(aborts, 0)
            await eventually(() => h.listener.connections === 0)
          },
        )
      }
    })

    it('[STR-4] a client that leaves is noticed at once, whatever the state, by FIN or RST', async () => {
      const states: Record<string, (incoming: Incoming) => void> = {
        reading: incoming => incoming.readBody(limits, () => {}),
        held: () => {},
        sinking: incoming => void incoming.streamBody({ chunk() {}, end() {} }),
        streaming: incoming => {
          const out = incoming.stream(200, sse)
          out.write('data: 1\n\n')
          out.flush()
        },
        silent: incoming => void incoming.stream(200, sse),
        blocked: incoming => {
          const out = incoming.stream(200, sse)
          do out.write(Buffer.alloc(100_000))
          while (out.flush())
        },
      }
      for (const [name, handler] of Object.entries(states)) {
        for (const way of ['fin', 'rst'] as const) {
          let aborts = 0
          let reached = false
          let late = 0
          await serving(
            kind,
            incoming => {
              incoming.onAborted(() => {
                aborts += 1
                incoming.onAborted(() => {
                  late += 1
                })
              })
              handler(incoming)
              reached = true
            },
            async h => {
              const client = await RawClient.open(h.port)
              client.socket.pause()
              client.send(`${post('/', name === 'streaming' ? 1 : 10)}x`)
              await eventually(() => reached)
              await turns(5)
              if (way === 'fin') client.socket.destroy()
              else client.socket.resetAndDestroy()
              await eventually(() => h.listener.connections === 0)
              assert.deepEqual([aborts, late], [1, 1], `${name} ${way}`)
              assert.deepEqual(h.errors, [])
            },
          )
        }
      }
    })

    it('[STR-4] [R8] the last word to a slow reader may be long: it arrives', async () => {
      let size = 0
      const handler = (incoming: Incoming): void => {
        const stream = incoming.stream(200, sse)
        const fill = (): void => {
          do {
            stream.write('x'.repeat(10_000))
            size += 10_000
          } while (stream.flush())
          // In pieces: frames that close what is open, one after the other.
          for (let i = 0; i < 5; i++) stream.write('y'.repeat(2_000_000))
          size += 10_000_000
          stream.end()
        }
        setImmediate(fill)
      }
      await serving(kind, handler, async h => {
        const client = await RawClient.open(h.port)
        client.socket.pause()
        client.send(get('/'))
        await eventually(() => size > 10_000_000)
        await turns(5)
        client.socket.resume()
        const [answer] = await client.answers(1, size)
        assert.equal(answer?.body.length, size)
        assert.ok(answer.whole)
        client.destroy()
      })
    })

    it('calls after the client has left do nothing', async () => {
      let incoming!: Incoming
      let out: OutgoingStream | undefined
      await serving(
        kind,
        i => {
          incoming = i
          if (i.path === '/stream') out = i.stream(200, sse)
        },
        async h => {
          for (const path of ['/stream', '/whole']) {
            let aborts = 0
            const client = await RawClient.open(h.port)
            client.send(get(path))
            await eventually(() => incoming?.path === path)
            incoming.onAborted(() => {
              aborts += 1
            })
            client.destroy()
            await eventually(() => aborts === 1)
            out?.write('x')
            assert.equal(out?.flush() ?? false, false)
            out?.end()
            out?.cut()
            if (path === '/whole') incoming.respond(200, text, 'x')
            assert.equal(out?.buffered ?? 0, 0)
          }
          assert.deepEqual(h.errors, [])
        },
      )
    })

    // ---- connections ----

    it('drain: no new connections, Connection: close on answers, a running stream ends well', async () => {
      let out!: OutgoingStream
      let late: Incoming | undefined
      await serving(
        kind,
        incoming => {
          if (incoming.path === '/stream') {
            out = incoming.stream(200, sse)
            out.write('a')
            out.flush()
          } else if (incoming.path === '/slow') late = incoming
          else incoming.respond(200, text, 'x')
        },
        async h => {
          const [streaming, slow, probe] = await Promise.all([1, 2, 3].map(() => RawClient.open(h.port)))
          streaming!.send(get('/stream'))
          await streaming!.until(() => streaming!.received.includes('\r\na'))
          probe!.send(get('/'))
          assert.equal((await probe!.answers(1))[0]?.headers.get('connection') === 'close', false)
          slow!.send(get('/slow'))
          await eventually(() => late !== undefined)
          h.listener.drain()
          h.listener.drain()
          late!.respond(200, text, 'slow')
          const [answer] = await slow!.answers(1)
          assert.equal(answer?.headers.get('connection'), 'close')
          await slow!.closing()
          const refused = await new Promise<string>(resolve => {
            const socket = connect(h.port, '127.0.0.1')
            socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? ''))
            socket.on('connect', () => resolve('connected'))
          })
          assert.equal(refused, 'ECONNREFUSED')
          out.write('b')
          out.end()
          const [stream] = await streaming!.answers(1)
          assert.equal(stream?.body.toString(), 'ab')
          for (const client of [streaming, probe]) client!.destroy()
        },
      )
    })

    it('close ends everything at once and tells the exchanges', async () => {
      let aborts = 0
      let client!: RawClient
      let begun = false
      await serving(
        kind,
        incoming => {
          begun = true
          incoming.onAborted(() => void (aborts += 1))
        },
        async h => {
          client = await RawClient.open(h.port)
          client.send(get('/'))
          await eventually(() => begun)
          await h.listener.close()
          await client.closing()
          await eventually(() => h.listener.connections === 0)
        },
      )
      assert.equal(aborts, 1)
    })

    /*
     * What a stream says last may be several times what it has said (Responses repeats a reply's text four times).
     * Above 32 MB of it, a reader that happened to be slow at that moment was cut: streams of 9 MB of text ended near
     * their end, some of twenty.
     */
    it('a last word four times as long as all before it reaches a client that was slow when it came', async () => {
      const piece = Buffer.alloc(100_000, 'a')
      const last = Buffer.alloc(36_500_000, 'z')
      let before = 0
      let client!: RawClient
      await serving(
        kind,
        incoming => {
          const out = incoming.stream(200, sse)
          const pump = (): void => {
            for (;;) {
              // From here on nothing is read, so that the kernel fills.
              if (before >= 9_000_000) client.socket.pause()
              out.write(piece)
              before += piece.length
              const fast = out.flush()
              if (before > 9_000_000 && !fast) break
              if (!fast) return
            }
            out.write(last)
            out.end()
            client.socket.resume()
          }
          out.onDrain(pump)
          pump()
        },
        async h => {
          client = await RawClient.open(h.port)
          client.send(get('/'))
          await client.until(() => client.bytes > before + last.length)
          const [answer] = await client.answers(1)
          assert.equal(answer?.whole, true)
          assert.equal(answer.body.length, before + last.length)
          assert.equal(answer.body.at(-1), 'z'.charCodeAt(0))
          client.destroy()
        },
      )
    })

    it('a caller that does not heed `flush` is cut before it fills the memory', async () => {
      let aborted = false
      await serving(
        kind,
        incoming => {
          const out = incoming.stream(200, sse)
          const piece = Buffer.alloc(1 << 20)
          incoming.onAborted(() => {
            aborted = true
          })
          const write = (): void => {
            if (aborted) return
            out.write(piece)
            out.flush()
            setImmediate(write)
          }
          write()
        },
        async h => {
          const client = await RawClient.open(h.port)
          client.socket.pause()
          client.send(get('/'))
          await eventually(() => aborted)
          client.destroy()
        },
      )
    })

    it('max_connections: one more is turned away, and its place is free again when another leaves', async () => {
      await serving(
        kind,
        echo,
        async h => {
          const [first, second] = [await RawClient.open(h.port), await RawClient.open(h.port)]
          await eventually(() => h.listener.connections === 2)
          const third = new RawClient(h.port)
          await third.closing()
          assert.equal(third.received.length, 0)
          first.send(get('/'))
          assert.equal((await first.answers(1))[0]?.status, 200)
          second.destroy()
          await eventually(() => h.listener.connections === 1)
          const fourth = await RawClient.open(h.port)
          fourth.send(get('/'))
          assert.equal((await fourth.answers(1))[0]?.status, 200)
          for (const client of [first, fourth]) client.destroy()
        },
        { maxConnections: 2 },
      )
    })

    it('the port is ours alone, unless shared on purpose', async () => {
      await serving(kind, echo, async h => {
        await assert.rejects(
          serving(kind, echo, async () => {}, { port: h.port }),
          /in use|EADDRINUSE/,
        )
      })
      const port = await serving(kind, echo, async h => h.port)
      await serving(
        kind,
        echo,
        h => serving(kind, echo, async other => assert.equal(other.port, h.port), { port, sharePort: true }),
        { port, sharePort: true },
      )
    })

    it('the client’s address: X-Forwarded-For counts only behind trust_proxy', async () => {
      const handler = (incoming: Incoming): void => incoming.respond(200, text, incoming.remoteAddress)
      const ask = async (trustProxy: string[], forwarded: string): Promise<string> =>
        serving(
          kind,
          handler,
          async h => {
            const client = await RawClient.open(h.port)
            client.send(`GET / HTTP/1.1\r\nHost: a\r\n${forwarded}\r\n`)
            const [answer] = await client.answers(1)
            client.destroy()
            return answer!.body.toString()
          },
          { trustProxy },
        )
      assert.equal(await ask([], 'X-Forwarded-For: 9.9.9.9\r\n'), '127.0.0.1')
      assert.equal(await ask(['10.0.0.0/8'], 'X-Forwarded-For: 9.9.9.9\r\n'), '127.0.0.1')
      assert.equal(await ask(['127.0.0.1'], ''), '127.0.0.1')
      assert.equal(await ask(['127.0.0.0/8', '10.0.0.1'], 'X-Forwarded-For: 1.1.1.1, 9.9.9.9, 10.0.0.1\r\n'), '9.9.9.9')
    })

    it('TLS', async () => {
      const file = (name: string): string => fileURLToPath(new URL(`tls/${name}`, import.meta.url))
      const tls = { cert: file('cert.pem'), key: file('key.pem') }
      const big = Buffer.alloc(2_000_000, 'tls ')
      await serving(
        kind,
        incoming => {
          if (incoming.path === '/whole') return incoming.respond(200, text, big)
          const out = incoming.stream(200, sse)
          let at = 0
          const pump = (): void => {
            while (at < big.byteLength) {
              out.write(big.subarray(at, at + 20_000))
              at += 20_000
              if (!out.flush()) return
            }
            out.end()
          }
          out.onDrain(pump)
          pump()
        },
        async h => {
          const socket = connectTls({ port: h.port, host: '127.0.0.1', rejectUnauthorized: false })
          const chunks: Buffer[] = []
          let bytes = 0
          const count = async (answers: number): Promise<void> => {
            while (parseAnswers(Buffer.concat(chunks)).filter(a => a.whole).length < answers) {
              await new Promise<void>(resolve => socket.once('data', () => resolve()))
              if (bytes < answers * big.byteLength) continue
            }
          }
          socket.on('data', chunk => {
            chunks.push(chunk)
            bytes += chunk.length
          })
          socket.write(get('/whole'))
          await count(1)
          socket.write(get('/stream'))
          await count(2)
          for (const answer of parseAnswers(Buffer.concat(chunks))) assert.ok(answer.body.equals(big))
          socket.destroy()
        },
        { tls },
      )
      const listen = kind === 'uws' ? listenUws : listenNode
      await assert.rejects(
        listen(
          {
            host: '127.0.0.1',
            port: 0,
            maxConnections: 1,
            stallTimeoutMs: 1,
            trustProxy: [],
            tls: { cert: '/nowhere', key: '/nowhere' },
            refuse: () => ({ status: 400, headers: [], body: '' }),
          },
          echo,
        ),
        /nowhere/,
      )
    })

    it('an upload that is never finished behind an early answer does not hold its socket', async () => {
      let begun: Incoming | undefined
      await serving(
        kind,
        incoming => {
          begun = incoming
        },
        async h => {
          const client = await RawClient.open(h.port)
          client.send(`${post('/', 1_000_000, 'Connection: close\r\n')}begun`)
          await eventually(() => begun !== undefined)
          begun!.respond(401, json, '{}')
          assert.equal((await client.answers(1))[0]?.status, 401)
          await client.closing()
          await eventually(() => h.listener.connections === 0)
        },
        { clock: fastClock(50) },
      )
    })
  })
}

test('node: with Expect, a refusal by the head saves the upload', { timeout: 120_000 }, async () => {
  await serving(
    'node',
    incoming => incoming.respond(401, json, '{}'),
    async h => {
      const client = await RawClient.open(h.port)
      client.send(post('/', 5, 'Expect: 100-continue\r\n'))
      const [answer] = await client.answers(1)
      assert.equal(answer?.status, 401)
      assert.equal(client.received.includes('100 Continue'), false)
      client.destroy()
    },
  )
})
