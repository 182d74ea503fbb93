/**
 * Requests of interactive programs, replayed on a model of each dialect: Zed, Roo Code, Cursor, VS Code's custom
 * endpoint, Open WebUI and LibreChat. 'Captured' means here that the requests were written down from the programs'
 * sources, because the programs can't be installed or driven here; they were not recorded from the wire.
 */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { DIALECTS, PNG } from '../e2e/conversations.ts'
import { defaultYaml, KEY, startGateway, type TestGateway } from '../e2e/harness.ts'

interface Captured {
  program: string
  /** Repositories, paths and versions that the shape was read from. */
  source: string[]
  day: string
  requests: Request[]
  /** What is refused, by `what`: `<error code>: <param>`. */
  refused?: Record<string, string>
}
interface Request {
  what: string
  path: string
  /** `KEY` stands for the key. */
  headers: Record<string, string>
  /** `MODEL` stands for the model, `PNG` for an image. */
  body: any
}

const CURSOR = '/v1/cursor/chat/completions'
const FOLDER = join(import.meta.dirname, 'captured')
const FILES = readdirSync(FOLDER).map(name => JSON.parse(readFileSync(join(FOLDER, name), 'utf8')) as Captured)

let t: TestGateway
before(async () => {
  t = await startGateway({
    yaml: url =>
      // Clients of Messages among them send their key in x-api-key.
      defaultYaml(url, { plugins: { auth: '{ x_api_key: true }' } }).replace(
        'routes:',
        `routes:\n  - { match: POST ${CURSOR}, surface: cursor, pipeline: completions }`,
      ),
  })
})
after(() => t.close())

/** What was said: a text, and calls as `name(arguments)`. */
interface Said {
  text: string
  calls: string[]
}
const called = (name: string, json: string) => `${name}(${JSON.stringify(JSON.parse(json))})`

interface Surface {
  /** A whole body. */
  read(body: any): Said
  /** The events of a stream. @throws AssertionError where it has no end */
  join(events: readonly any[], text: string, body: any): Said
}

const chat: Surface = {
  read({ choices: [{ message, finish_reason: finish }] }) {
    assert.ok(finish)
    const calls = (message.tool_calls ?? []).map(({ function: f }: any) => called(f.name, f.arguments))
    return { text: message.content ?? '', calls }
  },
  join(events, text, body) {
    assert.match(text, /data: \[DONE\]\n\n$/)
    const choices = events.flatMap(event => event.choices)
    assert.ok(
      choices.some(choice => choice.finish_reason),
      'the stream has no finish_reason',
    )
    assert.equal(
      events.some(({ usage }) => usage),
      body.stream_options?.include_usage === true,
    )
    const calls: { name: string; arguments: string }[] = []
    for (const { index, function: part } of choices.flatMap(choice => choice.delta.tool_calls ?? [])) {
      const call = (calls[index] ??= { name: part.name, arguments: '' })
      call.arguments += part.arguments ?? ''
    }
    return {
      text: choices.map(choice => choice.delta.content ?? '').join(''),
      calls: calls.map(call => called(call.name, call.arguments)),
    }
  },
}

const responses: Surface = {
  read({ status, output }) {
    assert.equal(status, 'completed')
    const messages = output.filter((item: any) => item.type === 'message').flatMap((item: any) => item.content)
    const calls = output.filter((item: any) => item.type === 'function_call')
    return {
      text: messages.map((part: any) => part.text).join(''),
      calls: calls.map((call: any) => called(call.name, call.arguments)),
    }
  },
  join(events) {
    const last = events.at(-1)
    assert.equal(last.type, 'response.completed')
    const said = responses.read(last.response)
    const texts = events.filter(({ type }) => type === 'response.output_text.delta').map(({ delta }) => delta)
    assert.equal(texts.join(''), said.text)
    return said
  },
}

const messages: Surface = {
  read({ stop_reason: stop, content }) {
    assert.ok(stop)
    const calls = content.filter((block: any) => block.type === 'tool_use')
    return {
      text: content.map((block: any) => block.text ?? '').join(''),
      calls: calls.map((call: any) => called(call.name, JSON.stringify(call.input))),
    }
  },
  join(events) {
    assert.equal(events.at(-1).type, 'message_stop')
    const blocks: any[] = []
    for (const { type, index, content_block: block, delta } of events) {
      if (type === 'content_block_start') blocks[index] = { ...block, text: '', json: '' }
      if (type === 'content_block_delta') {
        blocks[index].text += delta.text ?? ''
        blocks[index].json += delta.partial_json ?? ''
      }
    }
    return {
      text: blocks.map(block => block.text).join(''),
      calls: blocks.filter(block => block.type === 'tool_use').map(block => called(block.name, block.json)),
    }
  },
}

const SURFACES: Readonly<Record<string, Surface>> = {
  '/v1/chat/completions': chat,
  [CURSOR]: chat,
  '/v1/responses': responses,
  '/v1/messages': messages,
}

async function send({ path, headers, body }: Request, model: string): Promise<Response> {
  const filled = JSON.stringify(body)
    .replace('"MODEL"', JSON.stringify(model))
    .replaceAll('base64,PNG', `base64,${PNG}`)
  const keyed = Object.entries(headers).map(([name, value]): [string, string] => [name, value.replace(/\bKEY$/, KEY)])
  return await fetch(t.url + path, { method: 'POST', headers: keyed, body: filled })
}

/** The call that the last turn asks the simulated provider for. */
function asked(body: any): string | null {
  const last = JSON.stringify((body.messages ?? body.input).at(-1))
  const [, name, json] = /\[\[sim: call (\w+) (.*?)\]\]/.exec(last) ?? []
  return name !== undefined && body.tools ? called(name, JSON.parse(`"${json}"`)) : null
}

for (const { program, source, requests, refused = {} } of FILES) {
  test(`${program}: the file says what it was read from, and names no request twice`, () => {
    assert.ok(source.length > 0)
    const names = requests.map(({ what }) => what)
    assert.equal(new Set(names).size, names.length)
    assert.deepEqual(
      Object.keys(refused).filter(what => !names.includes(what)),
      [],
    )
  })

  for (const [dialect, model] of Object.entries(DIALECTS)) {
    test(`${program} on ${dialect}: each request is answered whole, but for those that its file lists`, async () => {
      const found: Record<string, string> = {}
      for (const request of requests) {
        const { what, path, body } = request
        const reply = await send(request, model)
        const text = await reply.text()
        if (reply.status === 400) {
          const { error } = JSON.parse(text)
          found[what] = `${error.code ?? error.type}: ${error.param ?? error.message}`
          continue
        }
        assert.equal(reply.status, 200, `${what}: ${text}`)
        const surface = SURFACES[path]!
        const events = [...text.matchAll(/^data: (\{.*)$/gm)].map(([, data]) => JSON.parse(data!))
        const said = body.stream ? surface.join(events, text, body) : surface.read(JSON.parse(text))
        const call = asked(body)
        if (call !== null) assert.deepEqual(said.calls, [call], what)
        else assert.notEqual(said.text, '', what)
      }
      assert.deepEqual(found, refused)
    })
  }
}
