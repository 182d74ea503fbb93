import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import { folder, sluice, YAML } from './capture.ts'

const TWO = YAML.replace(
  '  local: { dialect: openai-chat, base_url: simulator }',
  `  local: { dialect: openai-chat, base_url: simulator }
  far: { dialect: anthropic-messages, base_url: "https://far.example/v1", api_key: sk-very-secret, headers: { x-pass: blue, x-upstream-token: hush } }`,
).replace(
  'backends: [{ provider: local, model: m }]',
  'backends: [{ provider: local, model: m, supports: [tools] }, { provider: far, model: claude-sonnet-4-5 }]',
)

test('[REQ-1] route: the chosen backend, why others were passed, the upstream request without its secrets, estimate and limits', async t => {
  const { dir, file } = folder(t, TWO)
  const body = join(dir, 'body.json')
  writeFileSync(
    body,
    JSON.stringify({
      messages: [
        { role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } }] },
      ],
      max_tokens: 50,
    }),
  )
  const { code, out } = await sluice('route', file, '--model', 'eb1-preview', '--body', body)
  assert.equal(code, 0, out)
  assert.match(out, /^chosen +far\/claude-sonnet-4-5$/m)
  assert.match(out, /^passed +local\/m: it can't carry .*image/m)
  assert.match(out, /^POST https:\/\/far\.example\/v1\/messages$/m)
  assert.match(out, /^estimate +\d+ tokens in, 50 reserved/m)
  assert.match(out, /org: \d+ requests per minute/)
  assert.match(out, /x-pass: \(redacted\)/)
  assert.match(out, /"max_tokens": 50/)
  assert.doesNotMatch(out, /sk-very-secret|hush|blue/)

  const json = JSON.parse((await sluice('route', file, '--model', 'eb1-preview', '--body', body, '--json')).out)
  assert.deepEqual(json.candidates, ['far/claude-sonnet-4-5'])
  assert.equal(json.request.headers['x-api-key'], '(redacted)')
})

test('route: a long text is shown as it would be sent', async t => {
  const { dir, file } = folder(t)
  const body = join(dir, 'body.json')
  const content = 'a long text, '.repeat(8000)
  writeFileSync(body, JSON.stringify({ messages: [{ role: 'user', content }] }))
  const { out } = await sluice('route', file, '--model', 'eb1-preview', '--body', body, '--json')
  assert.deepEqual(JSON.parse(out).request.body.messages, [{ role: 'user', content }])
})

// The way back ran, too: `otel` posted the trace of an exchange that never was, and own plugins announced it.
test('route: a plugin that may run dry sees the request and nothing of a reply', async t => {
  const { dir, file, read } = folder(t)
  const seen = join(dir, 'seen.txt')
  writeFileSync(seen, '')
  writeFileSync(
    join(dir, 'witness.mjs'),
    `import { appendFileSync } from 'node:fs'
const tell = name => () => void appendFileSync(${JSON.stringify(seen)}, name + ' ')
export default {
  name: 'witness',
  summary: 'Tells which of its hooks ran.',
  dryRun: 'safe',
  create: () => Object.fromEntries(
    ['onRequest', 'onEvent', 'onResponseHead', 'onResponseEnd', 'onError', 'onSettle', 'close'].map(n => [n, tell(n)]),
  ),
}
`,
  )
  const yaml = read()
    .replace('- routing\n', '- routing\n    - witness\n')
    .replace('version: 1', 'version: 1\nplugins: [./witness.mjs]')
  writeFileSync(file, yaml)
  const body = join(dir, 'body.json')
  writeFileSync(body, JSON.stringify({ messages: [{ role: 'user', content: 'x' }] }))
  const { code, out } = await sluice('route', file, '--model', 'eb1-preview', '--body', body)
  assert.equal(code, 0, out)
  assert.equal(readFileSync(seen, 'utf8'), 'onRequest close ')
})

// It ran the request hooks of all plugins: `moderation-webhook` had sent the prompt when the report said that nothing was.
test('route: a plugin that does not declare that it may run dry is left out and named', async t => {
  const { dir, file, read } = folder(t)
  let asked = 0
  const server = createServer((_, response) => {
    asked++
    response.end('{"results":[{"flagged":true}]}')
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  const { port } = server.address() as AddressInfo
  const line = `- moderation-webhook: { url: "http://127.0.0.1:${port}/v1/moderations" }`
  writeFileSync(file, read().replace('- routing\n', `- routing\n    ${line}\n`))
  const body = join(dir, 'body.json')
  writeFileSync(body, JSON.stringify({ messages: [{ role: 'user', content: 'my secret prompt' }] }))
  const { code, out } = await sluice('route', file, '--model', 'eb1-preview', '--body', body)
  assert.equal(code, 0, out)
  assert.match(out, /^left out +moderation-webhook did not look at the request/m)
  const json = JSON.parse((await sluice('route', file, '--model', 'eb1-preview', '--body', body, '--json')).out)
  assert.deepEqual([json.left_out, json.candidates], [['moderation-webhook'], ['local/m']])
  assert.equal(asked, 0)
})

test('route: a translating plugin that is left out leaves the request unwritten, and the rest is told', async t => {
  const { dir, file, read } = folder(t)
  writeFileSync(
    join(dir, 'own.mjs'),
    `export default { name: 'own', summary: 'A plugin of a user.', layers: ['translate'],
  create: () => ({ translate: () => () => { throw new Error('it ran') } }) }
`,
  )
  writeFileSync(
    file,
    read().replace('- translation\n', '- own\n').replace('version: 1', 'version: 1\nplugins: [./own.mjs]'),
  )
  const body = join(dir, 'body.json')
  writeFileSync(body, JSON.stringify({ messages: [{ role: 'user', content: 'x' }] }))
  const { code, out, err } = await sluice('route', file, '--model', 'eb1-preview', '--body', body, '--json')
  assert.equal(code, 0, err)
  const { left_out, candidates, request } = JSON.parse(out)
  assert.deepEqual([left_out, candidates, request], [['own'], ['local/m'], undefined])
})

test('route: whatever plugin fills identity, the caller is the one who is named; nothing is told without a needed plugin', async t => {
  const { dir, file, read } = folder(t)
  const write = (name: string, definition: string) =>
    writeFileSync(
      join(dir, `${name}.mjs`),
      `import { deny, slot } from 'sluice'
export default { name: '${name}', summary: 'A plugin of a user.', ${definition} }
`,
    )
  const fills = `provides: [slot('own.tenant')], create: () => ({ onRequest: x => void x.set(slot('own.tenant'), 1) })`
  write(
    'who',
    `provides: [slot('identity')], create: () => ({ onRequest: () => deny('invalid_api_key', { message: 'no' }) })`,
  )
  write('tenant', `dryRun: 'safe', ${fills}`)
  write(
    'reader',
    `dryRun: 'safe', needs: [slot('own.tenant')], create: () => ({ onRequest: x => void x.get(slot('own.tenant')) })`,
  )
  const yaml = read()
    .replace('- auth\n', '- who\n')
    .replace('- routing\n', '- routing\n    - tenant\n    - reader\n')
    .replace('version: 1', 'version: 1\nplugins: [./who.mjs, ./tenant.mjs, ./reader.mjs]')
  writeFileSync(file, yaml)
  const body = join(dir, 'body.json')
  writeFileSync(body, JSON.stringify({ messages: [{ role: 'user', content: 'x' }] }))
  const told = await sluice('route', file, '--model', 'eb1-preview', '--body', body)
  assert.equal(told.code, 0, told.out + told.err)
  assert.match(told.out, /^chosen +local\/m$/m)
  write('undeclared', fills)
  writeFileSync(file, yaml.replaceAll('tenant', 'undeclared'))
  const { code, err } = await sluice('route', file, '--model', 'eb1-preview', '--body', body)
  assert.equal(code, 1)
  assert.match(err, /nobody can tell without 'undeclared', whose work 'reader' needs/)
})

test('route: what would be refused says how; wrong calls are exit code 2', async t => {
  const { dir, file } = folder(t)
  const body = join(dir, 'body.json')
  writeFileSync(body, JSON.stringify({ model: 'nope', messages: [{ role: 'user', content: 'x' }] }))
  const refused = await sluice('route', file, '--body', body)
  assert.equal(refused.code, 1)
  assert.match(refused.out, /refused with 404[\s\S]*model_not_found/)
  assert.equal((await sluice('route', file)).code, 2)
  assert.equal((await sluice('route', file, '--body', body, '--surface', 'voice')).code, 2)
  assert.match((await sluice('route', file, '--body', join(dir, 'none.json'))).err, /can't be read/)
  for (const nobody of ['nobody', 'constructor'])
    assert.match(
      (await sluice('route', file, '--body', body, '--org', nobody)).err,
      new RegExp(`no organization ${nobody}`),
    )
  assert.match(
    (await sluice('route', file, '--body', body, '--surface', 'messages')).err,
    /no route of the surface messages/,
  )
})

// Headers were hidden by words in their names (key, token, …): a password in `x-pass` or `x-signature` was shown, to
// everybody who reached the admin listener on loopback. What the configuration calls secret is secret by where it comes
// from, also where a variant writes it into the body.
test('route: no value of a provider’s headers is shown, in a header or in the body', async t => {
  const hidden = {
    'x-password': 'pw-1',
    'x-credential': 'pw-2',
    'x-signature': 'pw-3',
    'x-pass': 'pw-4',
    'anthropic-beta': 'pw-5',
  }
  const headers = Object.entries(hidden).map(([name, value]) => `${name}: ${value}`)
  for (const kind of [
    'dialect: openai-chat',
    'dialect: anthropic-messages',
    'dialect: anthropic-messages, variant: bedrock',
    'dialect: openai-chat, auth: bearer',
  ]) {
    const provider = `far: { ${kind}, base_url: "https://far.example/v1", api_key: sk-very-secret, headers: { ${headers.join(', ')} } }`
    const { dir, file } = folder(
      t,
      YAML.replace('local: { dialect: openai-chat, base_url: simulator }', provider).replace(
        'provider: local',
        'provider: far',
      ),
    )
    const body = join(dir, 'body.json')
    writeFileSync(body, JSON.stringify({ messages: [{ role: 'user', content: 'hello' }] }))
    const { code, out, err } = await sluice('route', file, '--model', 'eb1-preview', '--body', body, '--json')
    assert.equal(code, 0, err)
    assert.doesNotMatch(out, /pw-\d|sk-very-secret/, kind)
    const sent = JSON.parse(out).request.headers
    for (const name of Object.keys(hidden))
      if (name !== 'anthropic-beta') assert.equal(sent[name], '(redacted)', `${kind} ${name}`)
    assert.equal(sent['content-type'], 'application/json')
  }
})
