/** Bodies that are not what the dialect says, framed as they should be. */
import type { Script, Turn } from '../fake-upstream/server.ts'
import { cut, failed, MODES, type Mode, type Row } from './table.ts'

const STREAMS: readonly Mode[] = ['streamed', 'collected']

/** The reply's events, changed. In a buffered reply the one piece is the body. */
const changed =
  (change: (events: string[]) => (string | Buffer)[]): Script =>
  async turn =>
    turn.send(change((await turn.reply()).events))

/** Puts something behind the event with the third word. */
const between = (what: string | Buffer, at = 4): Script =>
  changed(events => [...events.slice(0, at), what, ...events.slice(at)])

async function repeatedly(turn: Turn, piece: string, times: number): Promise<void> {
  const { events } = await turn.open()
  for (const event of events.slice(0, 4)) await turn.chunk(event)
  for (let i = 0; i < times; i++) if (!(await turn.chunk(piece))) return
  for (const event of events.slice(4)) await turn.chunk(event)
  await turn.end()
}

export const lines: Row[] = [
  {
    name: 'CRLF line ends',
    modes: STREAMS,
    fault: changed(events => events.map(e => e.replaceAll('\n', '\r\n'))),
    expect: 'served',
  },
  {
    name: 'CR line ends',
    modes: STREAMS,
    fault: changed(events => events.map(e => e.replaceAll('\n', '\r'))),
    expect: 'served',
  },
  {
    name: 'CRLF split between two packets',
    modes: STREAMS,
    fault: changed(events => events.flatMap(e => e.replaceAll('\n', '\r\n').split(/(?<=\r)/))),
    expect: 'served',
  },
  { name: 'a byte order mark', modes: STREAMS, fault: changed(events => ['\ufeff', ...events]), expect: 'served' },
  {
    name: 'comments, ids and retry fields',
    modes: STREAMS,
    fault: changed(events => events.map((e, i) => `: hello\nid: ${i}\nretry: 10\n${e}`)),
    expect: 'served',
  },
  {
    name: 'no space behind the colon',
    modes: STREAMS,
    fault: changed(events => events.map(e => e.replace('data: ', 'data:'))),
    expect: 'served',
  },
  {
    name: 'data in several lines',
    modes: STREAMS,
    fault: changed(events => events.map(e => e.replace(/^(data: \{"id":"[^"]*",)/m, '$1\ndata: '))),
    expect: 'served',
  },
  {
    name: 'no blank line at the end',
    modes: STREAMS,
    fault: changed(events => [...events.slice(0, -1), events.at(-1)!.trimEnd()]),
    expect: 'served',
  },
  { name: 'everything in one packet', modes: STREAMS, fault: changed(events => [events.join('')]), expect: 'served' },
  {
    name: 'characters cut in the middle',
    text: 'Grüße 👋🏽 an 東京 und Łódź.',
    fault: async turn => {
      const { body } = await turn.open()
      for (let i = 0; i < body.length; i += 3) await turn.chunk(body.subarray(i, i + 3))
      await turn.end()
    },
    expect: 'served',
  },
  {
    name: 'a media type in capitals',
    modes: STREAMS,
    fault: async turn => turn.send((await turn.reply()).events, { 'content-type': 'Text/Event-Stream;charset=UTF-8' }),
    expect: 'served',
  },
  { name: 'NUL bytes between the events', modes: STREAMS, fault: between('\0\0\0\n\n'), expect: 'served' },
  { name: 'a NUL inside an event', modes: STREAMS, fault: between('data: {"a":"\0"}\n\n'), expect: cut() },
  {
    name: 'a million blank lines',
    modes: ['streamed'],
    fault: turn => repeatedly(turn, '\n'.repeat(50_000), 20),
    expect: 'served',
  },
  {
    name: 'a million events without data',
    modes: ['streamed'],
    fault: turn => repeatedly(turn, 'data:\n\n'.repeat(20_000), 50),
    expect: 'served',
  },
  { name: 'a line of 50 MB', modes: STREAMS, fault: turn => repeatedly(turn, 'x'.repeat(1 << 20), 50), expect: cut() },
  {
    name: 'an event of many lines, 50 MB together',
    modes: ['streamed'],
    fault: turn => repeatedly(turn, `data: ${'x'.repeat(1 << 20)}\n`, 50),
    expect: cut(),
  },
]

const LOREM = `data: {"choices":[{"index":0,"delta":{"content":"${'lorem ipsum '.repeat(80_000)}"}}]}\n\n`
const OPEN_CALL =
  'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]}}]}\n\n'

export const events: Row[] = [
  { name: 'an event that is no JSON', modes: STREAMS, fault: between('data: {"id":\n\n'), expect: cut() },
  { name: 'an event that is a list', modes: STREAMS, fault: between('data: []\n\n'), expect: cut() },
  { name: 'an event that is a number', modes: STREAMS, fault: between('data: 7\n\n'), expect: cut() },
  { name: 'an event without members', modes: STREAMS, fault: between('data: {}\n\n'), expect: 'served' },
  {
    name: 'an event of an unknown kind',
    modes: STREAMS,
    fault: between('event: novelty\ndata: {"object":"novelty","x":[1]}\n\n'),
    expect: 'served',
  },
  {
    name: 'choices of wrong types',
    modes: STREAMS,
    fault: between(
      'data: {"choices":null}\n\ndata: {"choices":{"a":1}}\n\ndata: {"choices":[null,7,{"delta":7},{"index":0,"delta":{"content":7,"tool_calls":"x"}}]}\n\n',
    ),
    expect: 'served',
  },
  {
    name: 'bytes that are no UTF-8 inside a text',
    modes: STREAMS,
    fault: changed(list =>
      list.map((e, i) =>
        i === 3
          ? Buffer.concat([
              Buffer.from(e.slice(0, e.indexOf('content":"') + 10)),
              Buffer.from([0xff, 0xfe]),
              Buffer.from(e.slice(e.indexOf('content":"') + 10)),
            ])
          : e,
      ),
    ),
    says: `One two ${'\ufffd\ufffd'}three four five six seven.`,
    expect: 'served',
  },
  {
    name: 'events behind [DONE]',
    modes: STREAMS,
    fault: changed(list => [...list, 'data: {"choices":[{"index":0,"delta":{"content":"more"}}]}\n\n']),
    expect: 'served',
  },
  {
    // llama-cpp-python ends a stream so when another request comes. It looked finished, on every surface.
    name: '[DONE] without a finish reason',
    modes: STREAMS,
    fault: changed(list => list.map(e => e.replace(/"finish_reason":"\w+"/, '"finish_reason":null'))),
    expect: cut(),
  },
  { name: '[DONE] twice', modes: STREAMS, fault: changed(list => [...list, 'data: [DONE]\n\n']), expect: 'served' },
  { name: '[DONE] and nothing else', modes: STREAMS, fault: changed(() => ['data: [DONE]\n\n']), expect: failed },
  { name: 'an event stream without an event', modes: STREAMS, fault: changed(() => [': nothing\n\n']), expect: failed },
  {
    name: 'an end without its terminal event',
    modes: STREAMS,
    fault: changed(list => list.slice(0, 5)),
    expect: cut(),
  },
  {
    name: 'the last event cut in the middle',
    modes: STREAMS,
    fault: changed(list => [...list.slice(0, 5), list[5]!.slice(0, 40)]),
    expect: cut(),
  },
  { name: 'text without end', modes: ['collected'], fault: turn => repeatedly(turn, LOREM, 80), expect: failed },
  {
    name: 'text without end behind a call that is never whole',
    modes: STREAMS,
    fault: async turn => {
      await turn.open()
      await turn.chunk(OPEN_CALL)
      for (let i = 0; i < 80; i++) if (!(await turn.chunk(LOREM))) return
      await turn.end()
    },
    expect: cut(),
  },
  {
    name: 'an error object inside a 200 stream',
    modes: STREAMS,
    fault: between('data: {"error":{"message":"The server had an error","type":"server_error","code":null}}\n\n'),
    expect: cut(),
  },
  {
    name: 'an error object inside a 200 body',
    modes: ['whole'],
    fault: changed(() => ['{"error":{"message":"The server had an error","type":"server_error"}}']),
    expect: failed,
  },
  {
    name: 'a stream although none was asked for',
    modes: ['whole'],
    fault: async turn => {
      const body = { ...JSON.parse(turn.request.body), stream: true }
      turn.request.body = JSON.stringify(body)
      await turn.send((await turn.reply()).events)
    },
    expect: 'served',
  },
  {
    name: 'a body although a stream was asked for',
    modes: STREAMS,
    fault: async turn => {
      const { stream: _, stream_options: __, ...body } = JSON.parse(turn.request.body)
      turn.request.body = JSON.stringify(body)
      await turn.send((await turn.reply()).events)
    },
    expect: 'served',
  },
  {
    name: 'a body of JSON that is cut',
    modes: ['whole'],
    fault: changed(([body]) => [body!.slice(0, -20)]),
    expect: failed,
  },
  { name: 'a body that is null', modes: ['whole'], fault: changed(() => ['null']), expect: failed },
  {
    name: 'a body of another API',
    modes: ['whole'],
    fault: changed(() => ['{"object":"list","data":[]}']),
    expect: failed,
  },
  {
    name: 'a body without choices',
    modes: ['whole'],
    fault: changed(([body]) => [JSON.stringify({ ...JSON.parse(body!), choices: [] })]),
    expect: failed,
  },
  {
    name: 'usage that is nonsense',
    fault: changed(list =>
      list.map(e => e.replaceAll(/"(prompt|completion|total)_tokens":\d+/g, '"$1_tokens":-1e400')),
    ),
    expect: 'served',
  },
  {
    name: 'usage that is missing',
    fault: changed(list => list.map(e => e.replaceAll(/"usage":\{(?:[^{}]|\{[^{}]*\})*\}/g, '"usage":null'))),
    expect: 'served',
  },
]

/** The same faults in the other three dialects. */
const OTHERS = ['openai-responses', 'anthropic-messages', 'gemini'] as const
export const dialects: Row[] = OTHERS.flatMap((model): Row[] => [
  {
    model,
    name: `${model}: an event that is no JSON`,
    modes: STREAMS,
    fault: between('event: message_delta\ndata: {"type":\n\n', 6),
    expect: cut(),
  },
  {
    model,
    name: `${model}: an event of an unknown kind`,
    modes: STREAMS,
    fault: between('event: novelty\ndata: {"type":"novelty"}\n\n', 6),
    expect: 'served',
  },
  {
    model,
    name: `${model}: an end without its terminal event`,
    modes: STREAMS,
    fault: changed(list => list.slice(0, 6)),
    expect: cut(),
  },
  {
    model,
    name: `${model}: reset in the middle`,
    modes: STREAMS,
    fault: async turn => {
      const { events: list } = await turn.open()
      for (const event of list.slice(0, 6)) await turn.chunk(event)
      await turn.reset()
    },
    expect: cut(),
  },
  {
    model,
    name: `${model}: reset behind the terminal event`,
    modes: STREAMS,
    fault: async turn => {
      const { events: list } = await turn.open()
      for (const event of list) await turn.chunk(event)
      await turn.reset()
    },
    expect: 'served',
  },
  {
    model,
    name: `${model}: a stall behind the terminal event`,
    modes: STREAMS,
    fault: async turn => {
      const { events: list } = await turn.open()
      for (const event of list) await turn.chunk(event)
      await turn.stall()
    },
    expect: 'served',
    ...(model === 'gemini' && { advance: 91_000 }),
  },
  {
    model,
    name: `${model}: a stall in the middle`,
    modes: STREAMS,
    fault: async turn => {
      const { events: list } = await turn.open()
      for (const event of list.slice(0, 6)) await turn.chunk(event)
      await turn.stall()
    },
    expect: { incomplete: 'stream_idle_timeout' },
    advance: 91_000,
  },
  { model, name: `${model}: a body that is null`, modes: ['whole'], fault: changed(() => ['null']), expect: failed },
  { model, name: `${model}: an empty object`, modes: ['whole'], fault: changed(() => ['{}']), expect: failed },
  {
    model,
    name: `${model}: an HTML page`,
    modes: MODES,
    fault: turn => turn.answer(200, '<html></html>', { 'content-type': 'text/html' }),
    expect: failed,
  },
])
