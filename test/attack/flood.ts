/** One flood, in a process of its own: `flood.ts JOB`. It prints the number of requests and what became of them. */
import { connect, type Socket } from 'node:net'
import { WebSocket } from 'undici'
import { Random } from '../random.ts'
import { bodyOf, lanes, MIB, PATHS, send, sleep } from './kit.ts'

export type Kind =
  | 'control'
  | 'prompts'
  | 'count'
  | 'uploads'
  | 'chunks'
  | 'messages'
  | 'handshakes'
  | 'images'
  | 'values'
  | 'recall'
  | 'warmups'
  | 'small'
  | 'drip'
  | 'digits'
  | 'patterns'
  | 'enums'
  | 'references'
  | 'arguments'
  | 'ages'
  | 'strangers'
  | 'masks'

export interface Job {
  kind: Kind
  url: string
  key: string
  seed: number
  ms: number
}

const { kind, url, key, seed, ms } = JSON.parse(process.argv[2]!) as Job
const random = new Random(seed)
console.log('ready')
const until = performance.now() + ms
const host = new URL(url)
const outcomes: Record<string, number> = {}
const note = (what: string | number) => (outcomes[what] = (outcomes[what] ?? 0) + 1)
/** Bytes that all requests of a flood may have together, so that it is bounded also on a fast machine. */
let left = 4096 * MIB

const post = async (path: string, body: string): Promise<void> => {
  if ((left -= body.length) < 0) return void (await sleep(100))
  note((await send(url, path, key, body)).status)
}

/** Opens connections, writes to each what `begin` gives and then `drip` each 100 ms, until the time is over. */
async function hold(count: number, begin: (socket: Socket) => void, drip: string): Promise<number> {
  const sockets = Array.from({ length: count }, () => {
    const socket = connect({ port: Number(host.port), host: host.hostname })
    socket.on('error', () => {})
    socket.on('data', data => note(String(data).split(' ')[1] ?? 'bytes'))
    socket.once('connect', () => begin(socket))
    return socket
  })
  while (performance.now() < until) {
    await sleep(100)
    for (const socket of sockets) if (socket.writable && socket.writableLength === 0) socket.write(drip)
  }
  note(`open at the end (${sockets.filter(socket => socket.readyState === 'open').length})`)
  for (const socket of sockets) socket.destroy()
  return count
}

/** Writes to one connection after the other, each time `begin` and then `bytes` as fast as they are taken. */
function burst(begin: string, bytes: Buffer): Promise<number> {
  return lanes(8, until, async () => {
    if ((left -= bytes.length) < 0) return void (await sleep(100))
    const socket = connect({ port: Number(host.port), host: host.hostname })
    socket.on('error', () => {})
    socket.once('data', data => note(String(data).split(' ')[1] ?? 'bytes'))
    socket.write(begin)
    socket.write(bytes)
    const late = setTimeout(() => socket.destroy(), 5000)
    await new Promise(resolve => socket.once('close', resolve).resume())
    clearTimeout(late)
    note('closed')
  })
}

/** Writes `head` and `bytes` to a connection of its own, and closes it once it has an answer and has taken all. */
async function answered(head: string, bytes = Buffer.alloc(0)): Promise<void> {
  const socket = connect({ port: Number(host.port), host: host.hostname })
  socket.on('error', () => {})
  const answer = new Promise<void>(resolve => {
    socket.once('data', data => {
      note(String(data).split(' ')[1] ?? 'bytes')
      resolve()
    })
    socket.once('close', resolve)
  })
  const taken = new Promise<void>(resolve => {
    socket.write(head)
    socket.write(bytes, () => resolve())
  })
  const late = setTimeout(() => socket.destroy(), 5000)
  await Promise.all([answer, taken])
  clearTimeout(late)
  socket.destroy()
}

/** A WebSocket for warm-ups, one at a time. A warm-up stores its input without asking a model. */
async function warmer(): Promise<{
  warm(text: string, previous?: string): Promise<string | undefined>
  close(): void
}> {
  const socket = new WebSocket(`${url.replace('http', 'ws')}${PATHS.responses}`, {
    headers: { authorization: `Bearer ${key}` },
  } as object)
  let heard: (frame: any) => void = () => {}
  socket.onmessage = event => heard(JSON.parse(String(event.data)))
  socket.onclose = () => heard({ type: 'closed' })
  await new Promise(resolve => {
    socket.onopen = resolve
    socket.onerror = resolve
  })
  return {
    warm: (text, previous) =>
      new Promise(resolve => {
        if (socket.readyState !== WebSocket.OPEN) return resolve(undefined)
        heard = frame => {
          if (/^(?:response\.(?:completed|failed|incomplete)|error|closed)$/.test(frame.type)) {
            note(frame.type === 'error' ? (frame.status ?? 'error') : frame.type)
            resolve(frame.type === 'response.completed' ? frame.response.id : undefined)
          }
        }
        const more = previous ? { previous_response_id: previous } : {}
        socket.send(
          JSON.stringify({
            type: 'response.create',
            generate: false,
            model: 'a-responses',
            input: text,
            store: true,
            ...more,
          }),
        )
      }),
    close: () => socket.close(),
  }
}

/** A strict tool as Chat Completions writes it, whose one member `a` has this schema. */
const strictTool = (a: object, $defs?: object): object => ({
  type: 'function',
  function: {
    name: 'f',
    strict: true,
    parameters: {
      type: 'object',
      properties: { a },
      required: ['a'],
      additionalProperties: false,
      ...($defs && { $defs }),
    },
  },
})
/** The model calls the tool `f` so often. */
const calls = (times: number): string => `[[sim: ${'call f {"a":"none"}; '.repeat(times)}tokens 3]] x`

/** Arguments of about this many bytes, whose JSON value is short or is written shorter. */
const ARGUMENTS: ((bytes: number) => string)[] = [
  bytes => `{"a":"${random.text(bytes / 32).repeat(32)}","a":""}`,
  bytes => `{"a":${' '.repeat(bytes)}1}`,
  bytes => `{"a":[${`${'1'.repeat(30)},`.repeat(bytes / 31)}1]}`,
  bytes => `{"a":"${'\\u0061'.repeat(bytes / 6)}"}`,
]

const headWith = (key: string): string =>
  `POST ${PATHS.chat} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\n`
const HEAD = headWith(key)

const upgradeWith = (key: string): string =>
  `GET ${PATHS.responses} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`
const UPGRADE = upgradeWith(key)

const KINDS: Record<Kind, () => Promise<number>> = {
  /** Uses a core as a flood does, and sends nothing. */
  async control() {
    while (performance.now() < until) {
      for (let n = 0; n < 64; n++) random.text(2000)
      await sleep(0)
    }
    return 0
  },
  prompts() {
    const texts = Array.from({ length: 8 }, () => random.text(200_000))
    return lanes(40, until, i =>
      // A short answer: without the directive the simulator, which the victim needs too, repeats the prompt.
      post(PATHS.chat, JSON.stringify(bodyOf('chat', 'a-chat', `[[sim: tokens 5]] ${i} ${random.one(texts)}`))),
    )
  },
  count() {
    const texts = Array.from({ length: 8 }, () => random.text(200_000))
    return lanes(40, until, i =>
      post(
        PATHS.count,
        JSON.stringify({ model: 'a-messages', messages: [{ role: 'user', content: `${i} ${random.one(texts)}` }] }),
      ),
    )
  },
  uploads() {
    const body = Buffer.alloc(24 * MIB, 0x20)
    return hold(
      40,
      socket => {
        socket.write(`${HEAD}Content-Length: ${body.length + 4096}\r\n\r\n`)
        socket.write(body)
      },
      ' ',
    )
  },
  /** Chunks of one byte. */
  chunks: () => burst(`${HEAD}Transfer-Encoding: chunked\r\n\r\n`, Buffer.from('1\r\n \r\n'.repeat(2 ** 20))),
  /** Messages of one byte, each masked with zeros. */
  messages: () => burst(UPGRADE, Buffer.alloc(7 * 2 ** 20, Buffer.from([0x81, 0x81, 0, 0, 0, 0, 0x78]))),
  handshakes: () => lanes(64, until, () => answered(UPGRADE)),
  images() {
    const url = `data:image/png;base64,${'A'.repeat(6 * MIB)}`
    const content = [
      { type: 'text', text: '[[sim: tokens 5]] x' },
      { type: 'image_url', image_url: { url } },
    ]
    const body = JSON.stringify({ ...bodyOf('chat', 'a-flood', ''), messages: [{ role: 'user', content }] })
    return lanes(10, until, () => post(PATHS.chat, body))
  },
  values() {
    const properties = Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`p${i}`, { type: 'string' }]))
    const tool = { type: 'function', function: { name: 'f', parameters: { type: 'object', properties } } }
    const body = JSON.stringify(bodyOf('chat', 'a-chat', 'x', { tools: [tool] }))
    return lanes(20, until, () => post(PATHS.chat, body))
  },
  async recall() {
    // A chain of stored responses, each near the largest that is stored.
    const socket = await warmer()
    let previous: string | undefined
    for (let i = 0; i < 24 && performance.now() < until - ms / 2; i++)
      previous = (await socket.warm(`${i}${'a'.repeat(900_000)}`, previous)) ?? previous
    socket.close()
    return lanes(8, until, () =>
      post(
        PATHS.responses,
        JSON.stringify(bodyOf('responses', 'a-responses', 'x', { previous_response_id: previous })),
      ),
    )
  },
  async warmups() {
    const sockets = await Promise.all(Array.from({ length: 8 }, warmer))
    const text = 'a'.repeat(500_000)
    const sent = await Promise.all(
      sockets.map(({ warm }) =>
        lanes(1, until, async i => {
          if ((left -= text.length) < 0 || (await warm(`${i}${text}`)) === undefined) await sleep(20)
        }),
      ),
    )
    for (const socket of sockets) socket.close()
    return sent.reduce((sum, n) => sum + n, 0)
  },
  /** Digits that are no card numbers, but may begin one at each second character. */
  digits() {
    const texts = ['3 ', '4', 'DE89 ', '+1 ', 'E-12345'].map(piece => piece.repeat((4 * MIB) / piece.length))
    return lanes(4, until, i =>
      post(PATHS.optional, JSON.stringify(bodyOf('chat', 'a-flood', `[[sim: tokens 5]] ${texts[i % texts.length]}`))),
    )
  },
  /** Patterns of strict tools that are short and compile to millions of instructions; no two are the same. */
  patterns: () =>
    lanes(4, until, i => {
      const tool = strictTool({ type: 'string', pattern: `${'(){1000}'.repeat(120)}${i}` })
      return post(PATHS.chat, JSON.stringify(bodyOf('chat', 'a-flood', calls(1), { tools: [tool] })))
    }),
  /** A long list of values behind 2^14 ways to it. */
  enums() {
    const list = Array.from({ length: 60_000 }, (_, i) => `${i}`)
    const either = (name: string) => ({ anyOf: [{ $ref: `#/$defs/${name}` }, { $ref: `#/$defs/${name}` }] })
    const ways = Array.from({ length: 14 }, (_, i) => [`d${i + 1}`, either(`d${i}`)])
    const tool = strictTool(
      { $ref: '#/$defs/d14' },
      { d0: { type: 'string', enum: list }, ...Object.fromEntries(ways) },
    )
    const body = JSON.stringify(bodyOf('chat', 'a-flood', calls(5), { tools: [tool] }))
    return lanes(4, until, () => post(PATHS.chat, body))
  },
  /** A chain of definitions that refer to the next one, each from within nested arrays. */
  references() {
    const nested = (levels: number, inner: object): object =>
      levels === 0 ? inner : { items: nested(levels - 1, inner) }
    const definitions = Array.from({ length: 220 }, (_, i) => [
      `d${i}`,
      nested(40, i === 0 ? { type: 'string' } : { $ref: `#/$defs/d${i - 1}` }),
    ])
    return lanes(4, until, i => {
      const schema = {
        type: 'object',
        properties: { a: { $ref: '#/$defs/d219' }, [`n${i}`]: { type: 'string' } },
        required: ['a', `n${i}`],
        additionalProperties: false,
        $defs: Object.fromEntries(definitions),
      }
      const format = { type: 'json_schema', json_schema: { name: 's', strict: true, schema } }
      const body = bodyOf('chat', 'a-structured', '[[sim: tokens 5]] x', { response_format: format })
      return post(PATHS.optional, JSON.stringify(body))
    })
  },
  /** Old calls with arguments that are much longer than their JSON value. */
  arguments() {
    const bodies = ARGUMENTS.map(make => {
      const call = { id: 'call_1', type: 'function', function: { name: 'f', arguments: make(4 * MIB) } }
      const messages = [
        { role: 'user', content: '[[sim: tokens 5]] x' },
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: 'call_1', content: 'y' },
      ]
      return JSON.stringify({ ...bodyOf('chat', 'a-flood', ''), messages })
    })
    return lanes(8, until, i => post(PATHS.chat, bodies[i % bodies.length]!))
  },
  /** Old search results with a date as long as a book. */
  ages() {
    const result = (i: number) => ({
      type: 'web_search_result',
      url: `https://example.org/${i}`,
      title: 't',
      encrypted_content: '',
      page_age: 'a'.repeat(MIB),
    })
    const content = [
      { type: 'server_tool_use', id: 'srvtoolu_1', name: 'web_search', input: { query: 'q' } },
      {
        type: 'web_search_tool_result',
        tool_use_id: 'srvtoolu_1',
        content: Array.from({ length: 8 }, (_, i) => result(i)),
      },
    ]
    const messages = [
      { role: 'user', content: 'x' },
      { role: 'assistant', content },
      { role: 'user', content: '[[sim: tokens 5]] y' },
    ]
    const tools = [{ type: 'web_search_20250305', name: 'web_search' }]
    const body = JSON.stringify({ ...bodyOf('messages', 'a-flood', ''), messages, tools })
    return lanes(8, until, () => post(PATHS.messages, body))
  },
  /** Nobody's keys, each of them once. */
  strangers: () =>
    lanes(64, until, async () => {
      const answer = await send(url, PATHS.chat, `sk-${random.word(32)}`, bodyOf('chat', 'a-chat', 'x'))
      note(answer.status)
    }),
  /** The same as uploads, handshakes and small requests at once. */
  async masks() {
    const body = Buffer.alloc(4 * MIB, 0x20)
    const mask = () => `sk-${random.word(32)}`
    const sent = await Promise.all([
      lanes(16, until, async () => {
        if ((left -= body.length) < 0) return void (await sleep(100))
        await answered(`${headWith(mask())}Content-Length: ${body.length}\r\n\r\n`, body)
      }),
      lanes(16, until, () => answered(upgradeWith(mask()))),
      lanes(32, until, async () => note((await send(url, PATHS.chat, mask(), bodyOf('chat', 'a-chat', 'x'))).status)),
    ])
    return sent.reduce((sum, n) => sum + n, 0)
  },
  small: () => lanes(64, until, () => post(PATHS.chat, JSON.stringify(bodyOf('chat', 'a-chat', 'x')))),
  drip: () => hold(400, socket => socket.write('POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n'), 'x: y\r\n'),
}

const cases = await KINDS[kind]()
const most = Object.entries(outcomes)
  .sort(([, a], [, b]) => b - a)
  .slice(0, 4)
console.log(
  JSON.stringify({
    cases,
    internal: outcomes['500'] ?? 0,
    note: most.map(([what, n]) => (n > 1 || !what.startsWith('open') ? `${n} × ${what}` : what)).join(', '),
  }),
)
process.exit(0)
