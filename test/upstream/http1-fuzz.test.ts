/**
 * Random replies, whole and broken, for the HTTP/1.1 client: the same ones in each run. SLUICE_FUZZ_TIMES=100 tries a
 * hundred times as many, others each time; a failure names the SLUICE_FUZZ_SEED that repeats it.
 */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { test } from 'node:test'
import { inspect } from 'node:util'
import fc from 'fast-check'
import { Http1Client } from '../../plugins/upstream/http1/client.ts'
import { MalformedResponse, ResponseParser } from '../../plugins/upstream/http1/parser.ts'
import { allLinks, plain } from './links.ts'

const times = Number(process.env['SLUICE_FUZZ_TIMES'] ?? 1)
const seed = Number(process.env['SLUICE_FUZZ_SEED'] ?? (times === 1 ? 1 : Math.floor(Math.random() * 2 ** 31)))

/** Asserts a property of this many random values; a failure is one screen. */
async function holds<T>(property: fc.IAsyncProperty<T>, n: number): Promise<void> {
  const result = await fc.check(property, { numRuns: n * times, seed, endOnFailure: times > 1 })
  if (!result.failed) return
  const { message } = result.errorInstance as Error
  assert.fail(
    `${message}\nSLUICE_FUZZ_SEED=${seed} SLUICE_FUZZ_TIMES=${times}, run ${result.numRuns}: ${inspect(result.counterexample, { depth: 6 }).slice(0, 2000)}`,
  )
}

// ---- replies and what is done to them -------------------------------------------------------------------------------

interface Reply {
  bytes: Buffer
  status: number
  body: string
  kept: boolean
  /** It ends with the connection. */
  closes: boolean
}

const token = fc.stringMatching(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}$/)
const text = fc.stringMatching(/^[\t -~\xa1-\xff]{0,20}$/)
const name = token.filter(
  each => !/^(content-length|transfer-encoding|connection|keep-alive|content-encoding|date)$/i.test(each),
)
const lines = fc
  .array(fc.tuple(name, text), { maxLength: 4 })
  .map(list => list.map(([of, value]) => `${of}:${value}\r\n`).join(''))
const piece = fc.oneof(
  text,
  // Bodies that look like what frames them.
  fc.constantFrom('\r\n', '\r\n\r\n', '0\r\n\r\n', '5\r\n', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n', '\0', '\n'),
)

/** A proper reply with this body, and what it should be read as. */
const replyOf = (body: fc.Arbitrary<string[]>): fc.Arbitrary<Reply> =>
  fc
    .record({
      body,
      interim: fc.array(fc.tuple(fc.constantFrom(100, 102, 103), lines), { maxLength: 2 }),
      version: fc.constantFrom('1.1', '1.1', '1.1', '1.0'),
      status: fc.constantFrom(200, 200, 200, 204, 304, 400, 429, 500, 599),
      reason: text,
      before: lines,
      after: lines,
      framing: fc.constantFrom('length', 'chunked', 'close'),
      connection: fc.constantFrom('', 'close', 'keep-alive', 'x, Close', 'Keep-Alive,y'),
      extension: fc.oneof(
        fc.constant(''),
        fc.tuple(token, token).map(([of, value]) => `;${of}=${value}`),
      ),
      trailers: lines,
    })
    .map(({ body, interim, version, status, reason, before, after, framing, connection, extension, trailers }) => {
      const bodiless = status === 204 || status === 304
      const chunked = framing === 'chunked' && version === '1.1' && !bodiless
      const sized = framing === 'length' || (version === '1.0' && framing === 'chunked')
      const said = bodiless ? '' : body.join('')
      let head = interim.map(([code, more]) => `HTTP/1.1 ${code} X\r\n${more}\r\n`).join('')
      head += `HTTP/${version} ${status} ${reason}\r\n${before}`
      if (chunked) head += 'tRansfer-encoding: \tChunked \r\n'
      if (sized) head += `content-Length:${said.length}\r\n`
      if (connection !== '') head += `Connection: ${connection}\r\n`
      head += `${after}\r\n`
      const chunks = body
        .filter(each => each !== '')
        .map(each => `${each.length.toString(16)}${extension}\r\n${each}\r\n`)
        .join('')
      const bytes = head + (chunked ? `${chunks}0${extension}\r\n${trailers}\r\n` : said)
      const asksToKeep = /keep-alive/i.test(connection)
      return {
        bytes: Buffer.from(bytes, 'latin1'),
        status,
        body: said,
        kept: (bodiless || chunked || sized) && !/close/i.test(connection) && (version === '1.1' || asksToKeep),
        closes: !bodiless && !chunked && !sized,
      }
    })
const reply = replyOf(fc.array(piece, { maxLength: 5 }))

/** A share of the length, in ten thousandths. */
const place = fc.noBias(fc.nat(9999))
/** One change of the bytes. */
const change = fc.oneof(
  fc.record({
    kind: fc.constant('set'),
    at: place,
    with: fc.constantFrom('\0', '\r', '\n', ' ', '\t', ':', ';', '0', '1', 'f', 'x', '\x7f', '\xff'),
  }),
  fc.record({
    kind: fc.constant('insert'),
    at: place,
    with: fc.oneof(
      piece,
      fc.constantFrom('Content-Length: 3\r\n', 'Transfer-Encoding: chunked\r\n', 'Connection: close\r\n', '\r', ' '),
    ),
  }),
  fc.record({
    kind: fc.constant('delete'),
    at: place,
    with: fc.stringMatching(/^.{1,8}$/),
  }),
  fc.record({ kind: fc.constant('end'), at: place, with: fc.constant('') }),
)
type Change = typeof change extends fc.Arbitrary<infer T> ? T : never
const changes = fc.array(change, { minLength: 1, maxLength: 3 })

function changed(bytes: Buffer, all: Change[]): Buffer {
  let now = bytes.toString('latin1')
  for (const { kind, at, with: what } of all) {
    const i = Math.floor((at * now.length) / 10_000)
    if (kind === 'set') now = now.slice(0, i) + what + now.slice(i + 1)
    else if (kind === 'insert') now = now.slice(0, i) + what + now.slice(i)
    else if (kind === 'delete') now = now.slice(0, i) + now.slice(i + what.length)
    else now = now.slice(0, i)
  }
  return Buffer.from(now, 'latin1')
}

const cuts = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 6 })
function pieces(bytes: Buffer, sizes: number[]): Buffer[] {
  const all: Buffer[] = []
  for (let at = 0, i = 0; at < bytes.length; at += sizes[i++ % sizes.length]!)
    all.push(bytes.subarray(at, at + sizes[i % sizes.length]!))
  return all
}

// ---- the parser -----------------------------------------------------------------------------------------------------

/** What the parser makes of these bytes and the connection's end; `null` for no whole reply. */
function parsed(all: Buffer[]): Pick<Reply, 'status' | 'body' | 'kept'> | null {
  const seen = { status: 0, body: '', kept: false }
  let ends = 0
  const parser = new ResponseParser({
    head: (status, _, kept) => Object.assign(seen, { status, kept }),
    body: chunk => void (seen.body += chunk.toString('latin1')),
    end: () => void ends++,
  })
  parser.begin('POST')
  try {
    for (const each of all) parser.execute(Buffer.from(each))
    parser.close()
  } catch (error) {
    assert.ok(error instanceof MalformedResponse, String(error))
    seen.kept = false
  }
  assert.ok(ends <= 1)
  return ends === 1 ? seen : null
}

/** The same by node:http, which knows nothing of ours; `null` too where it is stricter. */
function byNode(bytes: Buffer): Promise<Pick<Reply, 'status' | 'body'> | null> {
  return new Promise(resolve => {
    const socket = new Duplex({
      read() {},
      write(_chunk, _encoding, done) {
        done()
        if (socket.readableEnded) return
        socket.push(bytes)
        socket.push(null)
      },
    })
    const request = http.request({
      method: 'POST',
      createConnection: () => socket as Socket,
      headers: { 'content-length': 0 },
    })
    request.on('error', () => resolve(null))
    request.on('response', response => {
      let body = ''
      response.on('error', () => {})
      response.on('data', chunk => (body += chunk.toString('latin1')))
      response.on('close', () => resolve(response.complete ? { status: response.statusCode!, body } : null))
    })
    request.end()
  })
}

test('a proper reply is read as it was meant, whatever the pieces, and node:http reads the same', async () => {
  await holds(
    fc.asyncProperty(reply, cuts, async ({ bytes, status, body, kept }, sizes) => {
      assert.deepEqual(parsed([bytes]), { status, body, kept })
      assert.deepEqual(parsed(pieces(bytes, sizes)), { status, body, kept })
      assert.deepEqual(await byNode(bytes), { status, body })
    }),
    400,
  )
})

test('a changed reply is the same whatever the pieces; what is read as whole, node:http reads alike or not at all', async () => {
  let whole = 0
  await holds(
    fc.asyncProperty(reply, changes, cuts, async ({ bytes }, all, sizes) => {
      const broken = changed(bytes, all)
      const seen = parsed([broken])
      assert.deepEqual(parsed(pieces(broken, sizes)), seen)
      if (seen === null) return
      whole++
      // node:http takes a tab behind `chunked` for a part of it, and reads until the connection closes (RFC 9110 5.6.3
      // has it as a blank).
      if (/^transfer-encoding:.*\t\s*$/im.test(broken.toString('latin1'))) return
      const theirs = await byNode(broken)
      if (theirs !== null) assert.deepEqual(theirs, { status: seen.status, body: seen.body })
    }),
    1500,
  )
  assert.ok(whole > 100, `${whole} replies compared`)
})

// ---- the client -----------------------------------------------------------------------------------------------------

/** Which tenant's bytes these are: a change of them makes nobody else's of it. */
const mark = (n: number) => createHash('sha256').update(String(n)).digest('hex').slice(0, 16)

interface Script {
  reply: Reply
  changes: Change[]
  sizes: number[]
  /** Sent in the same breath, behind the reply. */
  behind: 'nothing' | 'the reply again' | 'FIN' | 'RST'
}

// No other piece of a reply holds this byte.
const MARK = '\x80'.repeat(16)
const script: fc.Arbitrary<Script> = fc.record({
  reply: replyOf(fc.array(piece, { maxLength: 3 }).map(list => [MARK, ...list, MARK])),
  changes: fc.array(change, { maxLength: 2 }),
  sizes: cuts,
  behind: fc.constantFrom('nothing', 'nothing', 'nothing', 'the reply again', 'FIN', 'RST'),
})

const turn = () => new Promise<void>(resolve => setImmediate(resolve))

for (const link of allLinks())
  test(`${link.name}: whatever a server sends: every request ends, with bytes of its own reply alone, and none meets a spoilt connection`, {
    timeout: 120_000 * times,
  }, async () => {
    await holds(
      fc.asyncProperty(fc.array(script, { minLength: 4, maxLength: 12 }), async scripts => {
        const over = new Set<number>()
        const wrong: string[] = []
        const sockets = new Set<Socket>()
        const server = link.server(socket => {
          sockets.add(socket)
          let spoilt = ''
          socket.on('error', () => {})
          socket.on('data', async data => {
            const n = Number(/x-request: (\d+)/.exec(data.toString('latin1'))?.[1])
            if (spoilt !== '') wrong.push(`request ${n} met a connection after ${spoilt}`)
            const { reply, changes, sizes, behind } = scripts[n]!
            const proper = Buffer.from(reply.bytes.toString('latin1').replaceAll(MARK, mark(n)), 'latin1')
            const bytes = changed(proper, changes)
            if (behind !== 'nothing') spoilt = behind
            if (changes.length === 0 && behind === 'nothing') {
              for (const each of pieces(
                bytes,
                sizes.map(size => size * 5),
              )) {
                socket.write(each)
                await turn()
              }
            } else socket.write(behind === 'the reply again' ? Buffer.concat([bytes, bytes]) : bytes)
            if (behind === 'RST') socket.resetAndDestroy()
            else if (behind === 'FIN' || reply.closes) socket.end()
            // What still waits then waits for bytes that don't come.
            for (let turns = 0; turns < 20 && !over.has(n); turns++) await turn()
            if (!over.has(n)) socket.end()
          })
        })
        server.listen(0, '127.0.0.1')
        await once(server, 'listening')
        const origin = `${link.scheme}://127.0.0.1:${(server.address() as AddressInfo).port}`
        const client = new Http1Client({ origin, connectTimeoutMs: 30_000, keepAliveMs: 4000, ...link.trust })

        let next = 0
        const lane = (): Promise<void> =>
          new Promise(resolve => {
            const ask = (): void => {
              const n = next++
              if (n >= scripts.length) return resolve()
              let body = ''
              const end = (whole: boolean) => {
                if (over.has(n)) wrong.push(`request ${n} ended twice`)
                over.add(n)
                for (let other = 0; other < scripts.length; other++)
                  if (other !== n && body.includes(mark(other)))
                    wrong.push(`request ${n} was given the reply to ${other}`)
                const { reply, changes } = scripts[n]!
                const mine = reply.body.replaceAll(MARK, mark(n))
                if (whole && changes.length === 0 && body !== mine && !reply.closes)
                  wrong.push(`request ${n} lost bytes`)
                // At once: nobody could use the connection sooner.
                ask()
              }
              client.dispatch(
                { method: 'POST', path: '/', headers: { 'x-request': String(n) } },
                {
                  onResponseData: (_, chunk) => void (body += chunk.toString('latin1')),
                  onResponseEnd: () => end(true),
                  onResponseError: () => end(false),
                },
              )
            }
            ask()
          })
        try {
          await Promise.all([lane(), lane()])
          assert.deepEqual(wrong, [])
        } finally {
          await client.close()
          for (const socket of sockets) socket.destroy()
          server.close()
          await once(server, 'close')
        }
      }),
      link === plain ? 60 : 20,
    )
  })
