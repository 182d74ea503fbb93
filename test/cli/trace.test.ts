/** `sluice trace`: one request from the memory of its gateway, from the log and from the ledger, each also alone. */
import assert from 'node:assert/strict'
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { openLog } from '../../cli/log.ts'
import { StoreSlow } from '../../core/canon/errors.ts'
import { requestId, requestIdTime } from '../../core/tools/ids.ts'
import { defaultYaml, sha256, startGateway } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'
import { startFakeUpstream } from '../fake-upstream/server.ts'
import { sluice } from './capture.ts'

test('a request id holds the time when it was made; other texts hold none', t => {
  const now = Date.UTC(2026, 10, 23)
  t.mock.timers.enable({ apis: ['Date'], now })
  assert.equal(requestIdTime(requestId()), now)
  for (const text of ['', 'req_', 'req_abc', `x${requestId()}`, `${requestId()}0`, requestId().replace(/.$/, "'")])
    assert.equal(requestIdTime(text), undefined, text)
})

test('trace: outcome, backends, limits, tokens, bill and plugins of a request; each source also without the others', async t => {
  const failing = await startFakeUpstream(turn =>
    turn.answer(500, { error: { type: 'server_error', code: 'broken', message: 'a secret word' } }),
  )
  const dir = mkdtempSync(join(tmpdir(), 'sluice-trace-'))
  t.after(async () => {
    await failing.close()
    rmSync(dir, { recursive: true })
  })
  const logFile = join(dir, 'log')
  const descriptor = openSync(logFile, 'w')
  const log = openLog({ level: 'debug', bodies: false }, { descriptor })
  const store = `sqlite:${join(dir, 'store.db')}`
  const file = join(dir, 'gateway.yaml')
  const g = await startGateway({
    gateway: { log },
    yaml: url => {
      const yaml = defaultYaml(url, {
        organization: '    limits: { requests_per_minute: 60 }\n',
        providers: `  bad: { dialect: openai-chat, base_url: "${failing.url}" }
  good: { dialect: openai-chat, base_url: "${url}" }`,
        models: `  eb1-preview: { context_window: 400000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: bad, model: a }, { provider: good, model: b }] }`,
      }).replace('sqlite::memory:', store)
      writeFileSync(file, yaml)
      return yaml
    },
  })
  const admin = g.gateway.adminAddress!
  let id: string
  let refused: string
  try {
    const body = { model: 'eb1-preview', messages: [{ role: 'user', content: 'Hello' }] }
    const reply = await g.post('/v1/chat/completions', body)
    await reply.text()
    id = reply.headers.get('x-request-id')!
    const wrong = await g.post('/v1/chat/completions', { ...body, tempreature: 1 })
    await wrong.text()
    refused = wrong.headers.get('x-request-id')!
    await eventually(() => g.gateway.ingress.running.size === 0)
    await g.gateway.store.ledger.flush()
    log.flush()

    const whole = await sluice('trace', id, file, '--admin', admin, '--log', logFile)
    assert.equal(whole.code, 0, whole.err)
    assert.match(whole.out, /^outcome +200 completed$/m)
    assert.match(whole.out, /^caller +acme, key key_test$/m)
    assert.match(whole.out, /^backend +bad\/a failed after .*: upstream_server_error; it\s+answered 500/m)
    assert.match(whole.out, /^backend +good\/b answered$/m)
    assert.match(whole.out, /^reserved +\d+ tokens in, \d+ out, at most \$0\.\d+$/m)
    assert.match(whole.out, /^limit +org: 59 of 60 requests per minute left$/m)
    assert.match(whole.out, /^tokens +\d+ in, \d+ out/m)
    assert.match(whole.out, /^bill +\$0\.\d+, standard, price book test-1$/m)
    assert.match(whole.out, /^ +at .* ms +.* ms +auth +onRequest$/m)
    assert.doesNotMatch(whole.out, /not found|a secret word/)
    for (const line of whole.out.split('\n')) assert.ok(line.length <= 80, line)

    const json = JSON.parse((await sluice('trace', id, file, '--admin', admin, '--log', logFile, '--json')).out)
    assert.equal(json.memory.id, id)
    assert.equal(json.ledger.request_id, id)
    assert.deepEqual(json.log.map(({ msg }: { msg: string }) => msg).sort(), ['attempt failed', 'exchange', 'trace'])
    assert.deepEqual(json.missing, {})

    const unadmitted = await sluice('trace', refused, file, '--admin', admin)
    assert.match(unadmitted.out, /^outcome +400 refused \(unknown_parameter at tempreature\)$/m)
    assert.match(unadmitted.out, /^next +Remove the member/m)
    assert.doesNotMatch(unadmitted.out, /^(alike|limit)/m)
    for (let i = 0; i < 2; i++) await (await g.post('/v1/chat/completions', { ...body, tempreature: 1 })).text()
    assert.match((await sluice('trace', refused, file, '--admin', admin)).out, /^alike +1 of 3 of this caller/m)
    assert.match(unadmitted.out, /^ +ledger +no row: it was not admitted/m)
  } finally {
    await g.close()
    await log.close()
    closeSync(descriptor)
  }

  // The gateway has gone. Its log, with what docker compose writes before a line, says the same.
  writeFileSync(logFile, readFileSync(logFile, 'utf8').replace(/^/gm, 'sluice-1  | '))
  const later = await sluice('trace', id, file, '--admin', admin, '--log', logFile)
  assert.match(later.out, /^backend +bad\/a failed: upstream_server_error; it answered 500/m)
  assert.match(later.out, /^backend +good\/b answered$/m)
  assert.match(later.out, /^limit +org: 59 of 60 requests per minute left$/m)
  assert.match(later.out, /^ +at .* ms +.* ms +auth +onRequest$/m)
  assert.match(later.out, /^ +memory +http.* does not answer: ECONNREFUSED$/m)
  const ledgerOnly = await sluice('trace', id, file, '--admin', admin)
  assert.match(ledgerOnly.out, /^outcome +completed$/m)
  assert.match(ledgerOnly.out, /^bill +\$0\.\d+, standard, price book test-1$/m)

  const unknown = await sluice('trace', requestId(), file, '--admin', admin, '--log', logFile)
  assert.equal(unknown.code, 1)
  assert.match(
    unknown.err,
    /nothing is known of req_\w+, which a gateway gave out at 20.*\n {2}log: no line has this id/,
  )
  for (const args of [[], ['nonsense', file]]) assert.equal((await sluice('trace', ...args)).code, 2)
})

test('trace: a refusal says by which limit, also when a flood of others has come since', async t => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-trace-'))
  t.after(() => rmSync(dir, { recursive: true }))
  const file = join(dir, 'gateway.yaml')
  const g = await startGateway({
    yaml: url => {
      const yaml = defaultYaml(url, { organization: '    limits: { requests_per_day: 1 }\n' })
      writeFileSync(file, yaml)
      return yaml
    },
  })
  t.after(() => g.close())
  const body = { model: 'eb1-preview', messages: [{ role: 'user', content: 'Hello' }] }
  const ask = async (headers?: Record<string, string>) => {
    const response = await g.post('/v1/chat/completions', body, headers)
    await response.text()
    return [response.status, response.headers.get('x-request-id')!] as const
  }
  assert.equal((await ask())[0], 200)
  const [status, id] = await ask()
  assert.equal(status, 429)
  for (let i = 0; i < 250; i++) assert.equal((await ask({ authorization: 'Bearer sk-stranger' }))[0], 401)
  const [, stranger] = await ask({ authorization: 'Bearer sk-stranger' })
  await eventually(() => g.gateway.ingress.running.size === 0)
  const { out } = await sluice('trace', id, file, '--admin', g.gateway.adminAddress!)
  assert.match(out, /^outcome +429 refused \(requests_limit_exceeded\)$/m)
  assert.match(out, /^cause +the organization: 1 requests per day \(requests_per_day\)$/m)
  assert.match(out, /^caller +acme, key key_test$/m)
  const line = g.log.find(({ message, fields }) => message === 'exchange' && fields.request_id === id)!
  assert.equal(line.fields.cause, 'the organization: 1 requests per day (requests_per_day)')
  const other = await sluice('trace', stranger, file, '--admin', g.gateway.adminAddress!)
  assert.match(other.out, /^outcome +401 refused \(invalid_api_key\)$/m)
  assert.match(other.out, /^alike +1 of 251 of this caller/m)
  assert.match(other.out, /^client +127\.0\.0\.1, of no organization that is known$/m)
})

// `init` leaves max_output_tokens to the operator where nobody knows it. Each request of a prepaid organization was refused,
// "which is not offered", and nothing that an operator looks at said why.
test('trace names the cause where a model of the file is not available to a prepaid organization', async t => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-trace-'))
  t.after(() => rmSync(dir, { recursive: true }))
  const file = join(dir, 'gateway.yaml')
  const g = await startGateway({
    yaml: url => {
      const yaml = defaultYaml(url).replace('sqlite::memory:', `sqlite:${join(dir, 'store.db')}`)
      writeFileSync(file, yaml)
      return yaml
    },
  })
  t.after(() => g.close())
  const made = await sluice('org', 'create', 'goldy', 'plan=tier1', 'billing=prepaid', '--key', '--config', file)
  assert.equal(made.code, 0, made.err)
  const key = made.out.trim().split('\n').at(-1)!
  const ask = async (model: string) => {
    const messages = [{ role: 'user', content: 'Hi' }]
    const reply = await g.post('/v1/chat/completions', { model, messages }, { authorization: `Bearer ${key}` })
    const { error }: any = await reply.json()
    return { status: reply.status, message: error?.message, id: reply.headers.get('x-request-id')! }
  }
  await eventually(async () => (await ask('eb1-fast-preview')).status === 403)
  const { id, message } = await ask('eb1-fast-preview')
  assert.match(
    message,
    /not available to this organization: the most that it writes is not configured\. Ask the operator/,
  )
  const told = await sluice('trace', id, file, '--admin', g.gateway.adminAddress!)
  assert.match(told.out, /^model +eb1-fast-preview, which is not offered to this caller$/m)
  assert.match(
    told.out.replace(/\s+/g, ' '),
    / cause eb1-fast-preview has no max_output_tokens, so a prepaid organization cannot/,
  )
})

// With named tokens alone, which the page on the admin API recommends, trace was answered 401 and had no way to give a
// token.
test('trace: a token of the admin listener comes from the command, the environment or the file', async t => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-trace-'))
  t.after(() => rmSync(dir, { recursive: true }))
  const file = join(dir, 'gateway.yaml')
  const token = 'adm-0123456789abcdef'
  const own = 'the-own-token-0001'
  let text = ''
  const g = await startGateway({
    yaml: url => {
      const named = `tokens: [{ name: ops, role: read, sha256: "${sha256(token)}" }]`
      text = defaultYaml(url).replace('admin: 127.0.0.1:0', `admin: { listen: 127.0.0.1:0, token: ${own}, ${named} }`)
      writeFileSync(file, text.replace(` token: ${own},`, ''))
      return text
    },
  })
  t.after(() => g.close())
  const reply = await g.post('/v1/chat/completions', {
    model: 'eb1-preview',
    messages: [{ role: 'user', content: 'Hi' }],
  })
  await reply.text()
  await eventually(() => g.gateway.ingress.running.size === 0)
  const trace = (...more: string[]) =>
    sluice('trace', reply.headers.get('x-request-id')!, file, '--admin', g.gateway.adminAddress!, ...more)
  const environment = process.env['SLUICE_ADMIN_TOKEN']
  t.after(() => {
    if (environment === undefined) delete process.env['SLUICE_ADMIN_TOKEN']
    else process.env['SLUICE_ADMIN_TOKEN'] = environment
  })
  delete process.env['SLUICE_ADMIN_TOKEN']

  const without = await trace()
  assert.equal(without.code, 1)
  assert.match(
    without.err,
    /answered 401: it needs a token\. Give one by --token or SLUICE_ADMIN_TOKEN; the file has digests of its tokens \(ops\), and a digest is no token$/m,
  )
  assert.match(
    (await trace('--token', sha256(token))).err,
    /--token is the digest of the token ops\. Give the token itself/,
  )
  assert.match(
    (await trace('--token', 'adm-other')).err,
    /--token is no token of this listener\. Give another; the file has/,
  )
  assert.equal((await trace('--token', 'two words')).code, 2)

  const given = await trace('--token', token)
  assert.equal(given.code, 0, given.err)
  assert.match(given.out, /^outcome +200 completed$/m)
  process.env['SLUICE_ADMIN_TOKEN'] = token
  assert.equal((await trace()).code, 0)
  // The command comes first.
  assert.match((await trace('--token', 'adm-other')).err, /--token is no token/)
  process.env['SLUICE_ADMIN_TOKEN'] = 'adm-stale'
  assert.match((await trace()).err, /SLUICE_ADMIN_TOKEN is no token of this listener/)
  delete process.env['SLUICE_ADMIN_TOKEN']
  writeFileSync(file, text)
  assert.equal((await trace()).code, 0, 'admin.token of the file')
})

/** It said "failed after 1.46 ms: provider_unavailable"; why stood in the log alone, and a cut stream "answered 200". */
test('trace says why an attempt failed where the provider did not: no connection, a name that is wrong, a cut reply', async t => {
  const cut = await startFakeUpstream(async turn => {
    const { events } = await turn.open()
    await turn.chunk(events[0]!)
    await turn.reset()
  })
  const gone = await startFakeUpstream()
  await gone.close()
  const locked = await startFakeUpstream(turn => turn.answer(401, { error: { type: 'invalid_request_error' } }))
  t.after(() => Promise.all([cut.close(), locked.close()]))
  const dir = mkdtempSync(join(tmpdir(), 'sluice-trace-why-'))
  t.after(() => rmSync(dir, { recursive: true }))
  const file = join(dir, 'gateway.yaml')
  const model = (provider: string) =>
    `{ context_window: 400000, price: { input: 1, output: 1 }, backends: [{ provider: ${provider}, model: m }] }`
  const g = await startGateway({
    yaml: url => {
      const yaml = defaultYaml(url, {
        providers: `  gone: { dialect: openai-chat, base_url: "${gone.url}" }
  cut: { dialect: openai-chat, base_url: "${cut.url}" }
  locked: { dialect: openai-chat, base_url: "${locked.url}" }`,
        models: `  eb1-preview: ${model('gone')}\n  eb1-fast-preview: ${model('cut')}\n  eb1-efficient-preview: ${model('locked')}`,
        plugins: { upstream: '{ attempts: 1 }' },
      })
      writeFileSync(file, yaml)
      return yaml
    },
  })
  t.after(() => g.close())
  const traced = async (id: string, stream: boolean) => {
    const body = { model: id, stream, messages: [{ role: 'user', content: 'Hello' }] }
    const reply = await g.post('/v1/chat/completions', body)
    await reply.text()
    await eventually(() => g.gateway.ingress.running.size === 0)
    const { out } = await sluice('trace', reply.headers.get('x-request-id')!, file, '--admin', g.gateway.adminAddress!)
    return out.replace(/\s+/g, ' ')
  }
  const refused = await traced('eb1-preview', false)
  assert.match(refused, /gone\/m failed after [\d.]+ ms: provider_unavailable; could not connect: ECONNREFUSED/)
  assert.match(refused, /next Look at the `base_url`, the name and the certificate of provider gone/)
  const broken = await traced('eb1-fast-preview', true)
  assert.match(broken, /it answered 200, and closed the connection before the end of its reply/)
  assert.match(
    await traced('eb1-efficient-preview', false),
    /next Correct the `api_key` or the `auth` of provider locked\./,
  )
  g.gateway.store.limits.admit = () => Promise.reject(new StoreSlow('redis did not answer within 250 ms'))
  const store = await traced('eb1-efficient-preview', false)
  assert.match(store, /cause the store: redis did not answer within 250 ms .*next Look at the store: \/readyz says/)
})
