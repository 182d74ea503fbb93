/**
 * What is left of a provider's refusal when the exchange is over. The cause of an upstream 400 was a string, which the
 * log dropped: the line said `"err":{"type":"string"}`, named neither status nor backend, and nobody could find out
 * what the provider had not liked.
 */
import assert from 'node:assert/strict'
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { type LogSettings, openLog } from '../../cli/log.ts'
import { prettyLine } from '../../cli/pretty.ts'
import { toldIn, toldInBody } from '../../providers/told.ts'
import { startGateway, type TestGateway } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'
import { startFakeUpstream } from '../fake-upstream/server.ts'

const PROVIDER_KEY = 'key-of-the-provider-1234'
/** What each dialect's provider says of a request that it does not take. Prompt and key are quoted, as providers do. */
const quote = 'You sent "the prompt" with the key key-of-the-provider-1234.'
const REFUSALS: Record<string, { path: string; body: object; told: object }> = {
  'openai-chat': {
    path: '/chat/completions',
    body: { error: { message: quote, type: 'invalid_request_error', code: 'unsupported_value', param: 'messages[0]' } },
    told: { type: 'invalid_request_error', code: 'unsupported_value', param: 'messages[0]' },
  },
  'openai-responses': {
    path: '/responses',
    body: { error: { message: quote, type: 'invalid_request_error', code: null, param: 'input' } },
    told: { type: 'invalid_request_error', param: 'input' },
  },
  'anthropic-messages': {
    path: '/messages',
    body: { type: 'error', error: { type: 'invalid_request_error', message: quote } },
    told: { type: 'invalid_request_error' },
  },
  gemini: {
    path: 'enerateContent',
    body: [
      {
        error: {
          code: 400,
          message: quote,
          status: 'INVALID_ARGUMENT',
          details: [{ fieldViolations: [{ field: 'contents[0].parts', description: quote }] }],
        },
      },
    ],
    told: { type: 'INVALID_ARGUMENT', code: '400', param: 'contents[0].parts' },
  },
}
const NAMES = Object.keys(REFUSALS)

/**
 * A gateway whose providers answer with what `REFUSALS` says; its log lines, and the records that the dashboard is fed.
 */
async function refused(settings: Omit<LogSettings, 'level'>, use: (g: TestGateway) => Promise<void>) {
  const upstream = await startFakeUpstream(turn => {
    const { path } = turn.request
    if (path.startsWith('/down')) return turn.answer(503, 'no words')
    if (path.startsWith('/frame'))
      return turn.stream(
        'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n' +
          `data: {"error":{"type":"server_error","code":"oops","message":${JSON.stringify(quote)}}}\n\n`,
      )
    return turn.answer(400, Object.values(REFUSALS).find(refusal => path.includes(refusal.path))!.body)
  })
  const { url } = upstream
  const folder = mkdtempSync(join(tmpdir(), 'sluice-fault-'))
  const descriptor = openSync(join(folder, 'log'), 'w')
  const log = openLog({ level: 'info', ...settings }, { descriptor })
  const model = (name: string, ...backends: string[]) =>
    `  ${name}: { context_window: 400000, price: { input: 1, output: 1 }, backends: [${backends.map(provider => `{ provider: ${provider}, model: m }`).join(', ')}] }`
  const g = await startGateway({
    providers: [
      ...NAMES.map(name => `  ${name}: { dialect: ${name}, base_url: "${url}", api_key: "${PROVIDER_KEY}" }`),
      `  down: { dialect: openai-chat, base_url: "${url}/down", api_key: "${PROVIDER_KEY}" }`,
      `  frame: { dialect: openai-chat, base_url: "${url}/frame", api_key: "${PROVIDER_KEY}" }`,
    ].join('\n'),
    models: [
      ...NAMES.map(name => model(name, name)),
      model('frame', 'frame'),
      model('both', 'down', 'openai-chat'),
    ].join('\n'),
    gateway: { log },
  })
  try {
    await use(g)
    await eventually(() => g.gateway.ingress.running.size === 0)
    const feed = await fetch(`${g.gateway.adminAddress}/feed`)
    const reader = feed.body!.pipeThrough(new TextDecoderStream()).getReader()
    let fed = ''
    while (!fed.includes('\n\n')) fed += (await reader.read()).value
    await reader.cancel()
    await log.close()
    const text = readFileSync(join(folder, 'log'), 'utf8')
    return {
      text,
      fed,
      lines: text
        .trimEnd()
        .split('\n')
        .map(line => JSON.parse(line)),
      records: JSON.parse(fed.slice('data: '.length, fed.indexOf('\n\n'))).recent,
    }
  } finally {
    await g.close()
    await upstream.close()
    closeSync(descriptor)
    rmSync(folder, { recursive: true })
  }
}

const ask = async (g: TestGateway, model: string, stream = false) => {
  const body = { model, stream, messages: [{ role: 'user', content: 'the prompt' }] }
  await (await g.post('/v1/chat/completions', body)).text()
}

test('the line of an exchange that a provider refused has its status, type, code and param, and the backend', async () => {
  const { lines, records, text, fed } = await refused({ bodies: false, provider_words: false }, async g => {
    for (const name of NAMES) await ask(g, name)
  })
  const exchanges = lines.filter(line => line.msg === 'exchange')
  assert.equal(exchanges.length, NAMES.length)
  for (const [i, name] of NAMES.entries()) {
    const { told } = REFUSALS[name]!
    const { upstream_status, upstream_error, backend } = exchanges[i]
    assert.deepEqual(
      { upstream_status, upstream_error, backend },
      { upstream_status: 400, upstream_error: told, backend: `${name}/m` },
    )
    const attempt = lines.find(line => line.msg === 'attempt failed' && line.backend === `${name}/m`)
    assert.deepEqual([attempt.upstream_status, attempt.upstream_error, attempt.err], [400, told, undefined])
    assert.equal(records[i].backend, `${name}/m`)
    const [failed] = records[i].failed
    assert.deepEqual(
      [failed.backend, failed.status, failed.code, failed.told],
      [`${name}/m`, 400, name === 'anthropic-messages' ? 'upstream_server_error' : 'invalid_value', told],
    )
  }
  // An operator may leave a provider's sentence out: it may quote the prompt.
  for (const all of [text, fed]) assert.doesNotMatch(all, /You sent|the prompt|key-of-the/)
})

test('by itself the log has the words about a request that was refused as faulty, without the key, and no others', async () => {
  const { lines, text, fed } = await refused({ bodies: false }, async g => {
    for (const name of NAMES) await ask(g, name)
    await ask(g, 'frame', true)
  })
  const words = 'You sent "the prompt" with the key [secret].'
  for (const name of NAMES) {
    const own = lines.filter(line => line.backend === `${name}/m`)
    assert.deepEqual(
      own.map(line => [line.msg, line.upstream_error.message]),
      [
        ['attempt failed', words],
        ['exchange', words],
      ],
    )
  }
  const frame = lines.find(line => line.backend === 'frame/m' && line.msg === 'exchange')
  assert.equal(frame.upstream_error.message, undefined)
  assert.doesNotMatch(text, /key-of-the/)
  assert.doesNotMatch(fed, /You sent/)
})

test('with `log: { bodies: true }` the provider’s words are there too, without the key that it quotes', async () => {
  const { lines, fed } = await refused({ bodies: true, provider_words: false }, g => ask(g, 'openai-chat'))
  const line = lines.find(({ msg }) => msg === 'exchange')
  assert.equal(line.upstream_error.message, 'You sent "the prompt" with the key [secret].')
  assert.match(
    prettyLine(JSON.stringify(line), false),
    /upstream 400 invalid_request_error unsupported_value at messages\[0\]: "You sent/,
  )
  // The dashboard promises that it never shows a body.
  assert.doesNotMatch(fed, /You sent/)
})

test('what another backend made of it stays told, and so does an error inside a stream', async () => {
  const { lines, records } = await refused({ bodies: false }, async g => {
    await ask(g, 'both')
    await ask(g, 'frame', true)
  })
  const [both, frame] = lines.filter(line => line.msg === 'exchange')
  assert.deepEqual([both.upstream_status, both.backend], [400, 'openai-chat/m'])
  assert.deepEqual(
    records[0].failed.map((attempt: { backend: string; status: number }) => [attempt.backend, attempt.status]),
    [
      ['down/m', 503],
      ['openai-chat/m', 400],
    ],
  )
  assert.deepEqual(
    [frame.upstream_status, frame.upstream_error, frame.backend],
    [200, { type: 'server_error', code: 'oops' }, 'frame/m'],
  )
})

test('a provider’s words are at most 1 KiB, and a secret is taken out before they are cut', () => {
  const long = toldIn({ message: `${'é'.repeat(508)}${PROVIDER_KEY}${'x'.repeat(5000)}`, code: PROVIDER_KEY })
  long.conceal({ authorization: `Bearer ${PROVIDER_KEY}`, 'content-type': 'application/json' })
  assert.ok(Buffer.byteLength(long.words) <= 1024)
  assert.ok(long.words.endsWith('…'))
  assert.doesNotMatch(long.words, /key-of|\ufffd/)
  assert.equal(long.toJSON().code, '[secret]')
  // Neither the one nor the other is a word of a list.
  assert.deepEqual(
    { ...toldIn({ type: 'a whole sentence', code: 'x'.repeat(200) }).toJSON() },
    {
      type: undefined,
      code: undefined,
      param: undefined,
    },
  )
  for (const odd of [
    'text',
    '',
    'null',
    '[]',
    '[{}]',
    '{"error":null}',
    '{"error":[1]}',
    '{"detail":[{"msg":"m"}]}',
    '7',
  ])
    assert.equal(typeof toldInBody(odd).words, 'string', odd)
  assert.equal(toldInBody('plain text').words, 'plain text')
})
