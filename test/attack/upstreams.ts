/**
 * Hostile upstreams: replies that are cut, malformed, slow, huge or refused, from the simulator, and bytes that are no
 * proper HTTP, from a server of this part. A cut reply must not look complete, nothing of the upstream may reach the
 * client, and faults that one organization provokes must not take the backend from another one.
 */
import { gzipSync } from 'node:zlib'
import { startFakeUpstream, type Turn } from '../fake-upstream/server.ts'
import {
  type Answer,
  bodyOf,
  finish,
  Gateway,
  judge,
  keyOf,
  lanes,
  MIB,
  MODELS,
  PATHS,
  type Part,
  type Result,
  type Surface,
  send,
  sleep,
  Watch,
} from './kit.ts'

const PART = 'upstreams'
const SURFACES = ['chat', 'responses', 'messages'] as const
const TERMINAL = /\[DONE\]|response\.completed|message_stop/
/** A lone fault of each kind that the simulator knows. With 30 tokens each of them strikes before the end. (An
 * event of an unknown kind is no fault: it is left out.) */
const FAULTS = [
  'status 500',
  'status 502 html',
  'status 503',
  'status 529 empty',
  'status 429',
  'status 429 retry-after 60',
  'status 401',
  'status 404',
  'cut 0',
  'cut 4',
  'cut byte 300',
  'close 0',
  'close 3',
  'end 0',
  'end 4',
  'error server after 3',
  'error overloaded after 0',
  'error policy',
  'error quota',
  'malformed json after 4',
  'malformed utf8 after 4',
]
/** A little more than the time between two probes of a backend. */
const PROBE_MS = 1100
/** Faults by which one organization could close a backend to another one. */
const PROVOKED = ['status 500', 'status 403', 'cut 0', 'malformed json after 0', 'status 429 retry-after 60']

const SSE = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n'
const JSON_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n'
const sized = (head: string, body: string | Buffer): (string | Buffer)[] => [
  `${head}content-length: ${Buffer.byteLength(body)}\r\n\r\n`,
  body,
]
const bomb = gzipSync(Buffer.alloc(64 * MIB, 0x20))
const large = Buffer.alloc(24 * MIB, 'x')
const tiny = Buffer.from('data: {"choices":[]}\n\n'.repeat(100_000))

/** Replies as bytes. None of them is a complete reply of a model. */
const RAW: Record<string, () => (string | Buffer)[]> = {
  garbage: () => ['\0\x01\x02\xff'.repeat(500)],
  'no bytes': () => [],
  'half a head': () => ['HTTP/1.1 200 OK\r\ncontent-ty'],
  'a head of 1 MB': () => [`HTTP/1.1 200 OK\r\nx: ${'x'.repeat(MIB)}\r\n\r\n`],
  '5,000 headers': () => [`HTTP/1.1 200 OK\r\n${'x: y\r\n'.repeat(5000)}\r\n`],
  '20,000 interim replies': () => ['HTTP/1.1 100 Continue\r\n\r\n'.repeat(20_000)],
  'status 999': () => sized('HTTP/1.1 999 X\r\n', '{}'),
  'status 101': () => ['HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nxx'],
  'a redirect': () => sized('HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n', ''),
  'a negative length': () => [`${JSON_HEAD}content-length: -1\r\n\r\n{}`],
  'two lengths': () => [`${JSON_HEAD}content-length: 2\r\ncontent-length: 3\r\n\r\n{} `],
  'length and chunks': () => [
    `${JSON_HEAD}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
  ],
  'a length too long': () => [`${JSON_HEAD}content-length: 100\r\n\r\n{}`],
  'a bad chunk': () => [`${SSE}transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}`],
  'JSON of another shape': () => sized(JSON_HEAD, '[null,{"choices":{"length":-1}}]'),
  'deep JSON': () => sized(JSON_HEAD, '['.repeat(200_000)),
  'a huge body': () => sized(JSON_HEAD, Buffer.concat([Buffer.from('{"choices":[{"message":{"content":"'), large])),
  'a huge event': () => sized(SSE, Buffer.concat([Buffer.from('data: {"choices":[{"delta":{"content":"'), large])),
  'a huge line': () => sized(SSE, large),
  '100,000 events': () => sized(SSE, tiny),
  'a gzip bomb': () => sized(`${JSON_HEAD}content-encoding: gzip\r\n`, bomb),
  'a broken gzip': () => sized(`${JSON_HEAD}content-encoding: gzip\r\n`, bomb.subarray(0, 200)),
  'an error with secrets': () =>
    sized(
      'HTTP/1.1 500 X\r\ncontent-type: application/json\r\n',
      '{"error":{"message":"attack-provider-key attack-upstream-model","code":"x"}}',
    ),
  'a wait of years': () => sized('HTTP/1.1 429 X\r\nretry-after: 99999999999\r\n', '{}'),
  'a wait in words': () => sized('HTTP/1.1 503 X\r\nretry-after: soon\x7f\r\n', '{}'),
}

/** Answers each request with the bytes that its prompt names, then closes. */
async function rawReply(turn: Turn): Promise<void> {
  const [, name = ''] = /\[raw (.*?)\]/.exec(turn.request.body) ?? []
  for (const piece of RAW[name]?.() ?? [])
    await turn.write(typeof piece === 'string' ? Buffer.from(piece, 'latin1') : piece)
  turn.socket.end()
}

export async function upstreams({ random, breaches, budgetMs, simulator }: Part): Promise<Result> {
  const hostile = await startFakeUpstream(rawReply)
  const organizations = { hostile: 'custom', other: 'custom' }
  // Where replies are examined, a breaker would only keep the faults away.
  const upstreamPlugin = '{ breaker: { failures: 1000000, error_rate: 1, open_for: 1ms } }'
  const [faulty, raw, guarded] = await Promise.all([
    Gateway.start({ upstream: simulator, organizations, upstreamPlugin }),
    Gateway.start({ upstream: hostile.url, organizations, upstreamPlugin }),
    Gateway.start({ upstream: simulator, organizations }),
  ])
  const watches = [faulty, raw, guarded].map(gateway => new Watch(gateway))
  const key = keyOf('hostile')
  const statuses: Record<string, number> = {}
  const ask = async (gateway: Gateway, text: string, what: string, model = random.one(MODELS)): Promise<void> => {
    const surface: Surface = random.one(SURFACES)
    const stream = random.chance(0.6)
    const answer: Answer = await send(
      gateway.url,
      PATHS[surface],
      key,
      bodyOf(surface, model, text, stream ? { stream } : {}),
    )
    statuses[answer.status] = (statuses[answer.status] ?? 0) + 1
    const which = `${surface}${stream ? ', streamed' : ''}, ${model}`
    judge(PART, breaches, `${what}: ${which}`, answer)
    if (answer.status === 200 && (!stream || TERMINAL.test(answer.text))) breaches.add(PART, 'false end', what, which)
  }
  const share = budgetMs / 4
  const fault = () => random.one(FAULTS)
  let cases = await lanes(16, performance.now() + share, () => {
    const what = fault()
    return ask(faulty, `[[sim: tokens 30; ${what}]] x`, what)
  })
  cases += await lanes(8, performance.now() + share * 2, i => {
    const names = Object.keys(RAW)
    const what = names[i % names.length]!
    return ask(raw, `[raw ${what}]`, what)
  })

  // One organization provokes a fault six times; another one then asks the same backend.
  const until = performance.now() + share
  for (const [i, what] of random.shuffled(PROVOKED).entries()) {
    if (i > 0 && performance.now() > until) break
    const model = MODELS[i % MODELS.length]!
    for (let n = 0; n < 6; n++, cases++)
      await send(guarded.url, PATHS.chat, key, bodyOf('chat', model, `[[sim: tokens 30; ${what}]] x`))
    const hello = () => send(guarded.url, PATHS.chat, keyOf('other'), bodyOf('chat', model, 'hello'))
    let other = await hello()
    // During a pause that the provider asked for, one request a second is let through.
    for (let tries = 0; other.status === 429 && tries < 3; tries++) {
      await sleep(PROBE_MS)
      other = await hello()
    }
    cases++
    if (other.status !== 200)
      breaches.add(PART, 'shared', what, `${model}: ${other.status} ${other.text.slice(0, 160)}`)
  }
  const figures = []
  for (const [i, gateway] of [faulty, raw, guarded].entries())
    figures.push(await finish(PART, gateway, watches[i]!, breaches))
  await hostile.close()
  return {
    part: PART,
    cases,
    loopMs: Math.max(...figures.map(figure => figure.loopMs)),
    residentMib: Math.max(...figures.map(figure => figure.residentMib)),
    note: Object.entries(statuses)
      .map(([status, n]) => `${n} × ${status}`)
      .join(', '),
  }
}
