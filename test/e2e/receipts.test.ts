/** Receipts through a listening gateway: what was sent, billed and signed is what `sluice verify` finds. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { main } from '../../cli/main.ts'
import { sluice } from '../cli/capture.ts'
import { defaultYaml, KEY, ShiftedClock, sha256, startGateway, type TestGateway } from './harness.ts'

const LEAD = 'sk-lead-00001-secret'
const folder = mkdtempSync(join(tmpdir(), 'sluice-receipts-'))
const bodies = join(folder, 'bodies')
mkdirSync(bodies)
const clock = new ShiftedClock()

const yaml = (url: string, store = `sqlite:${folder}/data/gateway.db`) =>
  defaultYaml(url, {
    store: `"${store}"`,
    plugins: {
      'usage-capture': '{ tags: { team: { from: header.x-team } } }',
      'web-search': '{ provider: simulator }',
    },
  })
    .replace('admission, translation', 'admission, body-digest, translation')
    .replace(
      '  quote: [',
      '  receipts: [auth, own-receipts, header-stamp]\n  receipt_keys: [receipt-keys, header-stamp]\n  quote: [',
    )
    .replace(
      '\nproviders:',
      `
  - { match: GET /v1/receipts, pipeline: receipts }
  - { match: GET /v1/receipts/*, pipeline: receipts }
  - { match: GET /v1/receipts/keys, pipeline: receipt_keys }
providers:`,
    )
    .replace('\n  other:\n', `\n      - { id: key_lead, sha256: "${sha256(LEAD)}", usage: organization }\n  other:\n`)

let t: TestGateway
before(async () => {
  t = await startGateway({ yaml, gateway: { clock } })
})
after(async () => {
  await t.close()
  rmSync(folder, { recursive: true, force: true })
})

let sent = 0
/** Sends a body, and keeps it. @returns the id of its request */
async function send(path: string, text: string, headers: Record<string, string> = {}, keep = true): Promise<string> {
  const response = await t.post(path, text, headers)
  const said = await response.text()
  assert.equal(response.status, 200, said)
  if (keep) writeFileSync(join(bodies, `${++sent}.json`), text)
  return response.headers.get('x-request-id')!
}
const get = (path: string, key = LEAD) => fetch(`${t.url}${path}`, { headers: { authorization: `Bearer ${key}` } })
const month = () => new Date(clock.now()).toISOString().slice(0, 7)

/** Fetches the statement and the keys as a customer does, and verifies them. */
async function verify(name: string, ...more: string[]) {
  const file = join(folder, `${name}.jsonl`)
  await t.ledger()
  writeFileSync(join(folder, 'receipt-keys.json'), await (await fetch(`${t.url}/v1/receipts/keys`)).text())
  writeFileSync(file, await (await get(`/v1/receipts?month=${month()}`)).text())
  const [out, err]: string[][] = [[], []]
  const code = await main(['verify', file, ...more], {
    out: text => void out!.push(text),
    err: text => void err!.push(text),
    columns: undefined,
  })
  return { code, out: out!.join('\n'), err: err!.join('\n'), file }
}

test('a receipt has the digest of what was sent, the counts of the reply and the cost of the row, on each API', async () => {
  for (const [path, body] of [
    ['/v1/chat/completions', { messages: [{ role: 'user', content: 'Grüße' }] }],
    ['/v1/chat/completions', { messages: [{ role: 'user', content: 'Hello' }], stream: true }],
    ['/v1/responses', { input: 'Hello', store: false }],
    ['/v1/messages', { max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }], stream: true }],
  ] as const) {
    const text = ` ${JSON.stringify({ model: 'eb1-preview', ...body }, null, 1)}\n`
    const id = await send(path, text, { 'x-team': 'blue' })
    const response = await get(`/v1/receipts/${id}`)
    const receipt = (await response.json()) as any
    assert.equal(response.status, 200)
    const row = (await t.ledger()).find(({ request_id }) => request_id === id)!
    assert.equal(receipt.body_sha256, createHash('sha256').update(text).digest('hex'))
    assert.deepEqual(
      [receipt.usage.input_tokens, receipt.usage.output_tokens, receipt.cost_nano_usd, receipt.tags],
      [row.input, row.output, row.cost, { team: 'blue' }],
    )
    assert.ok(receipt.cost_nano_usd > 0)
    assert.deepEqual([receipt.organization, receipt.key, receipt.price.book], ['acme', 'key_test', 'test-1'])
    for (const [key, status] of [
      [KEY, 200],
      ['sk-other-0001-secret', 404],
      ['sk-nobody', 401],
    ] as const)
      assert.equal((await get(`/v1/receipts/${id}`, key)).status, status)
  }
})

test('what agents send is counted again as it was billed', async () => {
  const read = (path: string) =>
    readdirSync(new URL(path, import.meta.url))
      .filter(name => name.endsWith('.json'))
      .map(name => ({ name, json: JSON.parse(readFileSync(new URL(path + name, import.meta.url), 'utf8')) }))
  for (const { json } of read('./fixtures/')) {
    const { 'accept-encoding': _, ...headers } = json.headers
    await send(json.path, JSON.stringify({ ...json.body, model: 'eb1-fast-preview' }), headers)
  }
  for (const { name, json } of read('../surfaces/fixtures/'))
    if (!name.includes('count-tokens'))
      await send('/v1/messages', JSON.stringify({ ...json, model: 'eb1-fast-preview' }), {
        'anthropic-version': '2023-06-01',
      })
  const { code, out, err } = await verify('agents', '--bodies', bodies)
  assert.equal(code, 0, err)
  assert.match(out, /^Each receipt is as it was signed, and they add up\.\nNone is missing of what had ended by /m)
  assert.doesNotMatch(out, /no receipt is of this body/)
  const [, agreeing, all] = /(\d+) of (\d+) bodies were counted as they were billed/.exec(out)!.map(Number)
  assert.equal(all, sent)
  assert.equal(agreeing, all, out)
})

test('a statement of a key has its own receipts; that of another organization has none of these', async () => {
  const lines = async (key: string) =>
    (await (await get(`/v1/receipts?month=${month()}`, key)).text())
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line))
  const own = await lines(KEY)
  assert.deepEqual([own[0].key, own.length - 2], ['key_test', sent])
  assert.equal((await lines('sk-other-0001-secret')).length, 2)
  assert.equal((await lines(LEAD))[0].key, null)
})

test('a row that the operator changed afterwards is found by whoever kept the statement, and the new one says so', async () => {
  const { file } = await verify('before')
  const [, first] = readFileSync(file, 'utf8').split('\n')
  const { receipt } = JSON.parse(first!)
  const changed = readFileSync(file, 'utf8').replace(
    `"request_id":"${receipt.request_id}","time":"${receipt.time}"`,
    `"request_id":"${receipt.request_id}","time":"${receipt.time.replace(/.Z$/, '9Z').replace(/9Z$/, receipt.time.endsWith('9Z') ? '8Z' : '9Z')}"`,
  )
  writeFileSync(file, changed)
  const err: string[] = []
  const code = await main(['verify', file], { out() {}, err: text => void err.push(text), columns: undefined })
  assert.equal(code, 1)
  assert.match(err.join('\n'), new RegExp(`line 2, ${receipt.request_id}: it was changed`))
})

test('keys are beside the database, rotate while the gateway serves, and what was signed before stays good', async () => {
  const keys = join(folder, 'data/receipt-keys')
  assert.deepEqual(readdirSync(keys), ['first.pem'])
  assert.equal(statSync(join(keys, 'first.pem')).mode & 0o777, 0o600)
  const published = async () =>
    ((await (await fetch(`${t.url}/v1/receipts/keys`)).json()) as any).keys.map(({ kid }: any) => kid)
  const [first] = await published()
  const id = await send('/v1/chat/completions', '{"model":"eb1-preview","messages":[{"role":"user","content":"x"}]}')
  const old = (await (await get(`/v1/receipts/${id}`)).json()) as any
  const said = await sluice('receipts', 'rotate', t.file)
  assert.equal(said.code, 0, said.err)
  assert.match(said.out, /is published within a minute, and signs five minutes later/)
  clock.shift += 61_000
  const [second, ...others] = await published()
  assert.deepEqual(others, [first])
  for (const name of readdirSync(keys)) {
    const time = statSync(join(keys, name)).mtimeMs / 1000 - 400
    utimesSync(join(keys, name), time, time)
  }
  clock.shift += 61_000
  const now = (await (await get(`/v1/receipts/${id}`)).json()) as any
  assert.deepEqual([old.signature.key, now.signature.key], [first, second])
  const { code, err } = await verify('rotated')
  assert.equal(code, 0, err)
  writeFileSync(join(folder, 'old.json'), JSON.stringify(old))
  assert.equal(await main(['verify', join(folder, 'old.json')], { out() {}, err() {}, columns: undefined }), 0)
})

test('`sluice statement` makes the same of the ledger as the gateway answers', async () => {
  await t.ledger()
  const receiptsOf = (text: string) =>
    text
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line))
      .flatMap(line => (line.receipt ? [{ ...line.receipt, signature: null }] : []))
  const { file } = await verify('served')
  const made = await sluice('statement', t.file, '--org', 'acme', '--month', month())
  assert.equal(made.code, 0, made.err)
  assert.deepEqual(receiptsOf(made.out), receiptsOf(readFileSync(file, 'utf8')))
  writeFileSync(join(folder, 'made.jsonl'), `${made.out}\n`)
  assert.equal(await main(['verify', join(folder, 'made.jsonl')], { out() {}, err() {}, columns: undefined }), 0)
  const own = await sluice('statement', t.file, '--org', 'acme', '--key', 'key_lead', '--month', month())
  assert.deepEqual(receiptsOf(own.out), [])
  assert.match((await sluice('statement', t.file, '--org', 'acme', '--month', 'x')).err, /--month takes a UTC month/)
  assert.match((await sluice('statement', t.file, '--month', month())).err, /--org names the organization/)
})

test('a request without body-digest has a receipt without a digest, and a file without receipts has no routes', async () => {
  const plain = await startGateway({ yaml: url => yaml(url, 'sqlite::memory:').replace('body-digest, ', '') })
  try {
    const response = await plain.post('/v1/chat/completions', {
      model: 'eb1-preview',
      messages: [{ role: 'user', content: 'x' }],
    })
    await response.text()
    const receipt = (await (
      await fetch(`${plain.url}/v1/receipts/${response.headers.get('x-request-id')}`, {
        headers: { authorization: `Bearer ${KEY}` },
      })
    ).json()) as any
    assert.equal(receipt.body_sha256, null)
    assert.ok(receipt.signature.value)
  } finally {
    await plain.close()
  }
  const none = await startGateway()
  try {
    assert.equal((await fetch(`${none.url}/v1/receipts/keys`)).status, 404)
  } finally {
    await none.close()
  }
})

test('gateways that share a Redis have to name their keys', async () => {
  const { load } = await import('../../cli/load.ts')
  const file = join(folder, 'shared.yaml')
  const faults = async (more: string) => {
    writeFileSync(file, yaml('http://127.0.0.1:1', 'redis://127.0.0.1:1') + more)
    return (await load(file)).errors?.map(({ message }) => message) ?? []
  }
  const [own, keys, ...others] = await faults('')
  assert.deepEqual(others, [])
  assert.match(
    own!,
    /^own-receipts: gateways that share this store have to sign with the same keys: list them in receipts\.keys, or name a folder/,
  )
  assert.match(keys!, /^receipt-keys: /)
  assert.deepEqual(await faults('receipts: { folder: ./keys }\n'), [])
  assert.deepEqual(await faults('receipts: { keys: ["x"] }\n'), [])
  assert.match(
    (await faults('receipts: { keys: ["x"], folder: ./keys }\n'))[0]!,
    /name a folder or list keys, and not both/,
  )
})
