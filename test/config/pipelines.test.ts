import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { checkChain } from '../../config/check-chain.ts'
import { loadConfig } from '../../config/load.ts'
import { conversation, definePlugin, type Plugin, requestBody, slot } from '../../core/plugin.ts'
import { catalog, dialects, surfaces } from './catalog.ts'
import { lines, loadText, small } from './load-text.ts'

const route = 'routes:\n  - { match: POST /v1/x, surface: chat, pipeline: p }'
const chain = (...entries: string[]) =>
  `version: 1\npipelines:\n  p:\n${entries.map(e => `    - ${e}`).join('\n')}\n${route}\n`
const upstream = 'upstream: { unlimited: true }'
const full = ['auth', 'validation', 'conversation', 'token-estimate', 'routing', 'translation', upstream]

async function only(text: string, expected: RegExp): Promise<void> {
  const { errors } = await loadText(text)
  assert.equal(errors?.length, 1, lines(errors).join('\n'))
  assert.match(lines(errors)[0]!, expected)
}

test('the three ways to write an entry', async () => {
  const { config, errors } = await loadText(
    chain(
      ...full.slice(0, -1),
      'idempotency: { keep: 7ms }',
      '{ plugin: idempotency, id: second, on_failure: skip, config: { keep: 8ms } }',
      '{ plugin: idempotency, id: third }',
      'upstream:\n        attempts: 3\n        unlimited: true',
    ),
  )
  assert.deepEqual(lines(errors), [])
  const entries = config!.pipelines['p']!
  assert.deepEqual(
    entries.slice(-4).map(e => [e.id, e.plugin, e.on_failure, e.config['keep'] ?? e.config['attempts']]),
    [
      ['idempotency', 'idempotency', 'deny', 7],
      ['second', 'idempotency', 'skip', 8],
      ['third', 'idempotency', 'deny', 86_400_000],
      ['upstream', 'upstream', 'deny', 3],
    ],
  )
  assert.deepEqual(entries[1]!.at, { file: 'gateway.yaml', line: 5, column: 7 })
})

test('what is needed must be filled above; the error names both lines and says to move it', async () => {
  await only(
    chain('auth', 'validation', 'token-estimate', 'conversation', 'routing', 'translation', upstream),
    /^gateway\.yaml:6:7 {2}token-estimate needs 'conversation', which conversation fills, but it is listed below \(line 7\)\. Move it above\.$/,
  )
  await only(
    chain(...full.filter(e => e !== 'translation')),
    /^gateway\.yaml:9:7 {2}upstream calls models, and nothing above translates for it\. Add translation or embeddings above\.$/,
  )
})

test('a slot filled during the response cannot be needed on the way down', () => {
  const late = slot<number>('late')
  const at = { file: 'g.yaml', line: 1, column: 1 }
  const entry = (plugin: string, line: number) => ({
    plugin,
    id: plugin,
    on_failure: 'deny' as const,
    config: {},
    at: { ...at, line },
  })
  const plugins = new Map<string, Plugin>(
    [
      definePlugin({ name: 'writer', summary: '', providesLate: [late], create: () => ({}) }),
      definePlugin({ name: 'reader', summary: '', needs: [late], create: () => ({}) }),
      definePlugin({ name: 'self', summary: '', needs: [late], provides: [late], create: () => ({}) }),
      definePlugin({ name: 'end', summary: '', terminal: true, create: () => ({}) }),
    ].map(p => [p.name, p]),
  )
  const [error] = checkChain(
    { name: 'p', at, entries: [entry('writer', 1), entry('reader', 2), entry('end', 3)] },
    plugins,
  )
  assert.match(error!.message, /which writer fills only during the response/)
  const [itself] = checkChain({ name: 'p', at, entries: [entry('self', 1), entry('end', 2)] }, plugins)
  assert.match(itself!.message, /which it fills itself/)
  assert.match(checkChain({ name: 'p', at, entries: [] }, plugins)[0]!.message, /is empty.*\(end\)/)
})

test('the body is collected above the terminal: what needs it below must find it there', () => {
  const reads = definePlugin({ name: 'reads', summary: 'Reads.', needs: [requestBody], create: () => ({}) })
  const above = definePlugin({ name: 'above', summary: 'Reads, too.', needs: [requestBody], create: () => ({}) })
  const proxy = definePlugin({ name: 'proxy', summary: 'Answers.', terminal: true, create: () => ({}) })
  const plugins = new Map([reads, above, proxy].map(p => [p.name, p as Plugin]))
  const faults = (...names: string[]) => {
    const entries = names.map((plugin, i) => ({
      plugin,
      id: plugin,
      on_failure: 'deny' as const,
      config: {},
      at: { file: 'gateway.yaml', line: i + 2, column: 5 },
    }))
    return checkChain({ name: 'p', at: { file: 'gateway.yaml', line: 1, column: 1 }, entries }, plugins)
  }
  const [error] = faults('proxy', 'reads')
  assert.match(error!.message, /reads needs 'requestBody'.*Move reads above line 2/)
  assert.equal(error!.line, 3)
  assert.deepEqual(faults('reads', 'proxy'), [])
  assert.deepEqual(faults('above', 'proxy', 'reads'), [])
})

test('exactly one terminal plugin', async () => {
  await only(
    chain('auth', 'header-stamp'),
    /^gateway\.yaml:3:3 {2}pipeline p has no terminal plugin.*upstream, models, retained-responses, count-tokens, own-usage, own-limits, own-receipts, receipt-keys, quote, proxy/,
  )
  await only(
    chain('auth', 'models', 'models: {}'),
    /^gateway\.yaml:6:7 {2}(the id 'models' is taken|models is a second terminal)/,
  ).catch(async () => {
    const { errors } = await loadText(chain('auth', 'models', '{ plugin: models, id: other }'))
    assert.equal(errors?.length, 1)
    assert.match(
      lines(errors)[0]!,
      /^gateway\.yaml:6:7 {2}other is a second terminal plugin; models \(line 5\) already answers/,
    )
  })
})

// Without usage-capture, or with it where a refusal does not pass, a file loaded: ledger rows stayed open for ever, and
// tokens and spend were settled to 0.
test('[BILL-4] what must be filled during every reply stands where every reply passes', async () => {
  const before = full.slice(0, -2)
  const after = ['translation', 'upstream']
  const open = chain(...before, 'admission', ...after)
  await only(
    open,
    /^gateway\.yaml:9:7 {2}admission needs 'usage' of every reply, which nothing in this pipeline fills\. Add usage-capture below upstream\.$/,
  )
  await only(
    chain(...before, 'admission', 'usage-capture', ...after),
    /^gateway\.yaml:9:7 {2}admission needs 'usage' of every reply, but a refusal by a plugin above usage-capture \(line 10\) would not pass it\. Move it below upstream\.$/,
  )
  for (const good of [
    chain(...before, 'admission', ...after, 'usage-capture'),
    chain(...before, 'usage-capture', 'admission', ...after),
  ])
    assert.deepEqual(lines((await loadText(good)).errors), [])
})

test('a slot has one writer', async () => {
  await only(
    chain('auth', '{ plugin: auth, id: again }', 'models'),
    /^gateway\.yaml:5:7 {2}again fills 'identity', which auth \(line 4\) already fills; a slot has one writer/,
  )
})

test('names, ids and what may be skipped', async () => {
  await only(chain('auht', 'models'), /^gateway\.yaml:4:7 {2}there is no plugin 'auht'; did you mean 'auth'\?/)
  await only(chain('auth', 'zebra', 'models'), /known plugins: auth, .*List a file of your own under plugins:/)
  await only(
    chain('auth', 'auth', 'models'),
    /^gateway\.yaml:5:7 {2}the id 'auth' is taken in this pipeline \(line 4\); give this one another: \{ plugin: auth, id: auth-2/,
  )
  await only(chain('auth', '{ plugin: models, on_failure: skip }'), /cannot be skipped; remove on_failure/)
  await only(
    chain('{ plugin: auth, on_failure: skip }', 'models'),
    /^gateway\.yaml:4:7 {2}auth cannot be skipped on failure: models \(line 5\) needs 'identity' from it/,
  )
})

test('options are checked by the plugin itself, at their own place', async () => {
  await only(
    chain('auth: { x_api_ky: true }', 'models'),
    /^gateway\.yaml:4:15 {2}auth has no key 'x_api_ky'; did you mean 'x_api_key'\?/,
  )
  await only(
    chain('auth: { x_api_key: maybe }', 'models'),
    /^gateway\.yaml:4:26 {2}auth\.x_api_key must be true or false/,
  )
  await only(chain('auth', 'proxy'), /^gateway\.yaml:5:7 {2}proxy needs 'target': where requests go/)
  await only(
    chain('auth', 'proxy: { target: "ftp://x" }'),
    /^gateway\.yaml:5:24 {2}proxy\.target must be written like http:\/\/127\.0\.0\.1:8000/,
  )
  await only(
    chain('auth', '{ plugin: proxy, config: { target: "http://x", timeout: 3 } }'),
    /^gateway\.yaml:5:63 {2}proxy\.timeout needs a unit: 3s\?/,
  )
  await only(chain('auth', 'models: { x: 1 }'), /^gateway\.yaml:5:17 {2}models has no key 'x'; it takes no options/)
  await only(
    chain('auth', '{ plugin: models, confg: {} }'),
    /^gateway\.yaml:5:25 {2}entry has no key 'confg'; did you mean 'config'\?/,
  )
})

test('the usual slips in an entry are explained', async () => {
  await only(
    chain('auth:\n      x_api_key: true', 'models'),
    /has 2 keys \(auth, x_api_key\); indent its options further than auth/,
  )
  await only(chain('{ auth: {}, models: {} }'), /has 2 keys \(auth, models\); write one plugin after each hyphen/)
  await only(chain('auth: true', 'models'), /the options of auth must be a mapping/)
  await only(chain('[auth]'), /a pipeline entry is a plugin name/)
  await only(`version: 1\npipelines: { p: auth }\nroutes: []\n`, /pipeline p must be a list/)
  await only('version: 1\npipelines: []\nroutes: []\n', /pipelines must be a mapping/)
  await only('version: 1\npipelines: {}\nroutes: {}\n', /routes must be a list/)
})

test("a plugin's own check speaks at its entry's line, over the finished configuration", async () => {
  const picky = definePlugin<{ max: number }>({
    name: 'picky',
    summary: '',
    config: {
      type: 'object',
      additionalProperties: false,
      properties: { max: { type: 'string', format: 'size', default: '1KiB' } },
    },
    check: (config, gateway) =>
      config.max > gateway.platform.max_concurrent_requests
        ? [`max ${config.max} is over platform.max_concurrent_requests ${gateway.platform.max_concurrent_requests}`]
        : [],
    create: () => ({}),
  })
  const plugins = new Map([...catalog, ['picky', picky as Plugin]])
  const text = chain('auth', 'picky: { max: 30MiB }', 'models')
  const { errors } = await loadText(text, { plugins })
  assert.deepEqual(lines(errors), [
    'gateway.yaml:5:7  picky: max 31457280 is over platform.max_concurrent_requests 10000',
  ])
  assert.equal((await loadText(text.replace('30MiB', '9KiB'), { plugins })).errors, undefined)
})

test('an options schema that is no JSON Schema is an error of the configuration', async () => {
  const odd = definePlugin<any>({ name: 'odd', summary: '', config: { type: 'objekt' }, create: () => ({}) })
  const { errors } = await loadText(chain('odd', 'models'), { plugins: new Map([...catalog, ['odd', odd as Plugin]]) })
  assert.match(lines(errors)[0]!, /^gateway\.yaml:4:7 {2}the options schema of plugin odd is not valid JSON Schema/)
})

test('routes refer to pipelines and surfaces', async () => {
  const routes = (...entries: string[]) =>
    small({ routes: `routes:\n${entries.map(e => `  - ${e}`).join('\n')}\n  - { match: GET /m, pipeline: models }` })
  await only(
    routes('{ match: POST /a, pipeline: modles }'),
    /^gateway\.yaml:5:\d+ {2}there is no pipeline 'modles'; did you mean 'models'\?/,
  )
  await only(
    routes('{ match: POST /a, pipeline: models, surface: chta }'),
    /^gateway\.yaml:5:\d+ {2}route\.surface must be one of responses, chat, messages.*did you mean 'chat'/,
  )
  await only(routes('{ match: PSOT /a, pipeline: models }'), /'PSOT' is no method.*did you mean 'POST'/)
  await only(routes('{ match: POST a, pipeline: models }'), /route\.match must be written like POST \/v1\/responses/)
  await only(
    routes('{ match: GET /m, pipeline: models }'),
    /^gateway\.yaml:6:14 {2}GET \/m is already matched \(line 5\)/,
  )
  await only(routes('{ match: GET /m?a=b, pipeline: models }'), /leave out the query/)
  await only(routes('{ match: GET /a*, pipeline: models }'), /a \* may only stand last/)
  await only(routes('{ match: "GET /*", pipeline: models }'), /built-in ones too/)
  await only(routes('{ match: GET /v24b/v1/models, pipeline: models }'), /retired and answers 410/)
  await only(routes('{ match: HEAD /, pipeline: models }'), /built-in probe/)
  await only(routes('{ pipeline: models }'), /^gateway\.yaml:5:5 {2}route needs 'match'/)
  const { config } = await loadText(routes('{ match: ANY /v1/files/*, pipeline: models }'))
  assert.deepEqual(config!.routes[0], {
    method: 'ANY',
    path: '/v1/files/*',
    surface: undefined,
    pipeline: 'models',
    at: { file: 'gateway.yaml', line: 5, column: 5 },
  })
  await only(
    chain(...full).replace('surface: chat', 'surface: any'),
    /^gateway\.yaml:12:\d+ {2}upstream of pipeline p answers in the form of one surface; `any` is for a question/,
  )
  await only(chain(...full).replace(', surface: chat', ''), /this route needs a surface.*validation of pipeline p/)
})

test('a pipeline without a route is a warning', async () => {
  const { warnings } = await loadText(
    small({ pipelines: 'pipelines:\n  models: [auth, models]\n  spare: [auth, models]' }),
  )
  assert.deepEqual(lines(warnings), ['gateway.yaml:4:3  no route uses pipeline spare'])
})

// Whatever order the plugins stand in: the chain loads exactly when each slot is filled once, above its reader, and a
// message names every fault.
test('a chain loads exactly when every need is met above', () => {
  const at = { file: 'g.yaml', line: 1, column: 1 }
  fc.assert(
    fc.property(
      fc.shuffledSubarray([...catalog.keys()].filter(n => !catalog.get(n)!.terminal)),
      fc.nat(20),
      (names, cut) => {
        const order = [...names.slice(0, cut), 'proxy', ...names.slice(cut)]
        const entries = order.map((plugin, i) => ({
          plugin,
          id: plugin,
          on_failure: 'deny' as const,
          config: {},
          at: { ...at, line: i + 1 },
        }))
        const errors = checkChain({ name: 'p', at, entries }, catalog)
        // The body is there above the terminal for who needs it, and below it when someone above did.
        const collected = (i: number) =>
          i < cut || order.slice(0, cut).some(above => catalog.get(above)!.needs?.some(s => s.name === 'requestBody'))
        const unmet = order.flatMap((name, i) =>
          (catalog.get(name)!.needs ?? [])
            .filter(s =>
              s.name === 'requestBody'
                ? !collected(i)
                : !order.slice(0, i).some(above => catalog.get(above)!.provides?.includes(s)),
            )
            .map(() => i + 1),
        )
        const terminal = order.indexOf('proxy')
        const missed = order.flatMap((name, i) =>
          (catalog.get(name)!.needsLate ?? [])
            .filter(s => !order.some((n, j) => (j < i || j > terminal) && catalog.get(n)!.providesLate?.includes(s)))
            .map(() => i + 1),
        )
        const misplaced = order.flatMap((name, i) =>
          i > terminal && (catalog.get(name)!.aboveTerminal || catalog.get(name)!.layers) ? [i + 1] : [],
        )
        const fillerOf = (slot: { name: string }) =>
          order.findIndex(name => catalog.get(name)!.provides?.some(s => s.name === slot.name))
        // What is filled below the terminal is a fault of the plugin that fills it.
        const readBefore = order.flatMap((name, i) =>
          (catalog.get(name)!.reads ?? [])
            .map(fillerOf)
            .filter(filler => filler > i && filler < terminal)
            .map(() => i + 1),
        )
        const written = new Set<string>()
        const doubled = order.flatMap((name, i) => {
          const { provides = [], mayProvide = [], providesLate = [] } = catalog.get(name)!
          const fills = [...provides, ...mayProvide, ...providesLate].map(slot => slot.name)
          const again = fills.filter(slot => written.has(slot))
          for (const slot of fills) written.add(slot)
          return again.map(() => i + 1)
        })
        const expected = [...unmet, ...missed, ...misplaced, ...readBefore, ...doubled]
        assert.deepEqual(errors.map(e => e.line).sort(), expected.sort())
      },
    ),
  )
})

test('plugin files: loaded, named by their file, and faults at their line', async () => {
  const own = definePlugin({ name: 'tenant-tag', summary: '', create: () => ({}) })
  const text = (file: string) =>
    small({ plugins: `plugins: [${file}]`, pipelines: 'pipelines:\n  models: [auth, tenant-tag, models]' })
  const asked: [string, number][] = []
  const loaded = await loadText(text('./mine/tenant-tag.ts'), {
    generation: 7,
    loadPlugin: async (path, generation) => {
      asked.push([path, generation])
      return own as Plugin
    },
  })
  assert.deepEqual(lines(loaded.errors), [])
  assert.equal(loaded.plugins!.get('tenant-tag'), own)
  assert.equal(loaded.config!.plugins[0]!.path, asked[0]![0])
  assert.match(asked[0]![0], /^\/.*\/mine\/tenant-tag\.ts$/)
  assert.equal(asked[0]![1], 7)

  const broken = await loadText(text('./mine/tenant-tag.ts'), {
    loadPlugin: () => Promise.reject(new Error('it exports no plugin')),
  })
  assert.deepEqual(lines(broken.errors), ['gateway.yaml:10:11  cannot load ./mine/tenant-tag.ts: it exports no plugin'])
  const taken = await loadText(small({ plugins: 'plugins: [./auth.ts]' }))
  assert.match(lines(taken.errors)[0]!, /the name 'auth' belongs to a built-in plugin; rename the file/)
})

test('loading is the same from a relative and an absolute path', async () => {
  const { errors } = await loadConfig('/nowhere/gateway.yaml', { plugins: catalog, dialects, surfaces })
  assert.equal(errors![0]!.file, '/nowhere/gateway.yaml')
})

const own = (name: string, more: Partial<Plugin>) =>
  definePlugin({ name, summary: '', create: () => ({}), ...more }) as Plugin
const withOwn = (...plugins: Plugin[]) => ({
  plugins: new Map([...catalog, ...plugins.map(plugin => [plugin.name, plugin] as const)]),
})

test('options that bound the store: two pipelines that differ do not load', async () => {
  const two = (a: string, b: string) =>
    loadText(
      small({
        pipelines: `pipelines:\n  models:\n    - auth\n    - idempotency: ${a}\n    - models\n  b:\n    - auth\n    - idempotency: ${b}\n    - models`,
      }),
    )
  assert.equal((await two('{ max_record: 5B, keep: 1s }', '{ max_record: 5B }')).errors, undefined)
  const shares = 'bounds the store that all pipelines share'
  assert.deepEqual(
    lines((await two('{ max_record: 5B, max_total: 9B }', '{ max_record: 6B, max_total: 9B }')).errors),
    [
      `gateway.yaml:5:7  idempotency: max_record ${shares}, and pipeline b sets another. Give both the same.`,
      `gateway.yaml:9:7  idempotency: max_record ${shares}, and pipeline models sets another. Give both the same.`,
    ],
  )
})

test('a plugin of any name declares the option that names who runs its searches', async () => {
  const engine = { type: 'string', default: 'simulator' } as const
  const config = { type: 'object', additionalProperties: false, properties: { engine } } as const
  const plugins = withOwn(own('finder', { config, searchProvider: 'engine' }))
  const at = (name: string) =>
    small({ pipelines: `pipelines:\n  models: [auth, { finder: { engine: ${name} } }, models]` })
  for (const name of ['simulator', 'local']) assert.equal((await loadText(at(name), plugins)).errors, undefined, name)
  assert.deepEqual(lines((await loadText(at('lokal'), plugins)).errors), [
    "gateway.yaml:3:18  finder: there is no provider 'lokal'; did you mean 'local'?",
  ])
})

test('a slot that is filled for some exchanges has one writer, and nobody may need it', async () => {
  const traced = slot<unknown>('otel.traced')
  const plugins = withOwn(own('tracer', { mayProvide: [traced] }), own('reader', { needs: [traced] }))
  const otel = 'otel: { endpoint: "http://127.0.0.1:4318" }'
  const twice = await loadText(chain(otel, 'auth', 'tracer', 'models'), plugins)
  assert.deepEqual(lines(twice.errors), [
    "gateway.yaml:6:7  tracer fills 'otel.traced', which otel (line 4) already fills; a slot has one writer. Remove one of the two",
  ])
  const needed = await loadText(chain(otel, 'auth', 'reader', 'models'), plugins)
  assert.deepEqual(lines(needed.errors), [
    "gateway.yaml:6:7  reader needs 'otel.traced', which otel fills for some exchanges only; take it out of needs and peek at it",
  ])
})

test('who rewrites a slot stands below its writer, and above what is made of it', async () => {
  const plugins = withOwn(own('rule', { rewrites: [conversation] }))
  const at = (place: string) => {
    const entries = [...full]
    entries.splice(entries.indexOf(place) + 1, 0, 'rule')
    return loadText(chain(...entries), plugins)
  }
  assert.deepEqual(lines((await at('auth')).errors), [
    "gateway.yaml:5:7  rule needs 'conversation', which conversation fills, but it is listed below (line 7). Move it above.",
  ])
  const well = await at('conversation')
  assert.deepEqual([well.errors, lines(well.warnings)], [undefined, []])
  for (const [above, line] of [
    ['routing', 9],
    ['translation', 10],
  ] as const) {
    const late = await at(above)
    assert.deepEqual(
      [late.errors, lines(late.warnings)],
      [
        undefined,
        [
          `gateway.yaml:${line}:7  rule rewrites 'conversation' too late: routing (line 8) has read it by then, and what goes upstream may be without the change. Move it above routing.`,
        ],
      ],
    )
  }
})

// A plugin that stands in for a built-in one defines the slot again, as those for 0.1.0 do.
test('a slot is made from what its first definition says, whichever plugin fills it', async () => {
  const picker = own('picker', { needs: [conversation], provides: [slot('candidates')] })
  const text = chain(
    ...full.map(entry => (entry === 'routing' ? 'picker' : entry)).flatMap(e => (e === 'picker' ? [e, 'rule'] : [e])),
  )
  const { errors, warnings } = await loadText(text, withOwn(picker, own('rule', { rewrites: [conversation] })))
  assert.equal(errors, undefined)
  assert.deepEqual(lines(warnings), [
    "gateway.yaml:9:7  rule rewrites 'conversation' too late: picker (line 8) has read it by then, and what goes upstream may be without the change. Move it above picker.",
  ])
})

const whole = ['auth', 'validation', 'conversation', 'token-estimate', 'routing', 'admission', 'translation']
const served = [...whole, 'upstream', 'usage-capture']

// Such a file loaded, `check --strict` called it good, and nobody had a limit or a ledger row.
test('a terminal that spends needs what limits it above, or the word that does without', async () => {
  await only(
    chain(...served.filter(name => name !== 'admission')),
    /^gateway\.yaml:10:7 {2}upstream serves without limits, without a spend cap and without a ledger row: nothing above it fills 'reservation'\. Add admission above, or say unlimited: true$/,
  )
  await only(
    chain(...served.filter(name => name !== 'admission'), 'admission'),
    /^gateway\.yaml:12:7 {2}admission is listed below upstream \(line 10\), where no request reaches it\. Move it above\.$/,
  )
  await only(
    chain(...served).replace('- admission', '- { plugin: admission, on_failure: skip }'),
    /^gateway\.yaml:11:7 {2}upstream serves without limits.* whenever admission \(line 9\) fails\. Remove on_failure: skip there, or say unlimited: true$/,
  )
  await only(
    chain('auth', 'validation', 'conversation', 'admission', 'token-estimate', 'routing', ...served.slice(-3)),
    /^gateway\.yaml:7:7 {2}admission reads 'estimate', which token-estimate fills, but it is listed below \(line 8\)\. Move token-estimate above\.$/,
  )
  const said = await loadText(chain(...whole.filter(name => name !== 'admission'), upstream))
  assert.deepEqual([said.errors, lines(said.warnings)], [undefined, []])
  const idle = await loadText(chain(...whole, upstream, 'usage-capture'))
  assert.deepEqual(lines(idle.warnings), [
    "gateway.yaml:11:7  upstream says unlimited: true, but admission (line 9) fills 'reservation', so it does nothing. Remove it.",
  ])
})

// The credential of the gateway was lent to everybody who reached the listener, and check had no word about it.
test('proxy with a credential needs to know who calls, or the word that does without', async () => {
  const relay = (options: string, ...above: string[]) =>
    loadText(chain(...above, `proxy: { target: "http://a", ${options} }`, 'usage-capture'))
  const key = 'api_key: target-key'
  assert.deepEqual(lines((await relay(key)).errors), [
    "gateway.yaml:4:7  proxy serves without limits, without a spend cap and without a ledger row: nothing above it fills 'reservation'. Add admission above, or say unlimited: true",
    "gateway.yaml:4:7  proxy lends its credential to everybody who reaches the listener: nothing above it fills 'identity'. Add auth above, or say open: true",
  ])
  assert.equal((await relay(key, 'auth', 'admission')).errors, undefined)
  assert.equal((await relay(`${key}, unlimited: true`, 'auth')).errors, undefined)
  assert.equal((await relay(`${key}, unlimited: true, open: true`)).errors, undefined)
  assert.match(lines((await relay(`${key}, open: true`)).errors).join(), /say unlimited: true$/)
  // Without a credential nothing is lent.
  assert.equal((await relay('timeout: 1s')).errors, undefined)
})

test('a plugin of the operator that fills the slot counts; one that fills it for some exchanges does not', async () => {
  const reservation = slot<unknown>('reservation')
  const without = served.filter(name => name !== 'admission')
  const at = (name: string) => chain(...without.toSpliced(-2, 0, name))
  const plugins = withOwn(own('budget', { provides: [reservation] }), own('quota', { mayProvide: [reservation] }))
  assert.equal((await loadText(at('budget'), plugins)).errors, undefined)
  assert.match(
    lines((await loadText(at('quota'), plugins)).errors).join(),
    /nothing above it fills 'reservation'; quota fills it for some exchanges only\. Add admission or budget above/,
  )
  const below = await loadText(chain(...without, 'budget'), plugins)
  assert.match(lines(below.errors).join(), /nothing above it fills 'reservation'\. Move budget above, or say unlimited/)
})

test('a built-in plugin whose work is on the way down does not load below the terminal', async () => {
  const misplaced = ['idempotency', 'validation', 'auth', 'token-estimate', 'model-access', 'media']
  for (const name of misplaced) {
    assert.equal(catalog.get(name)!.aboveTerminal, true, name)
    const { errors } = await loadText(chain('auth', 'models', `{ plugin: ${name}, id: late }`))
    assert.match(lines(errors).join('\n'), /late is listed below models \(line 5\), where no request reaches it/, name)
  }
})

// A quote whose pipeline had `compaction`, and the completions not, said admitted of a request that was then refused.
test('a quote whose plugins are not those of a pipeline that serves the same surface: a warning names them', async () => {
  const above = ['auth', 'validation', 'model-access', 'conversation', 'compaction', 'token-estimate', 'routing']
  const serve = (names: string[]) =>
    [...names.toSpliced(2, 0, 'idempotency'), 'admission', 'translation', 'upstream', 'usage-capture'].join(', ')
  const quoted = (served: string[], quote: string[], more = '') =>
    loadText(
      small({
        version: 'version: 2',
        pipelines: `pipelines:\n  p: [${serve(served)}]\n  q: [${quote.join(', ')}, quote]`,
        routes: `routes:
  - { match: POST /v1/chat/completions, surface: chat, pipeline: p }
  - { match: POST /v1/chat/completions/quote, surface: chat, pipeline: q }
  - { match: POST /v1/quote, surface: any, pipeline: q }${more}`,
      }),
    )
  const told = async (...args: Parameters<typeof quoted>) => {
    const { errors, warnings } = await quoted(...args)
    assert.deepEqual(lines(errors), [])
    return lines(warnings).filter(line => line.includes('tells what'))
  }
  assert.deepEqual(await told(above, above), [])
  const without = above.filter(name => name !== 'compaction')
  const one = [
    'gateway.yaml:4:3  pipeline q tells what p would do with a request, and is another: compaction stands in one of the two alone, or with other options. Write the same in both',
  ]
  assert.deepEqual(await told(without, above), one)
  assert.deepEqual(await told(above, without), one)
  const other = above.map(name =>
    name === 'validation' ? '{ validation: { unknown_fields: { chat: strip } } }' : name,
  )
  assert.match(
    (await told(other, without)).join(),
    /^[^\n]* validation, compaction stand in one|compaction, validation/,
  )
  // One of those that serve the surface is enough, and a surface that nobody serves has nothing to be like.
  assert.deepEqual(
    await told(above, above, '\n  - { match: POST /v1/messages/quote, surface: messages, pipeline: q }'),
    [],
  )
})
