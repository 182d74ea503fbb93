/**
 * Figures, defaults, statuses and names in docs/ are those of the code. A sentence is written here with the figure taken
 * from the code, and the page has to have it: whoever changes one of them changes both.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { parse } from 'yaml'
import { SERIES } from '../../admin/history.ts'
import { ERRORS } from '../../core/canon/errors.ts'
import { COUNTED } from '../../core/canon/limits.ts'
import { plugins } from '../../plugins/index.ts'
import { dialects } from '../../providers/index.ts'
import { PRESETS } from '../../providers/presets.ts'
import { markOf } from '../../stores/format.ts'
import { STEPS as journal } from '../../stores/journal.ts'
import { STEPS as redis } from '../../stores/redis/format.ts'
import { STEPS as sqlite } from '../../stores/sqlite/schema.ts'
import { pages, ROOT } from './pages.ts'

const texts = new Map(pages.map(({ file, text }) => [file, text.replace(/\s+/g, ' ')]))

/** The value of `const NAME = …` at the beginning of a line: products and shifts of whole numbers and fractions. */
function code(file: string, name: string): number {
  const found = new RegExp(String.raw`^(?:export )?const ${name}(?:: \w+)? = ([\d_.* <]+)$`, 'm').exec(
    readFileSync(join(ROOT, file), 'utf8'),
  )
  assert.ok(found, `${file} has no number ${name}`)
  const product = (text: string) => text.split('*').reduce((all, one) => all * Number(one.replaceAll('_', '')), 1)
  return found[1]!
    .split('<<')
    .map(product)
    .reduce((value, by) => value * 2 ** by)
}

/** The default of an option, as its table in docs/configuration.md has it, which is made from the schema. */
function standard(section: string, key: string): string {
  const reference = pages.find(({ file }) => file === 'docs/configuration.md')!.text
  const table = reference.split(`\n### ${section}\n`)[1]?.split('\n### ')[0] ?? ''
  const row = table.split('\n').find(line => line.startsWith(`| \`${key}\` |`))
  assert.ok(row, `${section} has no ${key}`)
  return row.split(' | ')[2]!.replaceAll('`', '')
}

const plain = (n: number) => n.toLocaleString('en-US')
const seconds = (ms: number) => ms / 1000
const minutes = (ms: number) => ms / 60_000
const kb = (bytes: number) => bytes / 1024
const mb = (bytes: number) => bytes / 1024 ** 2
const word = (n: number) =>
  'none one two three four five six seven eight nine ten'.split(' ')[n] ?? (n === 50 ? 'fifty' : String(n))

const SOCKET = 'http/web-socket.ts'
const NODE = 'http/node/listener.ts'
const SIZE = 'meter/media-size.ts'
const WATCH = 'plugins/extra/runaway/watch.ts'
const BREAKER = 'plugins/upstream/breaker.ts'
const runaway = (key: string) => standard('runaway', key)

/** What pages say, in the order of the pages. */
const SAID: readonly [page: string, sentence: string][] = [
  ['accounts', `at most \`directory: { cache: ${standard('directory', 'cache')} }\``],
  ['accounts', `at most \`directory: { misses: ${standard('directory', 'misses')} }\` such keys a second`],
  ['accounts', `leave memory after ${word(minutes(code('stores/limits/memory.ts', 'IDLE_MS')))} minutes`],
  ['accounts', `They are kept for ${code('stores/notices.ts', 'NOTICE_KEEP_MS') / 86_400_000} days`],
  ['accounts', `Redis keeps the last ${plain(code('stores/notices.ts', 'NOTICES_KEPT'))} or so`],
  ['accounts', `\`check\` advises it above ${plain(code('config/accounts.ts', 'MOST_IN_FILE'))} organizations`],
  ['admin-api', `at most ${mb(code('admin/api.ts', 'MAX_BODY'))} MiB`],
  ['admin-api', `\`since\` and \`until\` lie at most ${code('admin/api.ts', 'MOST_DAYS')} days apart`],
  ['compaction', `at most ${plain(code('surfaces/messages/management.ts', 'COMPACT_ABOVE'))} tokens`],
  [
    'compaction',
    `it is ${word(code('plugins/compaction/index.ts', 'DEFAULT_SHARE') * 5)} fifths of the model's window`,
  ],
  [
    'console-billing',
    `one that is older than ${word(minutes(code('console/billing/stripe.ts', 'TOLERANCE_S') * 1000))} minutes is refused`,
  ],
  [
    'console-billing',
    `some ${word(minutes(code('console/billing/meters.ts', 'SETTLES_MS')))} minutes after the hour is over`,
  ],
  ['console', `within the last ${minutes(code('console/account/index.ts', 'FRESH_MS'))} minutes`],
  ['console', `which lasts ${word(minutes(code('console/playground/key.ts', 'LIFE_MS')))} minutes`],
  [
    'console',
    `It stays open for ${word(code('console/people/memberships.ts', 'INVITATION_LIFE_MS') / 86_400_000)} days`,
  ],
  [
    'dashboard',
    `The hour of charts takes ${Math.round(((8 + 4 * SERIES.length) * code('admin/history.ts', 'HOUR')) / 1000)} KB`,
  ],
  ['dashboard', `The ${word(code('admin/accounts.ts', 'MOST_ORGANIZATIONS'))} busiest; Find looks at all`],
  ['dashboard', `the last ${code('core/ports/store.ts', 'RECENT_ROWS')} exchanges by the ledger`],
  ['debugging', `at most ${kb(code('core/canon/upstream-fault.ts', 'MOST_WORDS'))} KiB and without keys`],
  ['ledger', `waits for its commit, up to ${seconds(code('stores/sqlite/records.ts', 'COMMIT_MS'))} s`],
  [
    'ledger',
    `A disk that commits nothing for ${seconds(code('stores/write-probe.ts', 'LATE_MS'))} s shows in \`/readyz\``,
  ],
  ['ledger', `another one goes on within ${seconds(code('stores/redis/ship.ts', 'LEASE_MS'))} s`],
  ['ledger', `counts as running for ${seconds(code('stores/redis/idempotency.ts', 'IDEMPOTENCY_LEASE_MS'))} s more`],
  ['ledger', `counts as running for ${seconds(code('stores/sqlite/idempotency.ts', 'LEASE_MS'))} s more`],
  [
    'ledger',
    `by more than ${seconds(code('core/tools/clock.ts', 'FOLLOWED_MS'))} s is followed only when it has stood for ${minutes(code('core/tools/clock.ts', 'STANDS_MS'))} minutes`,
  ],
  [
    'ledger',
    `Each key counts ${code('stores/marks.ts', 'MARK_BASE')} bytes and ${word(code('stores/marks.ts', 'MARK_BYTES_PER_CHARACTER'))} for each`,
  ],
  ['limits', `lie at most ${code('plugins/own-usage.ts', 'MOST_DAYS')} days apart`],
  ['limits', `bodies above ${kb(code('plugins/admission/index.ts', 'SMALL_BYTES'))} KB`],
  ['limits', `a name of more than ${code('plugins/shared/tags.ts', 'MOST_CHARACTERS')} characters is always hashed`],
  [
    'listeners',
    `**Heads** of up to ${kb(code('http/safe-header.ts', 'MAX_HEAD_BYTES'))} KB and ${code('http/safe-header.ts', 'MAX_HEADERS')} headers`,
  ],
  [
    'listeners',
    `swallowed for up to ${seconds(code('http/client-exchange.ts', 'LINGER_MS'))} s or ${mb(code('http/client-exchange.ts', 'LINGER_BYTES'))} MB`,
  ],
  ['listeners', `| More than ${code('http/safe-header.ts', 'MAX_HEADERS')} headers |`],
  ['listeners', `A TLS handshake has at most ${seconds(code(NODE, 'HANDSHAKE_TIMEOUT_MS'))} s`],
  ['listeners', `| A head that takes longer than ${seconds(code(NODE, 'HEAD_TIMEOUT_MS'))} s |`],
  ['listeners', `The last ${kb(code('http/uws/cork.ts', 'CORK_BYTES'))} KB of a small answer`],
  ['listeners', `A client's message has at most ${mb(code('http/uws/tunnel.ts', 'TUNNEL_MESSAGE_BYTES'))} MiB`],
  ['listeners', `\`timeout\` (${standard('proxy', 'timeout').replace('s', ' s')} unless set)`],
  ['listeners', `keep-alives (\`keep_alive\`, ${standard('server', 'keep_alive').replace('s', ' s')})`],
  ['media', `${word(code('plugins/media/fetch-media.ts', 'MAX_REDIRECTS'))} at most, each judged like the first URL`],
  ['media', `at most ${word(code('plugins/media/fetch-media.ts', 'AT_ONCE'))} files of a request are fetched at once`],
  ['metering', `from ${plain(code('meter/cache.ts', 'CACHED_FROM'))} characters are recognised by a digest`],
  ['metering', `cache of ${mb(code('meter/count-prompt.ts', 'CACHE_BYTES'))} MiB a process`],
  ['metering', `\`SYNC_LIMIT\` (${plain(code('meter/count-prompt.ts', 'SYNC_LIMIT'))})`],
  [
    'metering',
    `\`image_tokens\` (${standard('token-estimate', 'image_tokens')}) and \`document_tokens\` (${plain(Number(standard('token-estimate', 'document_tokens')))})`,
  ],
  ['metering', `width × height / ${code(SIZE, 'PIXELS_A_TOKEN')}, at most ${plain(code(SIZE, 'MAX_IMAGE'))}`],
  ['metering', `its bytes / ${code(SIZE, 'IMAGE_BYTES_A_TOKEN')}, at most ${plain(code(SIZE, 'MAX_IMAGE'))}`],
  [
    'metering',
    `its bytes / ${code(SIZE, 'PDF_BYTES_A_TOKEN')}: from ${plain(code(SIZE, 'PDF_BYTES_A_TOKEN') * Number(standard('token-estimate', 'document_tokens')))} bytes on`,
  ],
  ['metering', `URLs of media, of at most ${plain(code('surfaces/media.ts', 'MAX_URL'))}`],
  [
    'metering',
    `bodies over ${kb(code('plugins/validation.ts', 'PARSE_HERE'))} KB of many values, and over ${mb(code('plugins/validation.ts', 'PARSE_TEXT_HERE'))} MB of long strings`,
  ],
  ['metering', `| tool definition | ${code('meter/prompt.ts', 'TOOL')} +`],
  ['metering', `| every prompt | ${code('meter/prompt.ts', 'REPLY')} |`],
  ['metrics', `addresses that had sent ${code('admin/callers.ts', 'MOST_WRONG')} in a minute`],
  [
    'metrics',
    `by name (\`server\`, \`models.eb1\`, \`organizations.acme.keys.key_ci\`), at most ${word(code('config/changes.ts', 'MOST'))}`,
  ],
  ['plugins', `at most every ${seconds(code('plugins/extra/jwt-auth.ts', 'COOLDOWN_MS'))} seconds`],
  ['plugins', `it may wait, up to ${seconds(code('core/engine/chain.ts', 'CREATE_MS'))} s`],
  [
    'performance',
    `for requests of ${kb(code('plugins/shared/recent.ts', 'LEAST_BYTES'))} KiB to ${mb(code('plugins/shared/recent.ts', 'MOST_BYTES'))} MiB`,
  ],
  ['security', `\`idempotency.keep\`, ${standard('idempotency', 'keep').replace('h', ' h')}`],
  ['security', `\`conversation.retain\`, ${standard('conversation', 'retain').replace('h', ' h')} from the end`],
  ['security', `\`conversation.continuation\`, ${standard('conversation', 'continuation').replace('h', ' h')}`],
  ['security', `\`server.admin.audit.keep\`, ${standard('server', 'admin.audit.keep').replace('d', ' days')}`],
  ['providers', `and again ${word(minutes(code('providers/auth/refreshed.ts', 'LEAD_MS')))} minutes before it expires`],
  ['providers', `is read again after ${minutes(code('providers/auth/refreshed.ts', 'REREAD_MS'))} minutes`],
  ['providers', `no valid credential within ${seconds(code('providers/auth/refreshed.ts', 'TIMEOUT_MS'))} s`],
  ['providers', `The service is asked again after ${seconds(code('providers/auth/refreshed.ts', 'PAUSE_MS'))} s`],
  ['receipts', `signs ${word(minutes(code('plugins/shared/receipt-keys.ts', 'SIGNS_AFTER_MS')))} minutes later`],
  ['receipts', `among the ${plain(code('stores/rows-page.ts', 'MOST_LOOKED_AT'))} requests`],
  [
    'runaway',
    `| ${runaway('slow_repeats')} repeats that cost ${runaway('slow_usd')} USD | each further repeat waits for \`delay\`, ${runaway('delay').replace('s', ' s')},`,
  ],
  [
    'runaway',
    `| ${runaway('refuse_repeats')} repeats that cost ${runaway('refuse_usd')} USD | the conversation is refused for \`refuse_for\`, ${runaway('refuse_for').replace('m', ' minutes')} |`,
  ],
  ['runaway', `| \`window\` | ${runaway('window').replace('m', ' minutes')} |`],
  ['runaway', `At most ${code('plugins/extra/runaway.ts', 'MOST_WAITING')} requests of an organization wait at a time`],
  [
    'runaway',
    `${plain(code(WATCH, 'MOST_OF_ONE'))} places for each organization and ${plain(code(WATCH, 'MOST'))} in all`,
  ],
  [
    'scaling',
    `at first after ${seconds(code('stores/local.ts', 'FIRST_WAIT_MS'))} s and at most every ${seconds(code('stores/local.ts', 'LONGEST_WAIT_MS'))} s`,
  ],
  ['scaling', `only the last ${plain(code('stores/redis/drained.ts', 'DRAIN_TAIL'))} stay in memory`],
  ['upstreams', `A group of more than ${code('plugins/shared/backend-order.ts', 'WIDTH')} members`],
  ['upstreams', `| a line or an event of a stream | ${mb(code('providers/sse.ts', 'SSE_DEFAULT_LIMIT'))} MiB |`],
  [
    'upstreams',
    `with ${code('plugins/translation/attempt.ts', 'EVENT_BYTES')} bytes more for each event | \`max_reply\`, ${standard('upstream', 'max_reply').replace('MiB', ' MiB')} |`,
  ],
  [
    'upstreams',
    `| what comes out of a compressed reply | ${mb(code('plugins/translation/attempt.ts', 'MAX_DECODED'))} MiB |`,
  ],
  ['upstreams', `the head goes out after ${seconds(code('plugins/upstream/stream-limits.ts', 'HEAD_WAIT_MS'))} s`],
  ['upstreams', `It opens for ${word(seconds(code('plugins/upstream/circuit.ts', 'FIRST_OPEN_MS')))} second`],
  ['upstreams', `at most ${word(code(BREAKER, 'MAX_REST'))} times \`open_for\``],
  [
    'upstreams',
    `up to ${seconds(code('plugins/upstream/trials.ts', 'TRIAL_MS')) * 2 ** code(BREAKER, 'MAX_DOUBLINGS')} s, as long as others call too`,
  ],
  [
    'upstreams',
    `${seconds(code('plugins/upstream/held.ts', 'HELD_MS'))} s, and ${plain(code('plugins/upstream/held.ts', 'MAX_HELD'))} requests for each backend`,
  ],
  ['upstreams', `A breaker remembers at most ${plain(code(BREAKER, 'MAX_ORGANIZATIONS'))} organizations`],
  ['upstreams', `Idle connections are closed after ${seconds(code('plugins/upstream/pools.ts', 'KEEP_ALIVE_MS'))} s`],
  ['upstreams', `at most ${seconds(code('plugins/upstream/stream-limits.ts', 'DRAIN_MS'))} s, to get the usage report`],
  [
    'web-search',
    `takes over ${seconds(code('plugins/web-search/search.ts', 'SEARCH_MS'))} s (${seconds(code('plugins/web-search/model-search.ts', 'SEARCH_MS'))} s where a model searches)`,
  ],
  ['web-search', `at most ${plain(code('plugins/web-search/model-search.ts', 'MAX_OUTPUT'))} output tokens`],
  ['web-search', `${code('plugins/web-search/search-loop.ts', 'MAX_PER_ROUND')} of them in one round`],
  ['web-search', `A query of more than ${plain(code('plugins/web-search/search-loop.ts', 'MAX_QUERY'))} characters`],
  [
    'websocket',
    `At most ${code(SOCKET, 'MAX_RUNNING')} responses run at once, and a connection knows ${code(SOCKET, 'MAX_LANES')} names of lanes`,
  ],
  [
    'websocket',
    `Beyond that, ${code(SOCKET, 'MAX_WAITING')} requests of ${mb(code(SOCKET, 'MAX_WAITING_BYTES'))} MiB together may wait`,
  ],
  ['websocket', `it keeps the newest ${mb(code('plugins/conversation/memory.ts', 'CONNECTION_BYTES'))} MiB`],
  ['websocket', `| ${minutes(code(SOCKET, 'MAX_AGE_MS'))} minutes |`],
  ['websocket', `closed with code ${code(SOCKET, 'TRY_AGAIN_LATER')}, or without one`],
  ['websocket', `then close code ${code(SOCKET, 'SERVICE_RESTART')}`],
]

test('what pages say in figures is what the code has', () => {
  const wrong = SAID.filter(([page, sentence]) => !texts.get(`docs/${page}.md`)!.includes(sentence))
  assert.deepEqual(
    wrong.map(([page, sentence]) => `docs/${page}.md does not say: ${sentence}`),
    [],
  )
})

test('the page of objectives has the objectives and burn rates of the rules', () => {
  const rules = parse(readFileSync(join(ROOT, 'deploy/prometheus/slo.yml'), 'utf8')).groups.flatMap(
    ({ rules }: any) => rules,
  ) as { record?: string; alert?: string; expr: string; labels: Record<string, string> }[]
  const page = texts.get('docs/slo.md')!
  const objectives = rules.filter(({ record }) => record === 'sluice:objective')
  const shown = [
    ...page.matchAll(/\| (availability|first byte|attempts) \| (model|backend) \|[^|]*\|[^|]*\| ([\d.]+) % \|/g),
  ]
  const names: Record<string, string> = {
    'availability model': 'availability',
    'first byte model': 'first_byte',
    'attempts backend': 'backend_availability',
    'first byte backend': 'backend_first_byte',
  }
  assert.deepEqual(
    shown.map(([, of, by, percent]) => [names[`${of} ${by}`], `vector(${Number((Number(percent) / 100).toFixed(4))})`]),
    objectives.map(({ labels, expr }) => [labels['sli'], expr]),
  )
  // A row has the alerts of the row above where it says "the same".
  let alerts: string[] = []
  const seen: string[] = []
  for (const [, which, rate, long, short] of page.matchAll(
    /\| ((?:\[Sluice|the same)[^|]*) \| ([\d.]+) \| ([^|]+) \| ([^|]+) \|/g,
  )) {
    if (which !== 'the same') alerts = [...which!.matchAll(/\[(\w+)\]/g)].map(found => found[1]!)
    const over = (window: string) => `_${window.replace(' min', 'm').replace(' ', '')} > ${rate} * (1 - `
    for (const alert of alerts) {
      const { expr } = rules.find(rule => rule.alert === alert)!
      assert.ok(
        expr.includes(over(long!)) && expr.includes(over(short!)),
        `${alert}: ${rate} over ${long} and ${short}`,
      )
      seen.push(alert)
    }
  }
  assert.equal(seen.length, 10)
})

test('the page of upgrades ends with the versions of what is stored', () => {
  const page = texts.get('docs/upgrading.md')!
  const most = (pattern: RegExp) => Math.max(...[...page.matchAll(pattern)].map(([, n]) => Number(n)))
  assert.equal(most(/SQLite to version (\d+)/g), markOf(sqlite).version)
  assert.equal(most(/journals to version (\d+)/g), markOf(journal).version)
  assert.equal(most(/PostgreSQL to revision (\d+)/g), code('stores/ship/postgres.ts', 'REVISION'))
  assert.equal(most(/Redis to version (\d+)/g), markOf(redis).version)
})

test('the section of a preset names its variable, and says where max_tokens carries the cap', () => {
  const page = pages.find(({ file }) => file === 'docs/providers.md')!.text
  for (const [name, { variable, of, backend, settings = [] }] of Object.entries(PRESETS)) {
    const section = page.split(`\n### ${name}\n`)[1]!.split('\n#')[0]!.replace(/\s+/g, ' ')
    assert.equal(/\b[Kk]ey in `(\w+)`/.exec(section)?.[1] ?? null, variable, name)
    assert.equal(/`max_tokens` carries the cap/.test(section), backend?.['max_tokens_field'] === 'max_tokens', name)
    const needs = /^ ?Needs ((?:`\w+`(?: and )?)+)/.exec(section)?.[1]
    assert.deepEqual(
      [...(needs ?? '').matchAll(/`(\w+)`/g)].map(found => found[1]!),
      settings,
      name,
    )
    const [address] = Object.values(of).map(members => String(members['base_url']))
    if (address!.startsWith('http:')) assert.ok(section.includes(`At \`${address}\``), name)
  }
})

test('the glossary lists the terminals, dialects and dimensions that there are, and each outcome is on the page of the ledger', () => {
  const glossary = pages.find(({ file }) => file === 'docs/glossary.md')!.text
  const meaning = (word: string) => new RegExp(String.raw`^\| \*\*${word}\*\* \| (.*) \|$`, 'm').exec(glossary)![1]!
  const named = (word: string) => [...meaning(word).matchAll(/`([\w-]+)`/g)].map(found => found[1]!)
  assert.deepEqual(
    named('terminal'),
    plugins.filter(({ terminal }) => terminal).map(({ name }) => name),
  )
  assert.deepEqual(named('dialect'), Object.keys(dialects))
  for (const dimension of Object.keys(COUNTED))
    assert.ok(meaning('dimension').includes(dimension.replaceAll('_', ' ')), dimension)
  const ledger = pages.find(({ file }) => file === 'docs/ledger.md')!.text
  for (const outcome of named('outcome')) assert.ok(ledger.includes(`\`${outcome}\``), outcome)
  const words = [...glossary.matchAll(/^\| (\*\*.*?\*\*[^|]*) \|/gm)].map(found => found[1]!)
  assert.equal(new Set(words).size, words.length, 'one word for one thing')
})

test('the README has the ratios of the benchmarks, and the page of tiers those of the console', () => {
  const bench = readFileSync(join(ROOT, 'bench/README.md'), 'utf8')
  const measured = (of: string) => Number(new RegExp(`requests/s, of ${of} \\|[^|]*\\| ([\\d.]+) `).exec(bench)![1])
  const [portkey, litellm, nginx] = ['portkey', 'litellm', 'nginx'].map(measured) as [number, number, number]
  const said = `${portkey.toPrecision(2)} times the requests of Portkey, ${litellm} times those of LiteLLM, and ${nginx.toFixed(2)} of bare nginx's`
  assert.ok(texts.get('README.md')!.includes(said), said)
  assert.equal(Math.round(1 / nginx), 5)
  assert.match(texts.get('docs/comparison.md')!, /does nearly five times as many requests on a core/)

  const tiers = readFileSync(join(ROOT, 'console/billing/tiers.ts'), 'utf8').matchAll(
    /\{ plan: '(\w+)', name: '([\w ]+)', basis: ([\d_]+), activation: '([\w ]+)' \}/g,
  )
  const rows = Array.from(tiers, ([, plan, name, basis, activation]) => {
    const cents = Number(basis!.replaceAll('_', ''))
    const comes = activation === 'automatic' ? 'by itself' : `after a ${activation}`
    return `| ${name} | \`${plan}\` | ${cents === 0 ? '–' : `$${plain(cents / 100)}`} | ${cents === 0 ? 'at sign-up' : comes} |`
  })
  assert.equal(rows.length, 6)
  for (const row of rows) assert.ok(texts.get('docs/console-billing.md')!.includes(row), row)
})

test('a status before the code of an error is that of the code', () => {
  let checked = 0
  for (const { file, text } of pages)
    for (const [whole, status, name] of text.matchAll(/\b([45]\d\d) \[?`([a-z_]+)`/g)) {
      if (!Object.hasOwn(ERRORS, name!)) continue
      assert.equal(Number(status), ERRORS[name as keyof typeof ERRORS].status, `${file}: ${whole}`)
      checked++
    }
  assert.ok(checked >= 80, String(checked))
})
