/** Live reload: what an edit of the file does to running streams, to new requests and to the chain that was. */
import assert from 'node:assert/strict'
import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { buildGateway } from '../../cli/gateway.ts'
import { silent } from '../../cli/log.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { eventually } from '../eventually.ts'
import { startFakeUpstream } from '../fake-upstream/server.ts'
import { LISTENERS } from '../listeners.ts'
import { defaultYaml, KEY, sha256, startGateway, type TestGateway, type TestOptions } from './harness.ts'

/** Says in the log when one of it is made and closed, and how many exchanges it has seen. */
const WITNESS = `import { definePlugin } from 'sluice'
export default definePlugin<{ version: number; fail: boolean }>({
  name: 'witness',
  summary: 'Tells when it is made and closed.',
  config: {
    type: 'object',
    additionalProperties: false,
    properties: { version: { type: 'integer', default: 1 }, fail: { type: 'boolean', default: false } },
  },
  create({ version, fail }, { log }) {
    if (fail) throw new Error('told to fail')
    let open = 0
    log.info({ version }, 'witness made')
    return {
      onRequest(x) {
        open++
        x.defer(() => void open--)
        return undefined
      },
      onResponseHead(_, head) {
        head.headers.set('x-witness', String(version))
        return undefined
      },
      close: () => log.info({ version, open }, 'witness closed'),
    }
  },
})
`

let folder: string
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sluice-reload-'))
  await writeFile(join(folder, 'witness.ts'), WITNESS)
})
after(() => rm(folder, { recursive: true, force: true }))

const WORDS = Array.from({ length: 40 }, (_, i) => `word${i} `)

/** An upstream that says its first word at once, and to the prompt `wait` the others when the test opens the gate. */
async function gatedUpstream() {
  const gate = Promise.withResolvers<void>()
  const chunk = (delta: object, finish: string | null = null) =>
    `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`
  const server = await startFakeUpstream(async turn => {
    await turn.head(200, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked' })
    await turn.chunk(chunk({ role: 'assistant', content: WORDS[0] }))
    if (turn.request.body.includes('"wait"')) await gate.promise
    for (const word of WORDS.slice(1)) await turn.chunk(chunk({ content: word }))
    await turn.chunk(`${chunk({}, 'stop')}data: [DONE]\n\n`)
    await turn.end()
  })
  return { url: server.url, open: gate.resolve, close: () => server.close() }
}

const withWitness =
  (options: TestOptions = {}) =>
  (url: string) =>
    defaultYaml(url, {
      ...options,
      extra: `plugins: ["${join(folder, 'witness.ts')}"]\n${options.extra ?? ''}`,
    }).replace('completions: [auth,', 'completions: [{ witness: { version: 1 } }, auth,')

const start = (listener: 'uws' | 'node', watch: boolean, options: TestOptions = {}): Promise<TestGateway> =>
  startGateway({ ...options, yaml: withWitness(options), gateway: { listener, watch } })

const logged = (t: TestGateway, message: string) => t.log.filter(entry => entry.message === message)
const applied = (t: TestGateway) => logged(t, 'configuration reloaded').length

/** Saves the file as an editor does, and waits for the gateway to have taken it. */
async function save(
  t: TestGateway,
  change: (text: string) => string,
  how: 'write' | 'rename' = 'write',
): Promise<void> {
  const done = applied(t)
  await write(t, change, how)
  await eventually(() => applied(t) > done)
}

async function write(
  t: TestGateway,
  change: (text: string) => string,
  how: 'write' | 'rename' = 'write',
): Promise<void> {
  const before = await readFile(t.file, 'utf8')
  const text = change(before)
  assert.notEqual(text, before, 'the edit must change the file')
  if (how === 'write') return writeFile(t.file, text)
  await writeFile(`${t.file}.tmp`, text)
  await rename(`${t.file}.tmp`, t.file)
}

const ask = (content: string, more: object = {}) => ({
  model: 'eb1-preview',
  messages: [{ role: 'user', content }],
  ...more,
})

/** A stream's text as it comes; `begun` once the first of it is there. */
function follow(response: Promise<Response>): {
  begun: Promise<void>
  text: Promise<string>
  response: Promise<Response>
} {
  const first = Promise.withResolvers<void>()
  const text = (async () => {
    let all = ''
    const decoder = new TextDecoder()
    for await (const chunk of (await response).body!) {
      all += decoder.decode(chunk, { stream: true })
      if (all.includes('"content"')) first.resolve()
    }
    return all
  })()
  text.catch(first.reject)
  return { begun: first.promise, text, response }
}

/** The text of a chat stream, and that it ended as it should. */
function contentOf(stream: string): string {
  assert.ok(stream.endsWith('data: [DONE]\n\n'), `cut: …${stream.slice(-200)}`)
  return stream
    .split('\n\n')
    .filter(frame => frame.startsWith('data: {'))
    .map(frame => JSON.parse(frame.slice(6)).choices[0]?.delta?.content ?? '')
    .join('')
}

for (const listener of LISTENERS) {
  describe(`live reload on ${listener}`, () => {
    test('200 streams run through edits by writing and by renaming: none is cut, new requests meet the new chain', async () => {
      const upstream = await gatedUpstream()
      const organization = '    limits: { requests_per_minute: 1000 }'
      const t = await startGateway({
        yaml: () => withWitness({ organization })(upstream.url),
        gateway: { listener, watch: true },
      })
      try {
        const streams = Array.from({ length: 200 }, () =>
          follow(t.post('/v1/chat/completions', ask('wait', { stream: true }))),
        )
        await Promise.all(streams.map(stream => stream.begun))

        // A changed limit, option and model list, written in place.
        await save(t, text =>
          text
            .replace('version: 1 }', 'version: 2 }')
            .replace('requests_per_minute: 1000', 'requests_per_minute: 2000')
            .replace('aliases: [eb1-preview-fast]', 'listed: false, aliases: [eb1-preview-fast]'),
        )
        assert.equal(t.gateway.ingress.running.size, 200, 'the streams were running when the chain changed')
        const second = await t.post('/v1/chat/completions', ask('hi'))
        assert.equal(second.status, 200)
        assert.equal(second.headers.get('x-witness'), '2')
        assert.equal(second.headers.get('x-ratelimit-limit-requests'), '2000')
        const { data } = (await (
          await fetch(`${t.url}/v1/models`, { headers: { authorization: `Bearer ${KEY}` } })
        ).json()) as any
        assert.deepEqual(
          data.map((m: any) => m.id),
          ['eb1-preview', 'eb1-efficient-preview', 'eb1-frontier-preview'],
        )

        // An editor that writes beside the file and renames, twice over the same name.
        await save(t, text => text.replace('version: 2 }', 'version: 3 }'), 'rename')
        assert.equal((await t.post('/v1/chat/completions', ask('hi'))).headers.get('x-witness'), '3')
        await save(t, text => text.replace('version: 3 }', 'version: 4 }'), 'rename')
        assert.equal((await t.post('/v1/chat/completions', ask('hi'))).headers.get('x-witness'), '4')
        assert.equal(t.gateway.ingress.running.size, 200, 'the streams are still running')
        await eventually(() => logged(t, 'witness closed').length === 2)
        assert.deepEqual(
          logged(t, 'witness closed').map(e => e.fields.version),
          [2, 3],
          'what has no exchange is closed at once',
        )

        upstream.open()
        for (const stream of streams) {
          const response = await stream.response
          assert.equal(response.status, 200)
          assert.equal(response.headers.get('x-witness'), '1')
          assert.equal(response.headers.get('x-ratelimit-limit-requests'), '1000')
          assert.equal(contentOf(await stream.text), WORDS.join(''))
        }
        await eventually(() => logged(t, 'witness closed').length === 3)
        assert.deepEqual(
          logged(t, 'witness closed').at(-1)!.fields,
          { version: 1, open: 0 },
          'the first is closed after its last exchange',
        )
        assert.equal(logged(t, 'witness made').length, 4)
        const rows = await t.ledger()
        assert.equal(rows.length, 203)
        assert.ok(rows.every(row => row.outcome === 'completed'))
      } finally {
        await t.close()
        await upstream.close()
      }
      assert.deepEqual(
        logged(t, 'witness closed').map(e => e.fields.version),
        [2, 3, 1, 4],
      )
    })

    test('a bad file leaves the old one serving, and the log says where; mending it applies', async () => {
      const t = await start(listener, true)
      try {
        // In one step: a look between the two of a write would find an empty file, and tell that fault first.
        await write(t, text => text.replace('    plan: custom', '    plan: costum'), 'rename')
        await eventually(() => t.log.some(e => e.level === 'error'))
        const [fault] = t.log.filter(e => e.level === 'error')
        const lines = (await readFile(t.file, 'utf8')).split('\n')
        const line = lines.findIndex(l => l.includes('costum')) + 1
        assert.deepEqual([fault!.fields.line, fault!.fields.column], [line, lines[line - 1]!.indexOf('costum') + 1])
        assert.match(
          fault!.message,
          new RegExp(`^configuration not reloaded: .*gateway\\.yaml:${line}:\\d+ .*'costum'.*custom`),
        )
        assert.equal((await t.post('/v1/chat/completions', ask('hi'))).headers.get('x-witness'), '1')
        // Broken YAML, and no file at all, are no worse.
        await write(t, () => 'version: 1\npipelines: [')
        await eventually(() => t.log.filter(e => e.level === 'error').length > 1)
        assert.equal((await t.post('/v1/chat/completions', ask('hi'))).status, 200)
        await rm(t.file)
        await eventually(() => t.log.some(e => /there is no such file/.test(e.message)))
        assert.equal((await t.post('/v1/chat/completions', ask('hi'))).status, 200)
        const done = applied(t)
        await writeFile(t.file, withWitness()(t.simulator.url).replace('version: 1 }', 'version: 9 }'))
        await eventually(() => applied(t) > done)
        assert.equal((await t.post('/v1/chat/completions', ask('hi'))).headers.get('x-witness'), '9')
      } finally {
        await t.close()
      }
    })
  })
}

test('[AUTH-5] a revoked key stops at once, a staged one works beside it, without a restart', async () => {
  const t = await start(LISTENERS[0], true)
  try {
    const next = 'sk-test-0002-secret'
    const models = (key: string) => fetch(`${t.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })
    assert.equal((await models(next)).status, 401)
    const open = follow(t.post('/v1/chat/completions', ask('[[sim: tokens 40; pace 20ms]] go', { stream: true })))
    await open.begun
    await save(t, text =>
      text.replace(
        '      - { id: key_test',
        `      - { id: key_next, sha256: "${sha256(next)}", status: staged }\n      - { id: key_test`,
      ),
    )
    assert.deepEqual([(await models(KEY)).status, (await models(next)).status], [200, 200])
    await save(t, text => text.replace(/(id: key_test, sha256: "\w+", status: )active/, '$1revoked'))
    const refused = await models(KEY)
    assert.equal(refused.status, 401)
    assert.equal(((await refused.json()) as any).error.code, 'invalid_api_key')
    assert.equal((await models(next)).status, 200)
    contentOf(await open.text)
  } finally {
    await t.close()
  }
})

test('[LIM-2] what was taken before a reload stays taken after it', async () => {
  const upstream = await gatedUpstream()
  const organization = '    limits: { requests_per_day: 3, concurrent_requests: 2 }'
  const t = await startGateway({
    yaml: () => withWitness({ organization })(upstream.url),
    gateway: { listener: LISTENERS[0], watch: false },
  })
  try {
    const open = follow(t.post('/v1/chat/completions', ask('wait', { stream: true })))
    await open.begun
    await write(t, text => text.replace('version: 1 }', 'version: 2 }'))
    assert.equal((await t.gateway.reload()).applied, true)
    const second = await t.post('/v1/chat/completions', ask('hi'))
    // One place is the open stream's, and the second has given its own back.
    assert.equal(second.headers.get('x-ratelimit-remaining-concurrency'), '1')
    assert.equal(second.headers.get('x-ratelimit-remaining-requests-day'), '1')
    upstream.open()
    contentOf(await open.text)
    assert.equal((await t.post('/v1/chat/completions', ask('hi'))).status, 200)
    assert.equal((await t.post('/v1/chat/completions', ask('hi'))).status, 429)
  } finally {
    await t.close()
    await upstream.close()
  }
})

test('a plugin that does not start refuses the reload at its line; those made before it are closed', async () => {
  const t = await start(LISTENERS[0], false)
  try {
    await write(t, text =>
      text.replace(
        '{ witness: { version: 1 } }, auth',
        '{ witness: { version: 2 } }, { plugin: witness, id: second, config: { fail: true } }, auth',
      ),
    )
    const { applied, errors } = await t.gateway.reload()
    assert.equal(applied, false)
    assert.match(errors[0]!.message, /pipeline completions: plugin 'second' does not start: told to fail/)
    const lines = (await readFile(t.file, 'utf8')).split('\n')
    assert.match(lines[errors[0]!.line - 1]!, /id: second/)
    assert.deepEqual(
      logged(t, 'witness closed').map(e => e.fields.version),
      [2],
    )
    assert.equal((await t.post('/v1/chat/completions', ask('hi'))).headers.get('x-witness'), '1')
  } finally {
    await t.close()
  }
})

test('reloads asked for at once run one after the other, and the last one holds', async () => {
  const t = await start(LISTENERS[0], false)
  try {
    await write(t, text => text.replace('version: 1 }', 'version: 2 }'))
    const first = t.gateway.reload()
    const second = t.gateway.reload()
    assert.deepEqual([(await first).applied, (await second).applied], [true, true])
    assert.deepEqual(
      logged(t, 'witness made').map(e => e.fields.version),
      [1, 2, 2],
    )
    await eventually(() => logged(t, 'witness closed').length === 2)
    assert.deepEqual(
      logged(t, 'witness closed').map(e => e.fields.version),
      [1, 2],
    )
    assert.equal((await t.post('/v1/chat/completions', ask('hi'))).headers.get('x-witness'), '2')
  } finally {
    await t.close()
  }
})

test('an included file is watched too, from the moment it is named', async () => {
  const t = await start(LISTENERS[0], true)
  try {
    const accounts = join(folder, 'accounts.yaml')
    const organizations = (rpm: number) =>
      `acme: { plan: custom, limits: { requests_per_minute: ${rpm} }, keys: [{ id: key_test, sha256: "${sha256(KEY)}", status: active }] }\n`
    await writeFile(accounts, organizations(7))
    await save(t, text =>
      text.replace(/organizations:\n[\s\S]*?\nplugins:/, `organizations: { file: "${accounts}" }\nplugins:`),
    )
    assert.equal((await t.post('/v1/chat/completions', ask('hi'))).headers.get('x-ratelimit-limit-requests'), '7')
    const done = applied(t)
    await writeFile(accounts, organizations(8))
    await eventually(() => applied(t) > done)
    assert.equal((await t.post('/v1/chat/completions', ask('hi'))).headers.get('x-ratelimit-limit-requests'), '8')
    await writeFile(accounts, 'acme: { plan: nope }\n')
    await eventually(() => t.log.some(e => e.level === 'error' && String(e.fields.file).endsWith('accounts.yaml')))
    assert.equal((await t.post('/v1/chat/completions', ask('hi'))).status, 200)
  } finally {
    await t.close()
  }
})

test('a save while the gateway starts is taken when it is up', async () => {
  const slow = join(folder, 'slow.mjs')
  await writeFile(
    slow,
    `export default {
  name: 'slow',
  summary: 'Takes its time.',
  create: () => globalThis.slowStart(),
}
`,
  )
  const yaml = (url: string) =>
    defaultYaml(url).replace('auth, validation', 'auth, slow, validation') + `plugins: [${JSON.stringify(slow)}]\n`
  const simulator = await startSimulator({ port: 0 })
  const file = join(folder, 'starting.yaml')
  await writeFile(file, yaml(simulator.url))
  const begun = Promise.withResolvers<void>()
  const { promise: made, resolve: make } = Promise.withResolvers<object>()
  Object.assign(globalThis, {
    slowStart: () => {
      begun.resolve()
      return made
    },
  })
  const starting = buildGateway(file, { log: silent, admin: false })
  await begun.promise
  await writeFile(file, yaml(simulator.url).replace('price_book: test-1', 'price_book: test-2'))
  make({})
  const gateway = await starting
  try {
    assert.equal(gateway.config.price_book, 'test-1')
    await eventually(() => gateway.config.price_book === 'test-2')
  } finally {
    await gateway.close()
    await simulator.close()
  }
})

test('sections that need a restart are named in the log', async () => {
  const t = await start(LISTENERS[0], false)
  try {
    await write(t, text =>
      text
        .replace('drain: 2s', 'drain: 3s')
        .replace('version: 1 }', 'version: 2 }')
        .replace(' idempotency,', ' { idempotency: { max_total: 1MiB } },')
        .replace('price_book: ', 'ledger: { keep: 30d }\nprice_book: '),
    )
    assert.equal((await t.gateway.reload()).applied, true)
    assert.deepEqual(logged(t, 'these sections take effect at the next start')[0]?.fields.sections, [
      'server',
      'ledger.keep',
      'idempotency.max_total',
    ])
    assert.equal((await t.post('/v1/chat/completions', ask('hi'))).headers.get('x-witness'), '2')
  } finally {
    await t.close()
  }
})

// Warnings were told by start and check alone: who saved the file of a running gateway saw none of them.
test('a reload tells the warnings that it brought, each once', async () => {
  const t = await start(LISTENERS[0], false)
  try {
    const told = () => t.log.filter(({ message }) => message.startsWith('configuration warning: '))
    assert.equal((await t.gateway.reload()).applied, true)
    assert.deepEqual(told(), [])
    await write(t, text => text.replace('price_book: ', 'secret: "short"\nprice_book: '))
    assert.equal((await t.gateway.reload()).applied, true)
    assert.equal((await t.gateway.reload()).applied, true)
    assert.deepEqual(
      told().map(({ level, message }) => [level, /the secret is short/.test(message)]),
      [['warn', true]],
    )
  } finally {
    await t.close()
  }
})

test('a reload that meets a closing gateway changes nothing', async () => {
  const t = await start(LISTENERS[0], false)
  const closed = t.close()
  assert.deepEqual(await t.gateway.reload(), { applied: false, errors: [] })
  await closed
  assert.equal(logged(t, 'witness made').length, logged(t, 'witness closed').length)
})

/** A save of a file with 10,000 organizations held every stream for three seconds. */
test('organizations arrive in slices, between which the event loop goes on; those that did not change are kept', async t => {
  const some = (plan: string) =>
    Array.from(
      { length: 1000 },
      (_, i) =>
        `  org_${i}: { plan: ${i === 7 ? plan : 'tier1'}, keys: [{ id: a, sha256: "${sha256(`sk-${i}`)}" }] }\n`,
    ).join('')
  const g = await startGateway({
    yaml: url => `${defaultYaml(url)}\n`.replace(/^organizations:\n/m, head => head + some('tier1')),
    gateway: { watch: false },
  })
  t.after(() => g.close())
  const before = g.gateway.config.organizations
  await writeFile(g.file, (await readFile(g.file, 'utf8')).replace('org_7: { plan: tier1', 'org_7: { plan: tier2'))
  let turns = 0
  let counting = true
  const count = () => {
    turns++
    if (counting) setImmediate(count)
  }
  setImmediate(count)
  assert.deepEqual(await g.gateway.reload(), { applied: true, errors: [] })
  counting = false
  assert.ok(turns >= 10, `${turns} turns`)
  const after = g.gateway.config.organizations
  assert.deepEqual(Object.keys(after), Object.keys(before))
  assert.notEqual(after['org_7'], before['org_7'])
  assert.equal(after['org_7']!.plan, 'tier2')
  assert.equal(after['org_8'], before['org_8'])
})

test('a save that changes nothing builds nothing; a file whose fault is gone again counts as loaded', async t => {
  const g = await startGateway({ gateway: { watch: false } })
  t.after(() => g.close())
  const { generation } = g.gateway.ingress
  const text = await readFile(g.file, 'utf8')
  await writeFile(g.file, `# as it was\n${text}`)
  assert.deepEqual(await g.gateway.reload(), { applied: true, errors: [] })
  assert.equal(g.gateway.ingress.generation, generation)
  await writeFile(g.file, 'version: 2')
  assert.equal((await g.gateway.reload()).applied, false)
  await writeFile(g.file, text)
  assert.equal((await g.gateway.reload()).applied, true)
  assert.equal(g.gateway.ingress.generation, generation)
  await writeFile(
    g.file,
    text.replace(
      'organizations:',
      `organizations:\n  another: { plan: tier1, keys: [{ id: a, sha256: "${sha256('sk-other')}" }] }`,
    ),
  )
  assert.deepEqual(await g.gateway.reload(), { applied: true, errors: [] })
  assert.notEqual(g.gateway.ingress.generation, generation)
})

test('an edit of a plugin file, or of what it imports, is a reload; a broken one leaves the chain as it was', async c => {
  const own = await mkdtemp(join(tmpdir(), 'sluice-watched-'))
  c.after(() => rm(own, { recursive: true, force: true }))
  const text = (word: string) => writeFile(join(own, 'text.ts'), `export const word: string = '${word}'\n`)
  const plugin = (header: string) =>
    writeFile(
      join(own, 'word.ts'),
      `import { definePlugin } from 'sluice'
import { word } from './text.ts'
export default definePlugin({
  name: 'word',
  summary: 'Adds a header.',
  create: () => ({ onResponseHead: (_, head) => void head.headers.set('${header}', word) }),
})
`,
    )
  await text('one')
  await plugin('x-word')
  const t = await startGateway({
    yaml: url =>
      defaultYaml(url, { extra: `plugins: ["${join(own, 'word.ts')}"]\n` }).replace(
        'completions: [auth,',
        'completions: [word, auth,',
      ),
    gateway: { watch: true },
  })
  try {
    const header = async (name: string) => (await t.post('/v1/chat/completions', ask('hi'))).headers.get(name)
    assert.equal(await header('x-word'), 'one')
    await text('two')
    await eventually(async () => (await header('x-word')) === 'two')

    await writeFile(join(own, 'text.ts'), 'export const word: string = (\n')
    await eventually(() =>
      t.log.some(({ level, message }) => level === 'error' && /cannot load .*word\.ts/.test(message)),
    )
    const before = applied(t)
    assert.equal(await header('x-word'), 'two')

    await text('three')
    await eventually(async () => (await header('x-word')) === 'three')
    assert.ok(applied(t) > before)
    await plugin('x-other')
    await eventually(async () => (await header('x-other')) === 'three')
    assert.equal(await header('x-word'), null)
    const last = logged(t, 'configuration reloaded').at(-1)!.fields.files as string[]
    assert.deepEqual([last.length, last[0]!.endsWith('/word.ts'), last[0]!.startsWith('/')], [1, true, false])
  } finally {
    await t.close()
  }
})
