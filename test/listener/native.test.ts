/**
 * What the tested build of uWebSockets.js does when it is left alone: the reasons of the adapter's rules
 * (docs/spec/listener.md). A test that fails here on a newer build is good news: that rule, or part of it, has lost its
 * reason. Those that wait for its idle clock are in native.long.test.ts.
 */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { suite, test } from 'node:test'
import type { UwsApp } from '../../http/uws/native.ts'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'
import { bare, get, post, uws } from './bare.ts'
import { parseAnswers, RawClient } from './harness.ts'

/** What a fresh process comes to that serves with `handler` (source text) and gets `request`. */
async function fate(handler: string, request: string): Promise<{ code: number | null; signal: string | null }> {
  const source = `
    const { loadNative } = await import(${JSON.stringify(new URL('../../http/uws/native.ts', import.meta.url).href)})
    const { connect } = await import('node:net')
    process.on('uncaughtException', () => {})
    const uws = loadNative()
    uws.App().any('/*', ${handler}).listen('127.0.0.1', 0, socket => {
      const client = connect(uws.us_socket_local_port(socket), '127.0.0.1')
      client.on('data', () => process.exit(0)).on('close', () => process.exit(0)).on('error', () => {})
      client.write(${JSON.stringify(request)})
    })`
  const child = spawn(process.execPath, [...process.execArgv, '--input-type=module', '--eval', source], {
    stdio: 'ignore',
  })
  const [code, signal] = await once(child, 'exit')
  return { code, signal }
}

/** The statuses that one connection got for these bytes, once it has closed or `sentinel` was answered behind them. */
async function statuses(port: number, bytes: string): Promise<number[]> {
  const client = await RawClient.open(port)
  client.send(bytes)
  await client.until(() => client.received.includes('last'))
  const found = [...client.received.toString('latin1').matchAll(/HTTP\/1\.1 (\d{3})/g)].map(match => Number(match[1]))
  client.destroy()
  return found
}

suite('uWebSockets.js left alone', { concurrency: 4 }, () => {
  const it = (name: string, body: () => Promise<void>): void => {
    test(name, { timeout: 60_000 }, body)
  }

  it('R1: a handler that neither answers nor asks for onAborted ends the process, and so does one that throws before it', async () => {
    const aborted = { code: null, signal: 'SIGABRT' }
    assert.deepEqual(await fate('() => {}', get()), aborted)
    assert.deepEqual(await fate("() => { throw new Error('x') }", get()), aborted)
    assert.deepEqual(await fate("res => { res.onAborted(() => {}); res.end('x') }", get()), { code: 0, signal: null })
  })

  it('R2: a request can’t be read later, and a body that is not asked for at once is lost', async () => {
    let late: unknown
    let chunks = 0
    await bare(
      (res, req) =>
        void setImmediate(() => {
          try {
            req.getUrl()
          } catch (error) {
            late = error
          }
          res.onData(() => void (chunks += 1))
          setImmediate(() => res.cork(() => res.end('last', true)))
        }),
      async port => void (await statuses(port, post('Content-Length: 5\r\n', 'hello'))),
    )
    assert.ok(late instanceof Error)
    assert.equal(chunks, 0)
  })

  // The second request is what a length that two readers see differently hides in a body.
  for (const [what, bytes] of [
    ['two lengths', `${post('Content-Length: 0\r\nContent-Length: 40\r\n')}`],
    ['an empty length', post('Content-Length:\r\n')],
    ['an empty Transfer-Encoding', post('Transfer-Encoding:\r\n')],
    ['Transfer-Encoding: identity, taken for chunked', post('Transfer-Encoding: identity\r\n', '0\r\n\r\n')],
    ['a length behind a header without a name', post(': x\r\nContent-Length: 40\r\n')],
    ['Connection: close', post('Connection: close\r\nContent-Length: 0\r\n')],
  ] as const) {
    it(`R3, R4: ${what}: answered at once, and what stands behind is served as a request`, async () => {
      await bare(
        (res, req) => void res.end(req.getUrl() === '/last' ? 'last' : 'first'),
        async port => assert.deepEqual(await statuses(port, bytes + get('/last')), [200, 200]),
      )
    })
  }

  it('R3: the same with the answer still pending closes the connection without a word', async () => {
    await bare(
      () => {},
      async port => {
        const client = await RawClient.open(port)
        client.send(get() + get())
        await client.closing()
        assert.equal(client.received.length, 0)
      },
    )
  })

  it('R4: a header without a name hides those behind it', async () => {
    const names: string[] = []
    await bare(
      (res, req) => {
        req.forEach(name => void names.push(name))
        res.end('last')
      },
      async port => void (await statuses(port, post('a: 1\r\n: x\r\nb: 2\r\n'))),
    )
    assert.deepEqual(names, ['host', 'a'])
  })

  it('R5: bytes above 0x7f are cut off both ends of a value', async () => {
    let value = ''
    await bare(
      (res, req) => {
        req.forEach((name, text) => {
          if (name === 'x') value = text
        })
        res.end('last')
      },
      async port => void (await statuses(port, post('x: \xffkey\xff\xfe\r\n'))),
    )
    assert.equal(value, 'key')
  })

  it('forEach reads a value as UTF-8 and loses other bytes; getHeader has the bytes, of the first field of a name', async () => {
    const each: string[] = []
    let first = ''
    await bare(
      (res, req) => {
        req.forEach((name, text) => {
          if (name === 'x') each.push(text)
        })
        first = req.getHeader('x')
        res.end('last')
      },
      async port => void (await statuses(port, post('x: a \xe9 \xc3\xa9 z\r\nx: b \xe9 z\r\n'))),
    )
    assert.deepEqual(each, ['a \ufffd é z', 'b \ufffd z'])
    assert.equal(first, 'a \xe9 \xc3\xa9 z')
  })

  it('R6: a line break in a header’s value splits the answer', async () => {
    await bare(
      res => {
        res.writeHeader('x', 'a\r\ninjected: yes')
        res.end('last')
      },
      async port => {
        const client = await RawClient.open(port)
        client.send(get())
        assert.equal((await client.answers(1))[0]?.headers.get('injected'), 'yes')
        client.destroy()
      },
    )
  })

  it('R7: bytes are lost when a cork holds more than 16 KB and the client is slow', async () => {
    const sent: Buffer[] = []
    const pool = Buffer.from(Array.from({ length: 60_000 }, (_, i) => i.toString(36).padStart(4, '.')).join(''))
    let at = 0
    let blocked = false
    await bare(
      res => {
        const go = (): boolean => {
          for (let room = true; room && at < 8_000_000; ) {
            res.cork(() => {
              for (const size of [300, 14_000, 9_000]) {
                const piece = pool.subarray(at % 200_000, (at % 200_000) + size)
                at += size
                sent.push(piece)
                room = res.write(piece)
              }
            })
            blocked ||= !room
          }
          if (at >= 8_000_000) res.cork(() => res.end('last'))
          return true
        }
        res.onWritable(go)
        go()
      },
      async port => {
        const client = await RawClient.open(port)
        client.socket.pause()
        client.send(get())
        await eventually(() => blocked)
        client.socket.resume()
        await client.until(() => client.received.subarray(-16).includes('last'))
        let body: Buffer | undefined
        try {
          body = parseAnswers(client.received)[0]?.body
        } catch {
          // What is lost may be a chunk's size.
        }
        assert.ok(!body?.equals(Buffer.concat([...sent, Buffer.from('last')])))
        client.destroy()
      },
    )
  })

  it('R14: HEAD gets a body', async () => {
    await bare(
      res => void res.end('last'),
      async port => {
        const client = await RawClient.open(port)
        client.send('HEAD / HTTP/1.1\r\nHost: a\r\n\r\n')
        await client.until(() => client.received.includes('last'))
        assert.ok(client.received.includes('\r\n\r\nlast'))
        client.destroy()
      },
    )
  })

  it('R14: endWithoutBody with a length and nothing else ends the process', async () => {
    const head = 'HEAD / HTTP/1.1\r\nHost: a\r\n\r\n'
    assert.deepEqual(await fate('res => { res.endWithoutBody(5) }', head), { code: null, signal: 'SIGABRT' })
  })

  it('R16: two listeners share one port without a word, unless the second says exclusive', async () => {
    const port = await freePort()
    const tryListen = (flags: number): [app: UwsApp, listens: boolean] => {
      const app = uws.App()
      let listens = false
      app.listen('127.0.0.1', port, flags, socket => {
        listens = !!socket
      })
      return [app, listens]
    }
    const tries = [0, 0, uws.LIBUS_LISTEN_EXCLUSIVE_PORT].map(tryListen)
    for (const [app] of tries) app.close()
    assert.deepEqual(
      tries.map(([, listens]) => listens),
      [true, true, false],
    )
  })

  it('R18: who leaves after `end` is not told of', async () => {
    let aborts = 0
    let ended = 0
    let open = 0
    await bare(
      res => {
        res.onAborted(() => void (aborts += 1))
        res.cork(() => res.end(Buffer.alloc(30_000_000)))
        ended += 1
      },
      async (port, app) => {
        // biome-ignore lint/suspicious/useIterableCallbackReturn: uWebSockets.js's filter is no array's
        app.filter((_res, change) => void (open += change))
        const client = await RawClient.open(port)
        client.socket.pause()
        client.send(get())
        await eventually(() => ended === 1)
        client.destroy()
        await eventually(() => open === 0)
      },
    )
    assert.equal(aborts, 0)
  })
})
