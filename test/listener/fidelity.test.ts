/**
 * Byte fidelity: what a handler writes is what the client reads, whatever the sizes, the stalls of the client and the
 * pauses of the upstream. This is the alarm for rule R7: uWebSockets.js of this build loses bytes when a cork outgrows
 * 16 KB while the client is slow.
 *
 * SLUICE_FIDELITY_STREAMS sets the number of streams an adapter (default 300, a full run is 2000), SLUICE_FIDELITY_SEED
 * the seed.
 */
import assert from 'node:assert/strict'
import { createHash, type Hash } from 'node:crypto'
import { connect, type Socket } from 'node:net'
import { test } from 'node:test'
import type { Incoming } from '../../core/ports/listener.ts'
import { random } from '../random.ts'
import { kinds, serving, turns } from './harness.ts'

const streams = Number(process.env['SLUICE_FIDELITY_STREAMS'] ?? 300)
const seed = Number(process.env['SLUICE_FIDELITY_SEED'] ?? 1)
const atOnce = 16
/**
 * One stream in this many is longer than what the kernel takes for a client that does not read (about 4 MB on
 * loopback).
 */
const longEvery = 10

const pool = Buffer.alloc(1 << 20)
{
  const next = random(42)
  for (let i = 0; i < pool.length; i++) pool[i] = 32 + Math.floor(next() * 95)
}
const poolText = pool.toString('latin1')

interface Sent {
  hash: Hash
  bytes: number
  /** How often `flush` has said that the client is slow. */
  holds: number
  /** It has, and `onDrain` has not come since. */
  holding: boolean
  ended: boolean
  aborted: boolean
}

/** Writes a stream that the seed in the query decides: sizes, kinds, several writes a flush, upstream pauses. */
function produce(incoming: Incoming, sent: Map<number, Sent>): void {
  const id = Number(incoming.query)
  const next = random(seed * 100_003 + id)
  const long = id % longEvery === 0
  const total = long ? 5_000_000 + next() * 3_000_000 : next() * 60_000
  const record: Sent = { hash: createHash('sha256'), bytes: 0, holds: 0, holding: false, ended: false, aborted: false }
  sent.set(id, record)
  incoming.onAborted(() => {
    record.aborted = true
  })
  const out = incoming.stream(200, [['content-type', 'application/octet-stream']])

  const size = (): number => {
    const kind = next()
    if (kind < 0.5) return 1 + Math.floor(next() * 300)
    return 1 + Math.floor(next() * (kind < 0.9 ? 14_000 : 70_000))
  }
  const writeOne = (): void => {
    const length = size()
    const at = Math.floor(next() * (pool.length - length))
    const bytes = pool.subarray(at, at + length)
    record.hash.update(bytes)
    record.bytes += length
    out.write(next() < 0.5 ? poolText.slice(at, at + length) : Buffer.from(bytes))
  }
  const step = (): void => {
    while (record.bytes < total) {
      if (record.aborted) return
      for (let writes = 1 + Math.floor(next() * 4); writes > 0; writes--) writeOne()
      if (!out.flush()) {
        record.holds += 1
        record.holding = true
        return // onDrain goes on
      }
      const pause = next() < 0.3 ? Math.floor(next() * 4) : 0
      if (pause > 0) return void turns(pause).then(step)
    }
    record.ended = true
    out.end()
  }
  out.onDrain(() => {
    record.holding = false
    step()
  })
  step()
}

/** Takes chunked framing off and hashes what is in it. */
class Unchunked {
  readonly hash = createHash('sha256')
  bytes = 0
  done = false
  #rest: Buffer = Buffer.alloc(0)
  #inHead = true
  #left = 0

  push(data: Buffer): void {
    let bytes = this.#rest.length > 0 ? Buffer.concat([this.#rest, data]) : data
    if (this.#inHead) {
      const end = bytes.indexOf('\r\n\r\n')
      if (end < 0) return void (this.#rest = bytes)
      assert.ok(bytes.toString('latin1', 0, end).startsWith('HTTP/1.1 200 OK\r\n'))
      this.#inHead = false
      bytes = bytes.subarray(end + 4)
    }
    while (bytes.length > 0 && !this.done) {
      if (this.#left > 2) {
        const part = bytes.subarray(0, Math.min(bytes.length, this.#left - 2))
        this.hash.update(part)
        this.bytes += part.length
        this.#left -= part.length
        bytes = bytes.subarray(part.length)
        continue
      }
      if (this.#left > 0) {
        if (bytes.length < 2) break
        assert.equal(bytes.toString('latin1', 0, 2), '\r\n', 'a chunk has the length that it says')
        this.#left = 0
        bytes = bytes.subarray(2)
        continue
      }
      const lineEnd = bytes.indexOf('\r\n')
      if (lineEnd < 0) break
      const line = bytes.toString('latin1', 0, lineEnd)
      assert.match(line, /^[0-9a-fA-F]{1,8}$/)
      bytes = bytes.subarray(lineEnd + 2)
      const length = Number.parseInt(line, 16)
      if (length === 0) this.done = true
      else this.#left = length + 2
    }
    this.#rest = bytes
  }
}

/**
 * Reads one stream, stalling now and then; a long one again and again until the server has been told that we are slow.
 */
function consume(port: number, id: number, sent: Map<number, Sent>): Promise<Unchunked> {
  const next = random(seed * 7_919 + id)
  const long = id % longEvery === 0
  const body = new Unchunked()
  return new Promise((resolve, reject) => {
    const socket: Socket = connect({ port, host: '127.0.0.1', noDelay: true })
    const finish = (error?: Error): void => {
      socket.destroy()
      if (error) reject(error)
      else resolve(body)
    }
    const stall = (count: number): void => {
      socket.pause()
      turns(count).then(() => socket.resume())
    }
    let readSince = 0
    const waitForHold = (): void => {
      socket.pause()
      readSince = 0
      const look = (): void => {
        const record = sent.get(id)
        if (record !== undefined && (record.holding || record.ended || record.aborted)) socket.resume()
        else setImmediate(look)
      }
      look()
    }
    socket.on('connect', () => {
      socket.write(`GET /?${id} HTTP/1.1\r\nHost: a\r\n\r\n`)
      if (long) waitForHold()
    })
    socket.on('data', data => {
      try {
        body.push(data)
      } catch (error) {
        return finish(error as Error)
      }
      readSince += data.length
      if (body.done) finish()
      else if (long && readSince > 500_000) waitForHold()
      else if (next() < 0.3) stall(Math.floor(next() * 12))
    })
    socket.on('error', finish)
    socket.on('close', () => finish())
  })
}

for (const kind of kinds) {
  test(`${kind}: ${streams} streams arrive byte for byte`, { timeout: 240_000 }, async t => {
    const sent = new Map<number, Sent>()
    const corrupt: string[] = []
    let bytes = 0
    let held = 0
    let holds = 0
    await serving(
      kind,
      incoming => produce(incoming, sent),
      async h => {
        let id = 0
        const worker = async (): Promise<void> => {
          while (id < streams) {
            const mine = id++
            const verdict = await consume(h.port, mine, sent).then(
              body => {
                const want = sent.get(mine)!
                bytes += want.bytes
                if (want.holds > 0) held += 1
                holds += want.holds
                if (!body.done) return `stream ${mine} has no end (${body.bytes} of ${want.bytes} bytes)`
                return body.hash.digest('hex') === want.hash.digest('hex')
                  ? ''
                  : `stream ${mine} differs (${body.bytes} of ${want.bytes} bytes)`
              },
              error => `stream ${mine}: ${error.message}`,
            )
            if (verdict !== '') corrupt.push(verdict)
          }
        }
        await Promise.all(Array.from({ length: atOnce }, worker))
        assert.deepEqual(h.errors, [])
      },
    )
    t.diagnostic(
      `${streams} streams, ${Math.round(bytes / 1e6)} MB, ${held} held back ${holds} times, ${corrupt.length} corrupt`,
    )
    assert.ok(held >= streams / longEvery / 2, 'the test must reach backpressure')
    assert.deepEqual(corrupt, [])
  })
}
