// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the notation of gateway.yaml
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { lines, loadText, small } from './load-text.ts'

/** One fault each: text, where it shows, and what the message must say. */
async function faults(cases: [name: string, text: string, at: string, ...says: string[]][]): Promise<void> {
  const missed: string[] = []
  for (const [name, text, at, ...says] of cases) {
    const { errors } = await loadText(text)
    const shown = lines(errors)
    const line = shown.find(l => l.startsWith(`gateway.yaml:${at}  `))
    if (!line) missed.push(`${name}: nothing at ${at}, but ${shown.join('; ')}`)
    for (const word of says) if (line && !line.includes(word)) missed.push(`${name}: '${line}' does not say '${word}'`)
  }
  assert.deepEqual(missed, [])
}

test('the small configuration loads, without a warning', async () => {
  const { errors, warnings } = await loadText(small())
  assert.deepEqual(lines(errors), [])
  assert.deepEqual(lines(warnings), [])
})

test('faults of the text name their place and the cure', async () => {
  await faults([
    ['empty', '', '1:1', 'version: 2'],
    ['not a mapping', '- a', '1:1', 'version: 2'],
    ['no version', small({ version: '' }), '1:1', "'version' is missing"],
    ['other version', small({ version: 'version: 3' }), '1:10', 'version must be one of 1, 2'],
    ['syntax', small({ log: 'log: { level: [ }' }), '10:17', 'not valid YAML'],
    [
      'duplicate key',
      small({ log: 'log:\n  level: info\n  level: warn' }),
      '12:3',
      'already set above',
      'remove or rename',
    ],
    ['unknown section', small({ log: 'pipeline: {}' }), '10:1', "did you mean 'pipelines'?"],
    ['unset variable', small({ log: 'secret: "${SALT}"' }), '10:9', 'SALT is not set', 'give a default'],
    ['unquoted in flow style', small({ log: 'log: { level: ${LEVEL} }' }), '10:16', 'put "${…}" in quotes'],
    [
      'a variable inside a default',
      small({ log: 'secret: "${SALT:-${KEY}}"' }),
      '10:9',
      'has no }',
      'no other variable',
    ],
    ['a variable that is not closed', small({ log: 'secret: "${SALT"' }), '10:9', 'has no }'],
    ['malformed variable', small({ log: 'secret: "${SA LT}"' }), '10:9', 'is no variable'],
    ['merge keys are not a feature', small({ log: 'log: { <<: { level: info } }' }), '10:8', "no key '<<'"],
    ['alias inside its anchor', small({ log: 'log: &a { level: *a }' }), '10:18', 'alias'],
    ['__proto__', small({ log: 'log: { __proto__: { level: info } }' }), '10:8', 'plain text'],
  ])
})

test('values are checked with units, bounds and suggestions', async () => {
  await faults([
    [
      'duration word',
      small({ s: 'server: { drain: 15sec }' }),
      '10:18',
      'server.drain',
      '250ms, 60s, 5m or 24h',
      "'15sec'",
    ],
    ['bare duration', small({ s: 'server: { drain: 30 }' }), '10:18', 'needs a unit', '30s'],
    ['bare size', small({ s: 'media: { max_bytes: 20 }' }), '10:21', 'needs a unit', '20MiB'],
    ['decimal size', small({ s: 'media: { max_bytes: 20MB }' }), '10:21', '32MiB'],
    ['whole number', small({ s: 'server: { max_connections: lots }' }), '10:28', 'a whole number', "'lots'"],
    ['bound', small({ s: 'server: { max_connections: 0 }' }), '10:28', 'at least 1'],
    ['word', small({ s: 'server: { listener: usw }' }), '10:21', 'uws, node', "did you mean 'uws'?"],
    ['address', small({ s: 'server: { listen: 8080 }' }), '10:19', '127.0.0.1:8080'],
    ['address without port', small({ s: 'server: { listen: localhost }' }), '10:19', '127.0.0.1:8080'],
    ['port', small({ s: 'server: { listen: "localhost:70000" }' }), '10:19', '127.0.0.1:8080'],
    ['network', small({ s: 'server: { trust_proxy: [10.0.0.0/8, 10.0.0.0/33] }' }), '10:37', 'trust_proxy[1]'],
    ['workers', small({ s: 'server: { workers: many }' }), '10:20', 'auto'],
    ['unknown key', small({ s: 'server: { drian: 30s }' }), '10:11', "did you mean 'drain'?"],
    ['camel case', small({ s: 'server: { keepAlive: 30s }' }), '10:11', "did you mean 'keep_alive'?"],
    ['a list for a mapping', small({ s: 'server: []' }), '10:9', 'a mapping'],
    ['a missing member', small({ s: 'server: { tls: { cert: a.pem } }' }), '10:11', "needs 'key'"],
    ['number for text', small({ s: 'price_book: 2026.11' }), '10:13', '"2026.11"', 'quotes'],
    ['store', small({ s: 'store: mysql://x' }), '10:8', 'redis://127.0.0.1:6379'],
    ['ledger target', small({ s: 'ledger: { ship: { to: kafka://x } }' }), '10:23', 'postgres://billing@db', 'file:'],
    ['pace', small({ s: 'ledger: { ship: { to: "file:x", interval: 10ms } }' }), '10:43', 'at least 1s'],
    [
      'ledger in memory',
      small({ s: 'ledger: { ship: { to: "file:x" } }\nstore: "sqlite::memory:"' }),
      '10:17',
      'a ledger in memory cannot be shipped',
    ],
    ['share', small({ s: 'platform: { scale_limits_above: 1.5 }' }), '10:33', 'at most 1'],
    ['list of models', small({ s: 'plans: { p: { models: some } }' }), '10:23', 'all'],
  ])
})

test('everything that is wrong is told at once, in reading order', async () => {
  const { errors } = await loadText(
    small({
      s: 'server: { drain: soon, drian: 1s }\nlog: { level: loud }',
      routes: 'routes:\n  - { match: GET /v1/models, pipeline: model }',
      o: 'organizations: { a: { plan: tier9 } }',
    }),
  )
  const places = (errors ?? []).map(e => e.line)
  assert.equal(places.length, 5, lines(errors).join('\n'))
  assert.deepEqual(
    places,
    places.toSorted((a, b) => a - b),
  )
})

test('~ is the documented default, or unlimited', async () => {
  const { config } = await loadText(
    small({
      s: 'server: ~\nlog: { level: ~ }\nstream_limits: { max: { idle: ~ } }\nplugins: ~\norganizations: { a: { plan: tier1, keys: ~, limits: { tokens_per_minute: ~ } } }',
    }),
  )
  assert.equal(config!.server.drain, 30_000)
  assert.equal(config!.log.level, 'info')
  assert.equal(config!.stream_limits.max.idle, 120_000)
  assert.deepEqual(config!.plugins, [])
  assert.equal(config!.organizations['a']!.limits.tokens_per_minute, null)
  assert.equal(config!.organizations['a']!.limits.requests_per_minute, 60)
})

test('environment variables: set, default, empty, literal, and numbers outside quotes', async () => {
  const env = { SALT: 'x'.repeat(40), EMPTY: '', MAX: '77', BODIES: 'true', KEY: 'k' }
  const text = small({
    s: 'secret: ${SALT}\nserver: { max_connections: "${MAX}" }',
    p: 'providers: { local: { dialect: openai-chat, base_url: simulator, api_key: "${KEY}", headers: { a: "${NONE:-b}", c: "${EMPTY:-d}", e: "$${KEY}", f: "${EMPTY}" } } }',
    providers: '',
  })
  const quoted = await loadText(text, { env })
  assert.deepEqual(lines(quoted.errors).length, 1)
  assert.ok(lines(quoted.errors)[0]!.includes('max_connections must be a whole number'))
  const { config, errors } = await loadText(
    text.replace(
      'server: { max_connections: "${MAX}" }',
      'server:\n  max_connections: ${MAX}\nlog:\n  bodies: ${BODIES}',
    ),
    {
      env,
    },
  )
  assert.deepEqual(lines(errors), [])
  assert.equal(config!.secret, env.SALT)
  assert.equal(config!.server.max_connections, 77)
  assert.equal(config!.log.bodies, true)
  assert.equal(config!.providers['local']!.api_key, 'k')
  assert.deepEqual(config!.providers['local']!.headers, { a: 'b', c: 'd', e: '${KEY}', f: '' })
})

test('a credential that no header can carry is a fault at its place, and not shown', async () => {
  const text = small({
    providers: 'providers: { local: { dialect: openai-chat, base_url: simulator, api_key: "${KEY}" } }',
  })
  for (const KEY of ['sk-secret\n', 'sk-secret\r\nx: y', ' sk-secret', 'sk‑secret', 'sk-secret\0']) {
    const { errors } = await loadText(text, { env: { KEY } })
    assert.equal(errors?.length, 1, JSON.stringify(KEY))
    assert.match(errors![0]!.message, /^local\.api_key must be visible ASCII .*line break/)
    assert.doesNotMatch(errors![0]!.message, /secret/)
  }
  for (const KEY of ['', 'sk-secret', 'a/b+c=~'])
    assert.deepEqual(lines((await loadText(text, { env: { KEY } })).errors), [])
})

test('an environment value is data, never YAML', async () => {
  const { config } = await loadText(small({ s: 'secret: "${SALT}"' }), {
    env: { SALT: '"\nlog: { bodies: true }\n# ' + 'x'.repeat(40) },
  })
  assert.equal(config!.log.bodies, undefined)
  assert.ok(config!.secret.startsWith('"\nlog'))
})

test('a section in a file of its own carries its own positions and is watched', async () => {
  const main = small({ o: 'organizations: { file: ./accounts/all.yaml }' })
  const good = await loadText(main, { files: { 'accounts/all.yaml': 'a: { plan: tier1 }\n' } })
  assert.deepEqual(lines(good.errors), [])
  assert.equal(good.config!.organizations['a']!.plan, 'tier1')
  assert.ok(good.files[1]!.endsWith('/accounts/all.yaml'))

  const bad = await loadText(main, { files: { 'accounts/all.yaml': '# accounts\na: { plan: tier1, blling: free }\n' } })
  assert.ok(lines(bad.errors)[0]!.startsWith("accounts/all.yaml:2:19  a has no key 'blling'; did you mean 'billing'?"))
  assert.equal(bad.files.length, 2, 'a file with a fault is watched too')

  const missing = await loadText(main)
  assert.equal(lines(missing.errors).length, 1)
  assert.match(lines(missing.errors)[0]!, /^gateway\.yaml:10:16 {2}cannot read accounts\/all\.yaml \(ENOENT\)/)

  const nested = await loadText(main, { files: { 'accounts/all.yaml': 'file: ./more.yaml' } })
  assert.match(lines(nested.errors)[0]!, /holds the section itself/)

  const broken = await loadText(main, { files: { 'accounts/all.yaml': 'a: [' } })
  assert.match(lines(broken.errors)[0]!, /^accounts\/all\.yaml:1:5 {2}not valid YAML/)
})

test('a missing main file is an error, not an exception', async () => {
  const { errors } = await loadText('', {
    readFile: async () => Promise.reject(Object.assign(new Error(), { code: 'ENOENT' })),
  })
  assert.match(lines(errors)[0]!, /no such file; name one with --config/)
})

test('sqlite with more than one worker does not load, and says why', async () => {
  for (const workers of ['2', 'auto']) {
    const { errors } = await loadText(small({ s: `server: { workers: ${workers} }` }))
    assert.match(lines(errors)[0]!, /^gateway\.yaml:10:20 {2}[24] workers cannot share an sqlite store.*redis/)
  }
  const shared = await loadText(small({ s: 'server: { workers: auto }\nstore: { url: redis://h:1, timeout: 1s }' }))
  assert.equal(shared.config!.server.workers, 4)
  assert.deepEqual(shared.config!.store, {
    url: 'redis://h:1',
    timeout: 1000,
    max_records: 4 * 2 ** 30,
    max_plugin_values: 256 * 2 ** 20,
    max_memory: null,
    share: 0.25,
    replicas: 'auto',
  })
  const local = await loadText(small({ s: 'server: { workers: auto }\nstore: local' }))
  assert.match(local.config!.store.url, /^local:\/.*\/data$/)
  // The ledger of a local store is in memory, so its rows go to files unless they go elsewhere.
  assert.deepEqual(lines(local.warnings), [])
  assert.match(local.config!.ledger.ship!.to, /^file:\/.*\/data\/ledger$/)
  const ship = 'ledger: { ship: { to: postgres://u@h/d } }'
  const elsewhere = await loadText(small({ s: `server: { workers: auto }\nstore: local\n${ship}` }))
  assert.equal(elsewhere.config!.ledger.ship!.to, 'postgres://u@h/d')
  assert.match(lines(elsewhere.warnings)[0]!, /ledger rows stay in the memory of the local store for ever/)
  const short = await loadText(small({ s: 'store: redis://h:1' }))
  const long = await loadText(small({ s: 'store: { url: redis://h:1 }' }))
  assert.deepEqual(short.config!.store, long.config!.store)
  const address = await loadText(small({ s: 'server: { admin: 127.0.0.1:9000 }' }))
  const members = await loadText(small({ s: 'server: { admin: { listen: 127.0.0.1:9000 } }' }))
  assert.deepEqual(address.config!.server, members.config!.server)
  for (const url of ['rediss://h', 'redis+sentinel://h', 'redis+cluster://h']) {
    const { errors } = await loadText(small({ s: `store: ${url}` }))
    assert.deepEqual(lines(errors), [])
  }
})

test('workers share one port, and one address of the admin pages', async () => {
  const server = (more: string) => small({ s: `server: { workers: 3, ${more} }\nstore: redis://h` })
  await faults([
    ['any port', server('listen: 127.0.0.1:0, admin: 127.0.0.1:0'), '10:31', 'share one port'],
    ['the same', server('listen: 127.0.0.1:9000, admin: 127.0.0.1:9000'), '10:54', 'cannot share port 9000'],
  ])
  for (const listen of ['127.0.0.1:9001', '127.0.0.1:8999']) {
    const { errors } = await loadText(server(`listen: "${listen}", admin: "127.0.0.1:9000"`))
    assert.deepEqual(lines(errors), [])
  }
})

test('admin beyond loopback needs a token', async () => {
  await faults([
    ['open', small({ s: 'server: { admin: "0.0.0.0:9090" }' }), '10:18', 'open to the network', 'token'],
    [
      'a local token',
      small({ s: 'server: { admin: { listen: "0.0.0.0:9090", token: t, local_token: ./t } }' }),
      '10:67',
      'programs on this machine',
    ],
    ['every interface', small({ s: 'server: { admin: ":9090" }' }), '10:18', 'token'],
    ['empty token', small({ s: 'server: { admin: { listen: "10.0.0.1:9090", token: "" } }' }), '10:18', 'token'],
    ['shared port', small({ s: 'server: { listen: ":9090" }' }), '10:1', 'cannot share port 9090'],
  ])
  const { config } = await loadText(small({ s: 'server: { admin: { listen: "10.0.0.1:9090", token: t } }' }))
  assert.deepEqual(config!.server.admin, {
    host: '10.0.0.1',
    port: 9090,
    token: 't',
    hosts: [],
    tokens: [],
    audit: { keep: 400 * 86_400_000, most: 100_000 },
  })
  for (const host of ['127.0.0.1', 'localhost', '[::1]', '127.9.9.9']) {
    const { errors } = await loadText(small({ s: `server: { admin: "${host}:9090" }` }))
    assert.deepEqual(lines(errors), [])
  }
})

test('certificates must be there when the configuration loads', async () => {
  const text = small({ s: 'server: { tls: { cert: ./tls/cert.pem, key: ./tls/key.pem } }' })
  const { errors } = await loadText(text, { files: { 'tls/cert.pem': 'x' } })
  assert.equal(lines(errors).length, 1)
  assert.match(lines(errors)[0]!, /^gateway\.yaml:10:45 {2}cannot read .*\/tls\/key\.pem/)
  const { config } = await loadText(text, { files: { 'tls/cert.pem': 'x', 'tls/key.pem': 'y' } })
  assert.match(config!.server.tls!.cert, /^\/.*\/tls\/cert\.pem$/)
})

test('the TLS files of a provider are read as what they are named', async () => {
  const text = small({}).replace(/(base_url: [^,}\s]+)/, '$1, tls: { ca: ca.pem, cert: cert.pem, key: key.pem }')
  const { errors } = await loadText(text, { files: { 'ca.pem': 'x', 'cert.pem': 'y', 'key.pem': 'z' } })
  assert.match(
    lines(errors).join('\n'),
    /it holds no certificate in PEM.*\n.*it is no PEM certificate that fits the key/,
  )
})

test('providers, models and backends refer to each other', async () => {
  const backend = (more: string) => `backends: [{ provider: local, model: m${more} }]`
  const models = (...entries: string[]) => small({ models: `models:\n${entries.map(e => `  ${e}`).join('\n')}` })
  await faults([
    [
      'unknown provider',
      models('a: { context_window: 9, backends: [{ provider: lcoal, model: m }] }'),
      '9:50',
      "did you mean 'local'?",
    ],
    ['no backends', models('a: { context_window: 9, backends: [] }'), '9:37', 'must not be empty'],
    ['no window', models(`a: { ${backend('')} }`), '9:3', "needs 'context_window'"],
    [
      'alias is a model',
      models(`a: { context_window: 9, aliases: [b], ${backend('')} }`, `b: { context_window: 9, ${backend('')} }`),
      '9:37',
      'line 10',
    ],
    [
      'alias twice',
      models(
        `a: { context_window: 9, aliases: [c], ${backend('')} }`,
        `b: { context_window: 9, aliases: [c], ${backend('')} }`,
      ),
      '10:37',
      'alias of a',
    ],
    ['alias of itself', models(`a: { context_window: 9, aliases: [a], ${backend('')} }`), '9:37', 'means one model'],
    [
      'capability',
      models(`a: { context_window: 9, ${backend(', supports: [tols]')} }`),
      '9:78',
      "did you mean 'tools'?",
    ],
    ['native tool', models(`a: { context_window: 9, ${backend(', native_tools: [bash]')} }`), '9:82', 'bash_20250124'],
    [
      'price',
      models(`a: { context_window: 9, price: { input: 1.1234567, output: 1 }, ${backend('')} }`),
      '9:43',
      'six decimals',
    ],
    ['half a price', models(`a: { context_window: 9, price: { input: 1 }, ${backend('')} }`), '9:27', "needs 'output'"],
    [
      'dialect',
      small({ providers: 'providers:\n  local: { dialect: openai, base_url: simulator }' }),
      '7:21',
      'openai-chat',
    ],
    [
      'base_url',
      small({ providers: 'providers:\n  local: { dialect: gemini, base_url: localhost:80 }' }),
      '7:39',
      'https://api.openai.com/v1',
    ],
    [
      'header name',
      small({ providers: 'providers:\n  local: { dialect: gemini, base_url: simulator, headers: { "a b": c } }' }),
      '7:61',
      'no header name',
    ],
    [
      'own header',
      small({ providers: 'providers:\n  local: { dialect: gemini, base_url: simulator, headers: { Host: c } }' }),
      '7:61',
      'set by the gateway',
    ],
    ['web search', small({ w: 'web_search: { provider: lokal }' }), '10:25', "did you mean 'local'?"],
    [
      'name',
      small({ providers: 'providers:\n  "a b": { dialect: gemini, base_url: simulator }' }),
      '7:3',
      'is no name',
    ],
  ])
})

test('listed aliases are aliases, for surfaces that there are', async () => {
  const models = (members: string) =>
    small({
      models: `models:\n  eb1: { ${members}, context_window: 9, backends: [{ provider: local, model: m }] }\n  two: { aliases: [deux], context_window: 9, backends: [{ provider: local, model: m }] }`,
    })
  const { config } = await loadText(
    models('aliases: [old], listed_aliases: { messages: [claude-eb1, old], chat: [claude-eb1] }'),
  )
  assert.deepEqual(config!.models['eb1']!.aliases, ['old', 'claude-eb1'])
  await faults([
    [
      'an alias of another model',
      models('listed_aliases: { messages: [claude-eb1, deux] }'),
      '10:20',
      "the alias 'deux' of two is already an alias of eb1",
    ],
    ['another model', models('listed_aliases: { messages: [two] }'), '9:39', "'two' of eb1 is a model of its own"],
    ['a surface', models('listed_aliases: { mesages: [x] }'), '9:28', "no surface 'mesages'; did you mean 'messages'?"],
  ])
})

test('models for embeddings have backends that make them and no price for output; others need one', async () => {
  const model = (members: string, dialect = 'openai-chat', backend = '') =>
    small({
      providers: `providers:\n  local: { dialect: ${dialect}, base_url: simulator }`,
      models: `models:\n  eb1: { context_window: 9, ${members} backends: [{ provider: local, model: m${backend} }] }`,
    })
  const { config, errors } = await loadText(model('serves: embeddings, price: { input: 1 },'))
  assert.deepEqual(lines(errors), [])
  assert.deepEqual(config!.models['eb1']!.price, { input: 1e6, output: 0 })
  const costs = 'cost: { input: 2, search: "0.01", steps: [{ above: 9, input: 4, output: 1, cache_write: 5 }] }'
  const costed = await loadText(model('serves: embeddings,', 'openai-chat', `, ${costs}`))
  assert.deepEqual(costed.config!.models['eb1']!.backends[0]!.cost, {
    ...{ input: 2e6, output: 0, cached: 2e5, cache_write: 2e6, cache_write_1h: 2e6, search: 1e7, tiers: {} },
    steps: [{ above: 9, input: 4e6, output: 1e6, cached: 4e5, cache_write: 5e6, cache_write_1h: 5e6 }],
  })
  await faults([
    [
      'a dialect without them',
      model('serves: embeddings, price: { input: 1 },', 'gemini'),
      '9:81',
      'makes no embeddings',
      'openai-chat or openai-responses',
    ],
    ['a price', model('serves: embeddings, price: { input: 1, output: 1 },'), '9:76', 'no output; remove its price'],
    ['no price of output', model('price: { input: 1 },'), '9:29', "needs 'output'"],
    ['no cost of output', model('', 'openai-chat', ', cost: { input: 1 }'), '9:70', "the cost of eb1 needs 'output'"],
    [
      'a cost of output',
      model('serves: embeddings,', 'openai-chat', ', cost: { input: 1, output: 1 }'),
      '9:115',
      'no output; remove its cost',
    ],
    [
      'two steps of a cost',
      model(
        '',
        'openai-chat',
        `, cost: { input: 1, output: 1, steps: [${'{ above: 5, input: 1, output: 1 },'.repeat(2)}] }`,
      ),
      '9:150',
      'an earlier step is above 5 too',
    ],
  ])
})

test('supports narrows what the dialect can express, and says what it cannot', async () => {
  const text = (supports: string) =>
    small({
      providers: 'providers:\n  g: { dialect: gemini, base_url: simulator }',
      models: `models:\n  a: { context_window: 9, backends: [{ provider: g, model: m${supports} }] }`,
    })
  const all = await loadText(text(''))
  assert.equal(all.config!.models['a']!.backends[0]!.supports.size, 11)
  const listed = await loadText(text(', supports: [tools, logprobs]'))
  assert.deepEqual([...listed.config!.models['a']!.backends[0]!.supports], ['tools'])
  assert.ok(lines(listed.warnings).some(line => line.includes('the gemini dialect has no logprobs')))
})

// A file that `init` had just written drew a warning about a search that nobody had asked for.
test('where the gateway searches, listed models that no web search serves are warned of, together', async () => {
  const warned = async (models: string, provider = 'null') => {
    const { warnings } = await loadText(
      small({
        providers:
          'providers:\n  c: { dialect: openai-chat, base_url: simulator }\n  r: { dialect: openai-responses, base_url: simulator }',
        models: `models:\n${models}`,
        version: 'version: 2',
        pipelines: `pipelines:\n  main: [{ web-search: { provider: ${provider} } }]`,
      }),
    )
    return lines(warnings).filter(line => line.includes('web search'))
  }
  const model = (id: string, backend: string, more = '') =>
    `  ${id}: { context_window: 9, ${more} backends: [{ provider: ${backend} }] }\n`
  const blind = model('a', 'c, model: m, supports: [images]') + model('b', 'c, model: m, supports: [images]')
  const able = model('t', 'c, model: m, supports: [tools]') + model('s', 'r, model: m')
  const [told, ...more] = await warned(
    blind + able + model('u', 'c, model: m, supports: [images]', 'listed: false,'),
    'simulator',
  )
  assert.match(told!, /no web search serves a, b: no backend searches by itself, and none takes the tools/)
  assert.deepEqual(more, [])
  assert.deepEqual(await warned(blind + able), [], 'no search')
  assert.deepEqual(await warned(model('a', 'c, model: m, supports: [tools]'), 'simulator'), [])
})

// A cap computed from a spend limit may be above what a provider takes, which refused each request without a cap.
test('a model without max_output_tokens is warned of where a limit would set the cap', async () => {
  const key = `{ id: k, sha256: "${'a'.repeat(64)}", status: active`
  const warned = async (model: string, organization: string, url = 'https://upstream.example/v1') => {
    const { errors, warnings } = await loadText(
      small({
        providers: `providers:\n  real: { dialect: openai-chat, base_url: "${url}" }`,
        models: `models:\n  a: { context_window: 9000, backends: [{ provider: real, model: m }], ${model} }`,
        organizations: `organizations:\n  acme: { ${organization} }`,
      }),
    )
    assert.deepEqual(lines(errors), [])
    return lines(warnings)
      .filter(line => line.includes('max_output_tokens'))
      .join()
  }
  const priced = 'price: { input: 1, output: 2 }'
  const keys = `keys: [${key} }]`
  for (const [limit, organization] of [
    ['daily_spend_usd', `plan: custom, limits: { daily_spend_usd: 5 }, ${keys}`],
    ['max_request_tokens', `plan: custom, limits: { max_request_tokens: 500 }, ${keys}`],
    ['max_request_usd', `plan: custom, keys: [${key}, limits: { max_request_usd: 1 } }]`],
    ['monthly_spend_usd', `plan: tier1, ${keys}`],
  ] as const) {
    assert.match(
      await warned(priced, organization),
      new RegExp(`a has no max_output_tokens, and ${limit} of organization acme sets the output cap`),
    )
    assert.equal(await warned(`${priced}, max_output_tokens: 100`, organization), '')
    assert.equal(await warned(priced, organization, 'simulator'), '')
  }
  assert.equal(await warned(priced, `plan: custom, ${keys}`), '', 'no limit')
  assert.equal(await warned(priced, `plan: custom, limits: { daily_spend_usd: 0 }, ${keys}`), '', 'a cap of 0 refuses')
  assert.equal(
    await warned(priced, `plan: custom, billing: free, limits: { daily_spend_usd: 5 }, ${keys}`),
    '',
    'costs nothing',
  )
  assert.equal(
    await warned(priced, `plan: custom, limits: { daily_spend_usd: 5, max_output_tokens: 9 }, ${keys}`),
    '',
    'capped',
  )
})

test('a fault in one entry hides nothing in the others, and is not told twice', async () => {
  const { errors } = await loadText(
    small({
      providers: 'providers:\n  local: { dialect: gemini, base_url: simulator }\n  bad: { dialect: gemini }',
      models:
        'models:\n  a: { context_window: 9, backends: [{ provider: bad, model: m }] }\n  b: { context_window: x, backends: [{ provider: nil, model: m }] }',
      o: 'organizations: { a: { plan: tier1, models: [b] } }',
    }),
  )
  assert.deepEqual(
    errors?.map(e => `${e.line}`),
    ['8', '11'],
    lines(errors).join('\n'),
  )
})

test('the old name of scale_limits_above works, and says so; both names are an error', async () => {
  const { config, warnings } = await loadText(small({ s: 'platform: { compress_above: 0.5 }' }))
  assert.equal(config!.platform.scale_limits_above, 0.5)
  assert.match(lines(warnings).join(), /compress_above is called scale_limits_above now; rename it/)
  const { errors } = await loadText(small({ s: 'platform: { compress_above: 0.5, scale_limits_above: 0.6 }' }))
  assert.match(lines(errors).join(), /scale_limits_above is set, too/)
})
