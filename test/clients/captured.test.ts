/**
 * Requests of interactive programs, replayed on a model of each dialect: Zed, Roo Code, Cursor, VS Code's custom
 * endpoint, Open WebUI and LibreChat. 'Captured' means here that the requests were written down from the programs'
 * sources, because most of the programs are not run here; they were not recorded from the wire.
 */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { DIALECTS, PNG } from '../e2e/conversations.ts'
import { defaultYaml, KEY, startGateway, type TestGateway } from '../e2e/harness.ts'
import { called, eventsOf, REPLIES, type ReplyForm } from './replies.ts'

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

const FORMS: Readonly<Record<string, ReplyForm>> = {
  '/v1/chat/completions': REPLIES.chat,
  [CURSOR]: REPLIES.chat,
  '/v1/responses': REPLIES.responses,
  '/v1/messages': REPLIES.messages,
}

async function send({ path, headers, body }: Request, model: string): Promise<Response> {
  const filled = JSON.stringify(body)
    .replace('"MODEL"', JSON.stringify(model))
    .replaceAll('base64,PNG', `base64,${PNG}`)
  const keyed = Object.entries(headers).map(([name, value]): [string, string] => [name, value.replace(/\bKEY$/, KEY)])
  return await fetch(t.url + path, { method: 'POST', headers: keyed, body: filled })
}

/** What a stream of Chat Completions has beside its choices. */
function ofChat(text: string, body: any): void {
  assert.match(text, /data: \[DONE\]\n\n$/)
  const usage = eventsOf(text).some(event => event.usage)
  assert.equal(usage, body.stream_options?.include_usage === true)
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
        const form = FORMS[path]!
        const said = body.stream ? form.join(eventsOf(text)) : form.read(JSON.parse(text))
        if (body.stream && form === REPLIES.chat) ofChat(text, body)
        const call = asked(body)
        if (call !== null) assert.deepEqual(said.calls, [call], what)
        else assert.notEqual(said.text, '', what)
      }
      assert.deepEqual(found, refused)
    })
  }
}
