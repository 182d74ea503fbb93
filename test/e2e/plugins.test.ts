/** Plugins of one's own: from files outside the clone, from docs/examples/, and every code block of docs/plugins.md. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { parse, stringify } from 'yaml'
import { ConfigRefused } from '../../cli/assembly.ts'
import { buildGateway } from '../../cli/gateway.ts'
import { silent } from '../../cli/log.ts'
import { eventually } from '../eventually.ts'
import { defaultYaml, KEY, startGateway, type TestGateway } from './harness.ts'
import { LeakScan } from './leak-scan.ts'

const ROOT = join(import.meta.dirname, '../..')
let folder: string
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sluice-plugins-'))
})
after(() => rm(folder, { recursive: true, force: true }))

/** The default configuration with these entries after `auth`, or where `[after]` says. */
function configured(url: string, files: string[], entries: Record<string, string>): string {
  let text = `${defaultYaml(url)}plugins: [${files.map(file => JSON.stringify(file)).join(', ')}]\n`
  for (const [after, entry] of Object.entries(entries)) text = text.replace(`${after},`, `${after}, ${entry},`)
  return text
}

const ask = (content: string, more: object = {}) => ({
  model: 'eb1-preview',
  messages: [{ role: 'user', content }],
  ...more,
})
const logged = (t: TestGateway, message: string) => t.log.filter(entry => entry.message === message)
const idle = (t: TestGateway) => eventually(() => t.gateway.ingress.running.size === 0)

describe('a file outside the clone', () => {
  const source = (greeting: string) => `import { definePlugin, slot } from 'sluice'
import { loud } from './loud.ts'

interface Options { prefix: string; times: number; wait: number }
const started = slot<number>('greeter.started')

export default definePlugin<Options>({
  name: 'greeter',
  summary: 'Greets.',
  config: {
    type: 'object',
    additionalProperties: false,
    required: ['prefix'],
    properties: {
      prefix: { type: 'string' },
      times: { type: 'integer', minimum: 1, maximum: 3, default: 2 },
      wait: { type: 'string', format: 'duration', default: '1ms' },
    },
  },
  mayProvide: [started],
  create({ prefix, times, wait }, { clock, log }) {
    return {
      async onRequest(x) {
        x.set(started, clock.now())
        await new Promise<void>(resolve => clock.setTimer(wait, resolve))
        return undefined
      },
      onResponseHead(x, head) {
        head.headers.set('x-greeter', \`${greeting} \${prefix} \${times} \${wait} \${loud('a')}\`)
        return undefined
      },
      rewriteEvent(_, event, push) {
        push(event.type === 'text' ? { ...event, text: loud(event.text) } : event)
        return undefined
      },
      onResponseEnd(_, push) {
        for (let i = 0; i < times; i++) push({ type: 'text', text: prefix })
        return undefined
      },
      onSettle(x, settlement) {
        log.info({ outcome: settlement.outcome, waited: x.get(started) > 0 }, 'greeter')
        return undefined
      },
    }
  },
})
`
  const loud = (how: string) => `export const loud = (text: string): string => text.${how}()\n`
  let file: string
  before(async () => {
    file = join(folder, 'greeter.ts')
    await writeFile(file, source('v1'))
    await writeFile(join(folder, 'loud.ts'), loud('toUpperCase'))
  })

  test('is loaded, its options checked and defaulted, its hooks run, buffered and streamed', async () => {
    const t = await startGateway({ yaml: url => configured(url, [file], { auth: '{ greeter: { prefix: "!" } }' }) })
    try {
      const buffered = await t.post('/v1/chat/completions', ask('[[sim: text "hello"]] x'))
      assert.equal(buffered.headers.get('x-greeter'), 'v1 ! 2 1 A')
      assert.equal(((await buffered.json()) as any).choices[0].message.content, 'HELLO!!')
      const streamed = await (
        await t.post('/v1/chat/completions', ask('[[sim: text "hello there"]] x', { stream: true }))
      ).text()
      const text = streamed
        .split('\n\n')
        .filter(f => f.startsWith('data: {'))
        .map(f => JSON.parse(f.slice(6)).choices[0]?.delta.content ?? '')
        .join('')
      assert.equal(text, 'HELLO THERE!!')
      await idle(t)
      assert.deepEqual(
        logged(t, 'greeter').map(e => e.fields),
        Array.from({ length: 2 }, () => ({ outcome: 'completed', waited: true })),
      )

      // The next version, and that of a module it imports, come with the next save.
      await writeFile(file, source('v2'))
      await writeFile(join(folder, 'loud.ts'), loud('toLowerCase'))
      assert.equal((await t.post('/v1/chat/completions', ask('x'))).headers.get('x-greeter'), 'v1 ! 2 1 A')
      assert.equal((await t.gateway.reload()).applied, true)
      assert.equal((await t.post('/v1/chat/completions', ask('x'))).headers.get('x-greeter'), 'v2 ! 2 1 a')

      // A version that does not run leaves the former one serving.
      await writeFile(file, 'import { nothing } from "sluice"\nexport default nothing()\n')
      const { applied, errors } = await t.gateway.reload()
      assert.equal(applied, false)
      assert.match(errors[0]!.message, /cannot load .*greeter\.ts: /)
      assert.equal((await t.post('/v1/chat/completions', ask('x'))).headers.get('x-greeter'), 'v2 ! 2 1 a')
    } finally {
      await t.close()
      await writeFile(file, source('v1'))
      await writeFile(join(folder, 'loud.ts'), loud('toUpperCase'))
    }
  })

  // `shared` had one name space for plugins and gateway: this plugin's `platform` came before that of `admission`, whose
  // count of running requests was then no number, and every request passed.
  test("a plugin whose shared state has the gateway's names leaves the platform's limit as it is, over a reload", async () => {
    const squatter = join(folder, 'squatter.ts')
    await writeFile(
      squatter,
      `import { definePlugin } from 'sluice'
export default definePlugin({
  name: 'squatter',
  summary: 'Counts what comes.',
  create(_, { shared }) {
    const platform = shared.use('platform', () => ({ ios: 0 }))
    for (const key of ['directory', 'accounts', 'preparation', 'upstream.backends', 'upstream.pools', 'upstream.retries'])
      shared.use(key, () => ({}))
    return {
      onResponseHead(_, head) {
        head.headers.set('x-count', String(++platform.ios))
        return undefined
      },
    }
  },
})
`,
    )
    const limits = 'platform: { max_concurrent_requests: 1, scale_limits_above: 1 }\n'
    const t = await startGateway({ yaml: url => configured(url, [squatter], { auth: 'squatter' }) + limits })
    try {
      const send = (content: string, more: object = {}, signal?: AbortSignal) =>
        fetch(`${t.url}/v1/chat/completions`, {
          method: 'POST',
          signal,
          headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
          body: JSON.stringify(ask(content, more)),
        })
      for (const [n, reload] of [false, true].entries()) {
        if (reload) {
          await writeFile(squatter, `${await readFile(squatter, 'utf8')}\n`)
          assert.equal((await t.gateway.reload()).applied, true)
        }
        const gone = new AbortController()
        const held = await send('[[sim: stall 3]] x', { stream: true }, gone.signal)
        assert.equal(held.headers.get('x-count'), String(2 * n + 1))
        const second = await send('x')
        assert.equal(second.status, 429)
        assert.equal(((await second.json()) as any).error.code, 'capacity_exceeded')
        gone.abort()
        await idle(t)
        const third = await send('x')
        assert.deepEqual([third.status, third.headers.get('x-count')], [200, String(2 * n + 2)])
        await third.text()
        await idle(t)
      }
    } finally {
      await t.close()
    }
  })

  test('wrong options are configuration errors with their line', async () => {
    const cases: [string, RegExp][] = [
      ['{ greeter: { prefix: "!", tims: 1 } }', /tims.*times/],
      ['{ greeter: { prefix: "!", times: 9 } }', /times/],
      ['{ greeter: { prefix: 3 } }', /prefix/],
      ['greeter', /prefix/],
      ['{ greeter: { prefix: "!", wait: soon } }', /wait/],
    ]
    for (const [entry, message] of cases) {
      const text = configured('http://127.0.0.1:1', [file], { auth: entry })
      const path = join(folder, 'wrong.yaml')
      await writeFile(path, text)
      await assert.rejects(buildGateway(path, { log: silent, watch: false }), (error: unknown) => {
        assert.ok(error instanceof ConfigRefused)
        const [fault] = error.errors
        assert.match(fault!.message, message, entry)
        assert.match(text.split('\n')[fault!.line - 1]!, /greeter/, 'the line is that of the entry')
        return true
      })
    }
  })

  test('a hook that throws denies; one marked on_failure: skip is passed over; a head that cannot be sent is a 500', async () => {
    const broken = join(folder, 'broken.ts')
    await writeFile(
      broken,
      `import { definePlugin } from 'sluice'
export default definePlugin<{ where: string }>({
  name: 'broken',
  summary: 'Breaks where told.',
  config: { type: 'object', additionalProperties: false, properties: { where: { type: 'string', default: 'request' } } },
  create: ({ where }) => ({
    onRequest() { if (where === 'request') throw new Error('SECRET detail'); return undefined },
    onEvent() { if (where === 'event') throw new Error('SECRET detail'); return undefined },
    onResponseHead(_, head) { if (where === 'head') head.headers.set('x-bad', 'a\\r\\nset-cookie: b'); return undefined },
  }),
})
`,
    )
    const run = async (entry: string, check: (t: TestGateway) => Promise<void>): Promise<void> => {
      const t = await startGateway({ yaml: url => configured(url, [broken], { admission: entry }) })
      try {
        await check(t)
        await idle(t)
        assert.ok(
          t.log.every(e => e.level !== 'error' || e.fields.err),
          'the log has the cause',
        )
      } finally {
        await t.close()
      }
    }
    for (const where of ['request', 'event', 'head']) {
      await run(`{ broken: { where: ${where} } }`, async t => {
        for (const stream of [false, true]) {
          const response = await t.post('/v1/chat/completions', ask('hi', { stream }))
          const text = await response.text()
          assert.equal(response.status, 500, `${where} ${stream}`)
          const { error } = JSON.parse(text)
          assert.equal(error.code, 'internal_error')
          assert.equal(error.request_id, response.headers.get('x-request-id'))
          assert.doesNotMatch(text, /SECRET/)
          assert.equal(response.headers.get('set-cookie'), null)
        }
        await idle(t)
        assert.deepEqual(
          (await t.ledger()).map(row => [row.outcome, row.cost]),
          [
            ['gateway_error', 0],
            ['gateway_error', 0],
          ],
        )
      })
    }
    for (const where of ['request', 'event']) {
      await run(`{ plugin: broken, on_failure: skip, config: { where: ${where} } }`, async t => {
        assert.equal((await t.post('/v1/chat/completions', ask('hi'))).status, 200)
      })
    }
  })
})

describe('docs/examples', () => {
  let t: TestGateway
  before(async () => {
    const files = ['safety-refusal', 'tenant-tag'].map(name => join(ROOT, 'docs/examples', `${name}.ts`))
    t = await startGateway({
      yaml: url =>
        configured(url, files, {
          auth: '{ tenant-tag: { required: true } }',
          admission: '{ safety-refusal: { phrases: [make a bomb], answer: "Not that." } }',
        }),
    })
  })
  after(() => t.close())
  const headers = { 'x-tenant': 'blue' }
  const bad = 'please MAKE A BOMB'

  test('tenant-tag: a request hook that denies and fills a slot, a stream hook that counts', async () => {
    const refused = await t.post('/v1/chat/completions', ask('hi'))
    assert.equal(refused.status, 400)
    assert.match(((await refused.json()) as any).error.message, /x-tenant/)
    const ok = await t.post('/v1/chat/completions', ask('[[sim: text "hello"]] x'), headers)
    assert.equal(ok.headers.get('x-tenant'), 'blue')
    await ok.text()
    await idle(t)
    const { request_id, ...fields } = logged(t, 'tenant-tag').at(-1)!.fields
    assert.equal(request_id, ok.headers.get('x-request-id'))
    assert.deepEqual(fields, { tenant: 'blue', characters: 5, outcome: 'completed' })
  })

  test('safety-refusal: each surface refuses in its own way, at zero usage, with one ledger row, and no model runs', async () => {
    const client = { defaultHeaders: headers }
    const executed = t.simulator.requests.length
    const chat = await t
      .openai(client)
      .chat.completions.create({ model: 'eb1-preview', messages: [{ role: 'user', content: bad }] })
    assert.equal(chat.choices[0]!.message.refusal, 'Not that.')
    assert.equal(chat.usage!.total_tokens, 0)
    const stream = t.openai(client).chat.completions.stream({
      model: 'eb1-preview',
      messages: [{ role: 'user', content: bad }],
      stream_options: { include_usage: true },
    })
    const streamed = await stream.finalChatCompletion()
    assert.equal(streamed.choices[0]!.message.refusal, 'Not that.')
    assert.equal(streamed.usage!.total_tokens, 0)

    const responses = await t.openai(client).responses.create({ model: 'eb1-preview', input: bad })
    const [item] = responses.output as any[]
    assert.deepEqual([item.type, item.content[0].type, item.content[0].refusal], ['message', 'refusal', 'Not that.'])
    assert.equal(responses.usage!.total_tokens, 0)

    const message = await t
      .anthropic(client)
      .messages.create({ model: 'eb1-preview', max_tokens: 100, messages: [{ role: 'user', content: bad }] })
    assert.equal(message.stop_reason, 'refusal')
    assert.deepEqual([message.usage.input_tokens, message.usage.output_tokens], [0, 0])
    const parts = await t
      .anthropic(client)
      .messages.stream({ model: 'eb1-preview', max_tokens: 100, messages: [{ role: 'user', content: bad }] })
      .finalMessage()
    assert.equal(parts.stop_reason, 'refusal')
    assert.deepEqual([parts.usage.input_tokens, parts.usage.output_tokens], [0, 0])

    assert.equal(t.simulator.requests.length, executed)
    await idle(t)
    const rows = (await t.ledger()).filter(row => row.outcome === 'refused')
    assert.equal(rows.length, 5)
    assert.ok(rows.every(row => row.input === 0 && row.output === 0 && row.cost === 0))
    assert.equal((await t.post('/v1/chat/completions', ask('bake a cake'), headers)).status, 200)
  })
})

describe('docs/plugins.md', () => {
  interface Block {
    language: string
    name: string
    text: string
  }
  let blocks: Block[]
  let place: string
  before(async () => {
    const page = await readFile(join(ROOT, 'docs/plugins.md'), 'utf8')
    blocks = [...page.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].map(([, language, text]) => ({
      language: language!,
      name: /^(?:\/\/|#) (\S+)/.exec(text!)?.[1] ?? '',
      text: text!,
    }))
    place = join(folder, 'newcomer')
    for (const block of blocks) {
      if (block.language !== 'ts') continue
      await mkdir(dirname(join(place, block.name)), { recursive: true })
      await writeFile(join(place, block.name), block.text)
    }
  })
  /** The configuration of a block, with the sections it does not show. */
  const whole = (block: Block, url: string): string => {
    const shown = parse(block.text)
    const base = parse(defaultYaml(url))
    return stringify({ ...base, ...shown, pipelines: { ...base.pipelines, ...shown.pipelines } })
  }
  const plugins = () => blocks.filter(block => block.language === 'ts' && !block.name.endsWith('.test.ts'))

  test('every block is of a kind that is run here', () => {
    assert.deepEqual([...new Set(blocks.map(b => b.language))].sort(), ['sh', 'text', 'ts', 'yaml'])
    assert.ok(plugins().length >= 5)
    for (const block of blocks)
      if (!['sh', 'text'].includes(block.language)) assert.notEqual(block.name, '', block.text)
  })

  test('every plugin runs in a pipeline, streamed and buffered', async () => {
    const options: Record<string, string> = {
      'mask-word': '{ word: hello }',
      'sign-requests': '{ provider: chat, secret: blue }',
    }
    const entries = plugins().map(block => {
      const name = block.name.replace(/^.*\//, '').replace('.ts', '')
      return options[name] ? `{ ${name}: ${options[name]} }` : name
    })
    const t = await startGateway({
      yaml: url =>
        configured(
          url,
          plugins().map(block => join(place, block.name)),
          { conversation: entries.join(', ') },
        ),
    })
    try {
      for (const stream of [false, true]) {
        const text = await (
          await t.post('/v1/chat/completions', ask('[[sim: text "hello world"]] x', { stream }), { 'x-tenant': 'blue' })
        ).text()
        assert.match(text, /\*\*\*\*\*/)
        assert.doesNotMatch(text, /hello/)
        await idle(t)
      }
      const { body, headers } = t.simulator.requests.at(-1)!
      assert.equal(headers['x-signature'], createHmac('sha256', 'blue').update(body).digest('hex'))
      assert.ok(logged(t, 'first-event').length >= 2)
      assert.deepEqual(logged(t, 'who-asks-what').at(-1)!.fields, { key: 'key_test', model: 'eb1-preview' })
      assert.deepEqual(logged(t, 'tenant-tag').at(-1)!.fields, { tenant: 'blue', characters: 11, outcome: 'completed' })
      const held = t.post('/v1/chat/completions', ask('[[sim: stall 2]] x', { stream: true }))
      await eventually(() => t.simulator.requests.at(-1)!.state === 'open')
      const busy = await t.post('/v1/chat/completions', ask('x'))
      assert.equal(((await busy.json()) as any).error.code, 'route_capacity')
      await (await held).body!.cancel()
    } finally {
      await t.close()
    }
  })

  test('the parts of a conversation are those that the page lists, and it shows how a request is parsed', async () => {
    const page = await readFile(join(ROOT, 'docs/plugins.md'), 'utf8')
    const section = page.slice(page.indexOf('## What a conversation holds'), page.indexOf('## Changing the request'))
    const source = await readFile(join(ROOT, 'core/canon/conversation.ts'), 'utf8')
    const union = /^export type Part =\n((?: {2}\| \w+\n)+)/m.exec(source)![1]!
    const kinds = [...union.matchAll(/\w+/g)].map(
      ([name]) => new RegExp(`interface ${name} {\n  type: '(\\w+)'`).exec(source)![1],
    )
    const rows = [...section.matchAll(/^\| `(\w+)` \|/gm)].map(([, kind]) => kind)
    assert.deepEqual(rows.toSorted(), kinds.toSorted())

    const shown = blocks.find(block => block.language === 'text' && block.text.startsWith('system '))!.text
    const { system, turns } = new Function(
      `return { ${shown.replace(/^system /, 'system:').replace(/^turns /m, ', turns:')} }`,
    )()
    const { surfaces } = await import('../../surfaces/index.ts')
    const bare = (value: unknown): unknown =>
      JSON.parse(JSON.stringify(value, (key, inner) => (key === 'path' ? undefined : inner)))
    const call = { name: 'weather', arguments: '{"city":"Oslo"}' }
    const bodies: Record<string, object> = {
      chat: {
        messages: [
          { role: 'system', content: 'Be brief.' },
          { role: 'user', content: 'Weather in Oslo?' },
          { role: 'assistant', tool_calls: [{ id: 'call_1', type: 'function', function: call }] },
          { role: 'tool', tool_call_id: 'call_1', content: 'rain' },
        ],
      },
      responses: {
        instructions: 'Be brief.',
        input: [
          { role: 'user', content: 'Weather in Oslo?' },
          { type: 'function_call', call_id: 'call_1', ...call },
          { type: 'function_call_output', call_id: 'call_1', output: 'rain' },
        ],
      },
      messages: {
        max_tokens: 10,
        system: 'Be brief.',
        messages: [
          { role: 'user', content: 'Weather in Oslo?' },
          {
            role: 'assistant',
            content: [{ type: 'tool_use', id: 'call_1', name: 'weather', input: { city: 'Oslo' } }],
          },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'call_1', content: 'rain' }] },
        ],
      },
    }
    for (const [name, body] of Object.entries(bodies)) {
      const parsed = surfaces[name as 'chat']!.parse({ model: 'm', ...body } as never)
      assert.deepEqual(bare({ system: parsed.system, turns: parsed.turns }), { system, turns }, name)
    }
  })

  // `conversation` put the recalled turns into the object of `parsedConversation`, so this plugin read "3 3".
  test('a plugin below conversation still finds in parsedConversation what the request itself brought', async () => {
    const probe = join(folder, 'probe.ts')
    await writeFile(
      probe,
      `import { definePlugin, slot } from 'sluice'
const parsed = slot<any>('parsedConversation')
const whole = slot<any>('conversation')
export default definePlugin({
  name: 'probe',
  summary: 'Tells how many turns a conversation has.',
  needs: [parsed, whole],
  create: () => ({
    onResponseHead(x, head) {
      head.headers.set('x-turns', [parsed, whole].map(slot => x.get(slot).turns.length).join(' '))
      return undefined
    },
  }),
})
`,
    )
    const t = await startGateway({ yaml: url => configured(url, [probe], { conversation: 'probe' }) })
    try {
      const send = (more: object) => t.post('/v1/responses', { model: 'eb1-preview', input: 'hi', ...more })
      const first = await send({})
      assert.equal(first.headers.get('x-turns'), '1 1')
      const { id } = (await first.json()) as any
      assert.equal((await send({ previous_response_id: id })).headers.get('x-turns'), '1 3')
    } finally {
      await t.close()
    }
  })

  // The prompt was retained as the client sent it, whatever a plugin made of it: when a plugin that masks addresses was
  // taken away, previous_response_id sent them upstream in clear.
  test('what a plugin rewrote is what goes upstream and what is retained', async () => {
    const files = ['mask-addresses', 'house-rule'].map(name => join(place, `my-plugins/${name}.ts`))
    const yaml = (url: string) => configured(url, files, { conversation: 'house-rule, mask-addresses' })
    const t = await startGateway({ yaml })
    try {
      const sent = async (input: unknown, previous?: string): Promise<{ id: string; upstream: string }> => {
        const body = { model: 'eb1-preview', instructions: 'Be kind to a@b.example.', input }
        const response = await t.post('/v1/responses', { ...body, ...(previous && { previous_response_id: previous }) })
        const { id, status } = (await response.json()) as any
        assert.equal(status, 'completed')
        return { id, upstream: t.simulator.requests.at(-1)!.body }
      }
      const count = (text: string, word: string) => text.split(word).length - 1
      const system = { role: 'system', content: 'I am a@b.example.' }
      const first = await sent([system, { role: 'user', content: '[[sim: text "ok"]] write to a@b.example' }])
      assert.deepEqual([count(first.upstream, 'a@b.example'), count(first.upstream, '(address)')], [0, 3])
      const second = await sent('[[sim: text "ok"]] again to a@b.example', first.id)
      assert.deepEqual([count(second.upstream, 'a@b.example'), count(second.upstream, '(address)')], [0, 4])
      assert.equal(count(second.upstream, 'Answer in plain words.'), 1, 'one rule a request, not one more each turn')

      await writeFile(t.file, defaultYaml(t.simulator.url))
      assert.equal((await t.gateway.reload()).applied, true)
      const { upstream } = await sent('end', second.id)
      // The instructions are this request's own, and nobody masks them now.
      assert.deepEqual([count(upstream, 'a@b.example'), count(upstream, '(address)')], [1, 3])
      assert.match(upstream, /write to \(address\).*again to \(address\).*end/)
      assert.doesNotMatch(upstream, /plain words/)
    } finally {
      await t.close()
    }
  })

  test('every configuration loads and serves', async () => {
    for (const block of blocks.filter(b => b.language === 'yaml')) {
      const path = join(place, block.name)
      const t = await startGateway()
      try {
        await writeFile(path, whole(block, t.simulator.url))
        const gateway = await buildGateway(path, { log: silent, watch: false, admin: false, listener: 'node' })
        const leaks = new LeakScan(gateway.address, () => gateway.config)
        try {
          const send = (headers: Record<string, string>) =>
            fetch(`${gateway.address}/v1/chat/completions`, {
              method: 'POST',
              headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}`, ...headers },
              body: JSON.stringify(ask('hi')),
            })
          assert.equal((await send({ 'x-tenant': 'blue' })).status, 200)
          if (block.text.includes('required: true')) assert.equal((await send({})).status, 400)
        } finally {
          await gateway.close()
          leaks.close()
        }
      } finally {
        await t.close()
      }
    }
  })

  test('every command does what the page says', async () => {
    const first = blocks.find(b => b.language === 'yaml')!
    await writeFile(join(place, 'gateway.yaml'), whole(first, 'http://127.0.0.1:1'))
    const commands = blocks.filter(b => b.language === 'sh').flatMap(b => b.text.trim().split('\n'))
    assert.ok(commands.length >= 2)
    for (const command of commands) {
      const [program, script, ...args] = command.split(' ')
      assert.deepEqual([program, script], ['npx', 'sluice'])
      const { code, output } = await run([join(ROOT, 'bin/sluice.mjs'), ...args], place)
      assert.equal(code, 0, `${command}\n${output}`)
    }
    await writeFile(
      join(place, 'gateway.yaml'),
      whole({ ...first, text: first.text.replace('required: true', 'requird: true') }, 'http://127.0.0.1:1'),
    )
    const wrong = await run([join(ROOT, 'bin/sluice.mjs'), 'check', 'gateway.yaml'], place)
    assert.notEqual(wrong.code, 0)
    assert.match(wrong.output, /gateway\.yaml:\d+:\d+ .*requird/)
  })
})

function run(args: string[], cwd: string): Promise<{ code: number | null; output: string }> {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env
  const child = spawn(process.execPath, args, { cwd, env })
  let output = ''
  child.stdout.on('data', data => (output += data))
  child.stderr.on('data', data => (output += data))
  return new Promise(resolve => child.on('close', code => resolve({ code, output })))
}
