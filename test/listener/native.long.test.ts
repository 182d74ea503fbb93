/**
 * As native.test.ts: what the tested build of uWebSockets.js does when it is left alone. These tests wait for its idle
 * clock, which takes ten seconds and more.
 */
import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { eventually } from '../eventually.ts'
import { bare, get, post } from './bare.ts'
import { RawClient, turns } from './harness.ts'

/**
 * Resolves when a connection that is younger than those the caller has, and as idle, has been closed by
 * uWebSockets.js's clock.
 */
async function idle(port: number): Promise<void> {
  const control = await RawClient.open(port)
  control.send(get('/last'))
  await control.closing()
}

suite('uWebSockets.js left alone, by its clock', { concurrency: 4 }, () => {
  const it = (name: string, body: () => Promise<void>): void => {
    test(name, { timeout: 60_000 }, body)
  }

  it('R9: what it holds stays there when onWritable returns true without a write', async () => {
    let written = 0
    let writable = 0
    const piece = Buffer.alloc(64 * 1024, 'x')
    await bare(
      (res, req) => {
        if (req.getUrl() === '/last') return void res.end('last')
        res.onWritable(() => {
          writable += 1
          return true
        })
        for (let room = true; room; written += piece.length) res.cork(() => void (room = res.write(piece)))
      },
      async port => {
        const client = await RawClient.open(port)
        client.socket.pause()
        client.send(get())
        await eventually(() => written > 0)
        client.socket.resume()
        await eventually(() => writable > 0)
        await idle(port)
        assert.ok(client.received.length < written)
        client.destroy()
      },
    )
  })

  it('R11: a slow upload is cut, although bytes keep coming', async () => {
    await bare(
      res => res.onData((_chunk, last) => void (last && res.end('last'))),
      async port => {
        const client = await RawClient.open(port)
        client.send(post('Content-Length: 1000\r\n'))
        const drip = setInterval(() => client.send('x'), 250)
        await client.closing()
        clearInterval(drip)
        assert.equal(client.received.length, 0)
      },
    )
  })

  it('R11: pausing and resuming in one go keeps it', async () => {
    const sent = 60
    await bare(
      res => {
        const tick = setInterval(() => {
          res.pause()
          res.resume()
        }, 4_000)
        res.onAborted(() => clearInterval(tick))
        res.onData((_chunk, last) => {
          if (!last) return
          clearInterval(tick)
          res.end('last')
        })
      },
      async port => {
        const client = await RawClient.open(port)
        client.send(post(`Content-Length: ${sent}\r\n`))
        let drips = 0
        const drip = setInterval(() => {
          client.send('x')
          if (++drips === sent) clearInterval(drip)
        }, 250)
        assert.equal((await client.answers(1))[0]?.status, 200)
        client.destroy()
      },
    )
  })

  it('R12: an answer that is ended before the upload is read takes the idle timer with it', async () => {
    await bare(
      (res, req) => {
        if (req.getUrl() === '/') res.onData(() => {})
        setImmediate(() => res.cork(() => res.end('last')))
      },
      async port => {
        const client = await RawClient.open(port)
        client.send(post('Content-Length: 5\r\n', 'he'))
        await client.until(() => client.received.includes('last'))
        client.send('llo')
        await idle(port)
        await turns(10)
        assert.equal(client.closed, undefined)
        client.destroy()
      },
    )
  })
})
