/** Dialects of files: the code blocks of docs/dialects.md, what a reload does, and what does not load. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { after, test } from 'node:test'
import { load } from '../../cli/load.ts'
import { blocksOf, ROOT } from '../docs/pages.ts'
import { eventually } from '../eventually.ts'
import { startFakeUpstream } from '../fake-upstream/server.ts'
import { temporary } from '../stores/kit.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

const folder = temporary()
const path = (name: string) => join(folder, 'my-plugins', name)
mkdirSync(dirname(path('x')), { recursive: true })
for (const { at, text } of blocksOf('ts').filter(({ at }) => at.startsWith('docs/dialects.md'))) {
  const [, name] = /^\/\/ my-plugins\/(\S+)\n/.exec(text) ?? assert.fail(`${at} names no file`)
  writeFileSync(path(name!), text)
}

let held: Promise<void> | undefined
const asked: any[] = []
const upstream = await startFakeUpstream(async turn => {
  const body = JSON.parse(turn.request.body)
  asked.push({ path: turn.request.path, authorization: turn.request.headers['authorization'], ...body })
  const chat = turn.request.path.endsWith('/chat')
  const frames = chat
    ? ['{"choices":[{"delta":{"content":"he"}}]}', '{"choices":[{"delta":{"content":"llo"},"finish_reason":"stop"}]}']
    : ['{"token":{"text":"he"}}', '{"token":{"text":"llo"},"details":{"finish_reason":"length"}}']
  await turn.head(200, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked' })
  await turn.chunk(`data: ${frames[0]}\n\n`)
  await held
  await turn.chunk(`data: ${frames[1]}\n\n${chat ? 'data: [DONE]\n\n' : ''}`)
  await turn.end()
})
after(() => upstream.close())

const model = (provider: string, more = '') =>
  `context_window: 1000, price: { input: 1, output: 2 }, backends: [{ provider: ${provider}, model: small${more} }]`
const yaml =
  (files: readonly string[], more: { tgi?: string } = {}) =>
  (url: string) =>
    defaultYaml(url, {
      providers: `  acme: { dialect: acme-chat, base_url: "${upstream.url}", api_key: k }
  tgi: { dialect: tgi, base_url: "${upstream.url}"${more.tgi ?? ''} }`,
      models: `  eb1-acme: { ${model('acme')} }\n  eb1-tgi: { ${model('tgi')} }`,
      extra: `plugins: [${files.map(name => JSON.stringify(path(name))).join(', ')}]`,
    })

async function withGateway(text: (url: string) => string, then: (t: TestGateway) => Promise<void>, watch = false) {
  const t = await startGateway({ yaml: text, gateway: { watch } })
  try {
    await then(t)
  } finally {
    await t.close()
  }
}
const messages = [{ role: 'user', content: 'hi' }]

test('the dialects of the page serve every surface', () =>
  withGateway(yaml(['acme-chat.ts', 'tgi.ts'], { tgi: ', repetition_penalty: 1.2' }), async t => {
    const chat: any = await (await t.post('/v1/chat/completions', { model: 'eb1-acme', messages })).json()
    assert.equal(chat.choices[0].message.content, 'hello')
    const { path: at, authorization, details, model: named } = asked.at(-1)
    assert.deepEqual([at, authorization, details, named], ['/models/small/chat', 'Bearer k', true, undefined])

    const made: any = await (await t.post('/v1/messages', { model: 'eb1-tgi', messages, max_tokens: 50 })).json()
    assert.deepEqual([made.content[0].text, made.stop_reason], ['hello', 'max_tokens'])
    const { inputs, parameters } = asked.at(-1)
    assert.equal(inputs, 'user: hi\nassistant:')
    assert.deepEqual(parameters, { max_new_tokens: 50, repetition_penalty: 1.2 })
    const streamed = await t.post('/v1/responses', { model: 'eb1-tgi', input: 'hi', stream: true })
    assert.match(await streamed.text(), /response\.output_text\.done.*"text":"hello"/)

    const tools = [{ type: 'function', function: { name: 'sum', parameters: { type: 'object', properties: {} } } }]
    const refused = await t.post('/v1/chat/completions', { model: 'eb1-tgi', messages, tools })
    assert.deepEqual([refused.status, ((await refused.json()) as any).error.param], [400, 'tools[0]'])
  }))

test('an edit is a reload, and a stream that runs ends with the dialect that it began with', () =>
  withGateway(
    yaml(['acme-chat.ts', 'tgi.ts']),
    async t => {
      const gate = Promise.withResolvers<void>()
      held = gate.promise
      const running = await t.post('/v1/chat/completions', { model: 'eb1-tgi', messages, stream: true })
      const reader = running.body!.pipeThrough(new TextDecoderStream()).getReader()
      let text = ''
      while (!text.includes('"he"')) text += (await reader.read()).value
      const source = readFileSync(path('tgi.ts'), 'utf8')
      writeFileSync(
        path('tgi.ts'),
        source.replace("{ type: 'text', text }", "{ type: 'text', text: text.toUpperCase() }"),
      )
      await eventually(() => t.log.some(({ message }) => message === 'configuration reloaded'))
      gate.resolve()
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) text += piece.value
      assert.match(text, /"llo"/)
      const next: any = await (await t.post('/v1/chat/completions', { model: 'eb1-tgi', messages })).json()
      assert.equal(next.choices[0].message.content, 'HELLO')

      // What does not load leaves the dialect as it was.
      writeFileSync(
        path('tgi.ts'),
        source.replace('vendor:', 'capabilities: 7,\n  vendor:').replace('capabilities: new Set(),', ''),
      )
      await eventually(() =>
        t.log.some(({ message }) => message.includes("'capabilities' of the dialect is not a Set")),
      )
      const same: any = await (await t.post('/v1/chat/completions', { model: 'eb1-tgi', messages })).json()
      assert.equal(same.choices[0].message.content, 'HELLO')
      writeFileSync(path('tgi.ts'), source)
      assert.equal((await t.gateway.reload()).applied, true)
      const again: any = await (await t.post('/v1/chat/completions', { model: 'eb1-tgi', messages })).json()
      assert.equal(again.choices[0].message.content, 'hello')
    },
    true,
  ))

test('what is wrong with a dialect, or with its name and settings, is said at its place', async () => {
  const file = join(folder, 'gateway.yaml')
  const wrong = async (text: string) => {
    writeFileSync(file, text)
    return (await load(file)).errors?.map(({ message }) => message).join('\n') ?? ''
  }
  const good = yaml(['acme-chat.ts', 'tgi.ts'])('http://127.0.0.1:9')
  assert.equal(await wrong(good), '')
  assert.match(await wrong(good.replace('dialect: tgi', 'dialect: tig')), /'tig'.*did you mean 'tgi'|tgi/)
  assert.match(
    await wrong(good.replace('dialect: tgi,', 'dialect: tgi, repetition_penalty: 0.5,')),
    /repetition_penalty/,
  )
  assert.match(await wrong(good.replace('dialect: tgi,', 'dialect: tgi, repetition_penalti: 1,')), /repetition_penalti/)

  const source = readFileSync(path('tgi.ts'), 'utf8')
  const own = async (name: string, change: (text: string) => string) => {
    writeFileSync(path(`${name}.ts`), change(source.replace("name: 'tgi'", `name: '${name}'`)))
    return wrong(yaml(['acme-chat.ts', 'tgi.ts', `${name}.ts`])('http://127.0.0.1:9'))
  }
  const as = (key: string) => (text: string) => text.replace('repetition_penalty: {', `${key}: {`)
  assert.match(await own('gemini', as('a')), /there is a dialect 'gemini' already; rename the file and the dialect/)
  assert.match(await own('two', text => text), /the setting 'repetition_penalty' belongs to the dialect 'tgi'/)
  assert.match(await own('three', as('base_url')), /every provider has the setting 'base_url'; rename it/)
  assert.match(await own('four', as('omit')), /the setting 'omit' belongs to the dialect 'openai-chat'/)
  const odd = (text: string) => as('o')(text).replace("type: 'number'", "type: 'numeral'")
  assert.match(await own('nine', odd), /settings of the dialect are not valid JSON Schema: /)
  const without = (text: string) => as('b')(text).replace('  fault: ', '  flaw: ')
  assert.match(await own('five', without), /the dialect has no function 'fault'/)
  const strange = (text: string) =>
    as('c')(text).replace('capabilities: new Set()', "capabilities: new Set(['flying'])")
  assert.match(await own('six', strange), /there is no capability 'flying'; capabilities: tools, /)
  assert.match(await own('auth', as('d')), /the name 'auth' belongs to a built-in plugin/)
  assert.match(await own('seven', text => as('e')(text).replace("'seven'", "'eight'")), /named 'eight'.*'seven'/)
})

test('its test runs with the command of the page', () => {
  const ran = spawnSync(process.execPath, [join(ROOT, 'bin/sluice.mjs'), 'plugin', 'test', path('tgi.test.ts')], {
    encoding: 'utf8',
    env: { ...process.env, NODE_TEST_CONTEXT: undefined },
  })
  assert.equal(ran.status, 0, ran.stdout + ran.stderr)
  assert.match(ran.stdout, /pass 2/)
})
