/**
 * Bytes that are no proper HTTP, on raw connections: at both listeners, and through the proxies of deploy/. A request
 * hidden in the body of another one, or behind an ambiguous framing, must not be served. Behind a proxy, connections to
 * the gateway are shared, so other clients must still get their own answers afterwards.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { start, temporaryFolder } from '../../bench/children.ts'
import { findProgram } from '../ensure-deps.ts'
import { freePort } from '../ports.ts'
import type { Random } from '../random.ts'
import {
  bodyOf,
  finish,
  Gateway,
  judge,
  keyOf,
  lanes,
  PATHS,
  type Part,
  type Result,
  send,
  sleep,
  Watch,
} from './kit.ts'

const PART = 'sockets'
const DEPLOY = join(import.meta.dirname, '..', '..', 'deploy')
const KEY = keyOf('sockets')
const AUTH = `Authorization: Bearer ${KEY}\r\n`
const JSON_TYPE = 'Content-Type: application/json\r\n'
/** The hidden request. Its answer is a list of models, which no other request of this part asks for. */
const HIDDEN = `GET /v1/models HTTP/1.1\r\nHost: a\r\n${AUTH}\r\n`
const SERVED = /"object":\s*"list"/
/** A connection without bytes for this long is taken for finished, ms. */
const QUIET_MS = 300

/** Heads that are answered early, late, or after their body. */
const HEADS: Record<string, string> = {
  404: `POST /nowhere HTTP/1.1\r\nHost: a\r\n${AUTH}${JSON_TYPE}`,
  405: `PUT /v1/messages HTTP/1.1\r\nHost: a\r\n${AUTH}${JSON_TYPE}`,
  415: `POST /v1/messages HTTP/1.1\r\nHost: a\r\n${AUTH}Content-Type: text/plain\r\n`,
  401: `POST /v1/messages HTTP/1.1\r\nHost: a\r\n${JSON_TYPE}`,
  200: `POST /v1/messages/count_tokens HTTP/1.1\r\nHost: a\r\n${AUTH}${JSON_TYPE}`,
}

const hex = (n: number): string => n.toString(16)
const TE = 'Transfer-Encoding: chunked\r\n'
const chunk = (size: string, data: string): string => `${size}\r\n${data}\r\n0\r\n\r\n`

interface Vector {
  name: string
  bytes: string
  /** The hidden request is inside a properly framed body, so that no proxy may let it out either. */
  inside: boolean
}

/** Headers that make the length ambiguous: the message must be refused, or be all that the connection serves. */
const AMBIGUOUS: Record<string, string> = {
  'length and chunks': `Content-Length: 5\r\n${TE}`,
  'chunks and length': `${TE}Content-Length: 5\r\n`,
  'two lengths': 'Content-Length: 5\r\nContent-Length: 6\r\n',
  'a list of lengths': 'Content-Length: 5, 6\r\n',
  '+5': 'Content-Length: +5\r\n',
  '-5': 'Content-Length: -5\r\n',
  '0x5': 'Content-Length: 0x5\r\n',
  '5 5': 'Content-Length: 5 5\r\n',
  'length of 2^64+5': 'Content-Length: 18446744073709551621\r\n',
  xchunked: 'Transfer-Encoding: xchunked\r\n',
  'chunked, identity': 'Transfer-Encoding: chunked, identity\r\n',
  'identity, chunked twice': `Transfer-Encoding: identity\r\n${TE}`,
  'vertical tab': 'Transfer-Encoding: \x0bchunked\r\n',
  'quoted chunked': 'Transfer-Encoding: "chunked"\r\n',
  'space before the colon': 'Transfer-Encoding : chunked\r\nContent-Length: 5\r\n',
  'a folded line': 'Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n',
  'a bare line feed': 'X: y\nTransfer-Encoding: chunked\nContent-Length: 5\r\n',
  'a bare carriage return': `X: y\r${TE}Content-Length: 5\r\n`,
  'a NUL': 'X: \0\r\nContent-Length: 5\r\nContent-Length\0: 0\r\n',
}

const BAD_CHUNKS = [
  '-1',
  '+5',
  '0x5',
  '5_',
  ' 5',
  '5 ',
  '5\t',
  'g',
  '',
  '10000000000000005',
  'ffffffffffffffff',
  '5;\n',
  '5;a=\r',
  '5\r',
]
const EXTENSIONS = ['', ';', ';a', ';a=b', ';a="b"', ';;', ' ;a', ';ffff']

function vectors(): Vector[] {
  const all: Vector[] = []
  const add = (name: string, bytes: string, inside: boolean) => all.push({ name, bytes, inside })
  const length = HIDDEN.length
  for (const [status, head] of Object.entries(HEADS)) {
    add(`${status}, in a length`, `${head}Content-Length: ${length}\r\n\r\n${HIDDEN}`, true)
    add(`${status}, expecting 100`, `${head}Expect: 100-continue\r\nContent-Length: ${length}\r\n\r\n${HIDDEN}`, true)
    for (const extension of EXTENSIONS) {
      for (const size of [hex(length), `00${hex(length).toUpperCase()}`])
        add(`${status}, in a chunk ${extension}`, `${head}${TE}\r\n${chunk(size + extension, HIDDEN)}`, true)
      // A parser that reads the extension as digits eats so much of the next message that its body becomes a request.
      for (const digit of [1, 5, 9, 15]) {
        for (const misread of [digit * 16 + 11, (digit * 16 + 11) * 16 + 10]) {
          const first = `${hex(digit)}${extension}\r\n${'x'.repeat(digit)}\r\n0\r\n\r\n`
          const eaten = first.length - hex(digit).length - extension.length - 2
          const body = `\r\n0\r\n\r\n${HIDDEN}`
          const second = (pad: number) =>
            `${HEADS['200']}X: ${'x'.repeat(pad)}\r\nContent-Length: ${body.length}\r\n\r\n`
          const pad = misread - eaten - second(0).length
          if (pad >= 0)
            add(
              `${status}, chunk ${hex(digit)}${extension} read as ${hex(misread)}`,
              `${head}${TE}\r\n${first}${second(pad)}${body}`,
              true,
            )
        }
      }
    }
    for (const size of BAD_CHUNKS)
      add(`${status}, chunk size ${JSON.stringify(size)}`, `${head}${TE}\r\n${chunk(size, 'hello')}${HIDDEN}`, false)
    add(`${status}, no end of a chunk`, `${head}${TE}\r\n5\r\nhelloXX0\r\n\r\n${HIDDEN}`, false)
    for (const [name, lines] of Object.entries(AMBIGUOUS)) {
      add(`${status}, ${name}`, `${head}${lines}\r\nhello${HIDDEN}`, false)
      add(`${status}, ${name}, in chunks`, `${head}${lines}\r\n${chunk('5', 'hello')}${HIDDEN}`, false)
    }
  }
  const upgrade = `GET /v1/responses HTTP/1.1\r\nHost: a\r\n${AUTH}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`
  const frames = {
    unmasked: '\x81\x02{}',
    'an endless length': '\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff',
    'a reserved opcode': '\x83\x80\0\0\0\0',
    'a long ping': `\x89\xfe\x01\x00\0\0\0\0${'x'.repeat(256)}`,
    'reserved bits': '\xf1\x80\0\0\0\0',
    'a request': HIDDEN,
  }
  for (const [name, frame] of Object.entries(frames)) add(`WebSocket, ${name}`, upgrade + frame, frame !== HIDDEN)
  for (const first of [
    '\0',
    '\x16\x03\x01\x02\0',
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    'GET\r\n',
    `GET /${'a'.repeat(70_000)}`,
    'X'.repeat(20_000),
    `${HIDDEN.slice(0, -2)}${'x: y\r\n'.repeat(500)}`,
  ])
    add(`no request: ${JSON.stringify(first.slice(0, 12))}`, first, true)
  return all
}

/** Writes the bytes in some pieces and reads until the connection is closed or quiet. */
function exchange(port: number, pieces: string[]): Promise<string> {
  return new Promise(resolve => {
    let text = ''
    const socket = connect({ port, host: '127.0.0.1', noDelay: true })
    const end = () => {
      clearTimeout(quiet)
      socket.destroy()
      resolve(text)
    }
    const quiet = setTimeout(end, QUIET_MS)
    socket.on('data', data => {
      text += data.toString('latin1')
      quiet.refresh()
    })
    socket.on('error', () => {})
    socket.on('close', end)
    socket.on('connect', async () => {
      for (const piece of pieces) {
        socket.write(piece, 'latin1')
        if (pieces.length > 1) await sleep(5)
      }
    })
  })
}

function split(random: Random, text: string): string[] {
  switch (random.below(3)) {
    case 0:
      return [text]
    case 1: {
      const headEnd = text.indexOf('\r\n\r\n') + 4
      return [text.slice(0, headEnd), text.slice(headEnd)]
    }
    default: {
      const at = random.below(text.length)
      return [text.slice(0, at), text.slice(at)]
    }
  }
}

/** Starts the proxies of deploy/ that are installed, in front of both gateways. */
async function proxies(
  a: Gateway,
  b: Gateway,
): Promise<{ running: [name: string, port: number][]; missing: string[] }> {
  const running: [string, number][] = []
  const missing: string[] = []
  const folder = join(temporaryFolder(), 'proxies')
  mkdirSync(folder)
  const [hostA, hostB] = [a, b].map(gateway => new URL(gateway.url).host) as [string, string]
  const nginx = findProgram(['nginx'])
  if (nginx) {
    const port = await freePort()
    const site = readFileSync(join(DEPLOY, 'nginx.conf'), 'utf8')
      .replace('127.0.0.1:8081', hostA)
      .replace('127.0.0.1:8082', hostB)
      .replace('127.0.0.1:8080', `127.0.0.1:${port}`)
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      name => `${name}_temp_path ${folder}/${name};`,
    )
    const file = join(folder, 'nginx.conf')
    writeFileSync(
      file,
      `daemon off; master_process off; pid ${folder}/pid; error_log stderr crit; events {} http { access_log off; ${temporary.join(' ')}\n${site}\n}`,
    )
    start(undefined, nginx, ['-p', folder, '-e', 'stderr', '-c', file], { stdio: 'ignore' })
    running.push(['nginx', port])
  } else missing.push('nginx')
  const haproxy = findProgram(['haproxy'])
  if (haproxy) {
    const port = await freePort()
    const env = {
      HAPROXY_BIND: `127.0.0.1:${port}`,
      HAPROXY_ADMIN: join(folder, 'admin.sock'),
      GATEWAY_A: hostA,
      GATEWAY_B: hostB,
      READY_A: new URL(a.admin).port,
      READY_B: new URL(b.admin).port,
    }
    start(undefined, haproxy, ['-db', '-f', join(DEPLOY, 'haproxy.cfg')], {
      env: { ...process.env, ...env },
      stdio: 'ignore',
    })
    running.push(['haproxy', port])
  } else missing.push('haproxy')
  for (const [, port] of running) {
    const until = performance.now() + 10_000
    while ((await send(`http://127.0.0.1:${port}`, '/v1/models', KEY, '', {}, 'GET')).status !== 200) {
      if (performance.now() > until) throw new Error('a proxy does not get ready')
      await sleep(50)
    }
  }
  return { running, missing }
}

export async function sockets({ random, breaches, budgetMs, simulator }: Part): Promise<Result[]> {
  const options = { upstream: simulator, organizations: { sockets: 'custom' } }
  const [uws, node] = await Promise.all([Gateway.start(options), Gateway.start({ ...options, listener: 'node' })])
  const watches = [uws, node].map(gateway => new Watch(gateway)) as [Watch, Watch]
  const { running, missing } = await proxies(uws, node)
  const targets: [name: string, port: number, direct: boolean][] = [
    ['uws', uws.port, true],
    ['node', node.port, true],
    ...running.map(([name, port]): [string, number, boolean] => [name, port, false]),
  ]
  const all = vectors()
  const queue = targets.flatMap(target => random.shuffled(all).map(vector => ({ vector, target })))
  const mixed = random.shuffled(queue)
  const until = performance.now() + budgetMs
  let own = 0
  const cases = await lanes(48, until, async i => {
    // When every vector was sent, they are sent again, split at other places.
    const { vector, target } = mixed[i % mixed.length]!
    const [name, port, direct] = target
    const text = await exchange(port, split(random, vector.bytes))
    if ((direct || vector.inside) && SERVED.test(text))
      breaches.add(PART, 'smuggled', `${name}: ${vector.name.replace(/^\d+, /, '')}`, vector.name)
    if (/^HTTP\/1\.1 500/m.test(text)) breaches.add(PART, 'internal', name, `${vector.name}: ${text.slice(0, 200)}`)
    if (direct) return
    const mark = `mine${own++}`
    const answer = await send(`http://127.0.0.1:${port}`, PATHS.chat, KEY, bodyOf('chat', 'a-chat', mark))
    if (answer.status === 200 && !answer.text.includes(mark))
      breaches.add(PART, 'desync', name, `${vector.name}: ${answer.text.slice(0, 200)}`)
    if (answer.status === 500) judge(PART, breaches, `${name}, after ${vector.name}`, answer)
  })
  const results: Result[] = []
  for (const [i, [name, gateway]] of (
    [
      ['uws', uws],
      ['node', node],
    ] as const
  ).entries()) {
    const good = await send(gateway.url, PATHS.chat, KEY, bodyOf('chat', 'a-chat', 'hello'))
    if (good.status !== 200)
      breaches.add(PART, 'crash', `${name}: a good request afterwards`, `${good.status} ${good.text.slice(0, 200)}`)
    const figures = await finish(PART, gateway, watches[i]!, breaches)
    const through = [name, ...running.map(([proxy]) => proxy)].join(', ')
    const note =
      i > 0
        ? 'listener: node'
        : `${all.length} vectors on ${targets.map(([target]) => target).join(', ')}${missing.length ? `; not installed: ${missing.join(', ')}` : ''}`
    results.push({ part: `${PART} ${name}`, cases: i > 0 ? 0 : cases, note: note || through, ...figures })
  }
  return results
}
