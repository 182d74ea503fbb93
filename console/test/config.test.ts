/** console.yaml: what is wrong, where, and what to write instead. */
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { ConfigFault, loadConfig, parseConfig } from '../config.ts'
import { installPackages, missingPackages } from '../install.ts'

const GATEWAY = 'gateway: { token_file: ./t }\n'

function faults(source: string, env: Record<string, string> = {}): string[] {
  try {
    parseConfig(source, 'console.yaml', env)
  } catch (error) {
    assert.ok(error instanceof ConfigFault)
    return error.message.split('\n')
  }
  return []
}

test('the file of the quickstart has no fault, and paths are relative to it', () => {
  const config = loadConfig(join(import.meta.dirname, '../../console.yaml'), {})
  const root = join(import.meta.dirname, '../..')
  assert.equal(config.database, `sqlite:${root}/data/console.db`)
  assert.equal(config.gateway.token_file, `${root}/data/admin-token`)
  assert.deepEqual([config.host, config.port, config.signup], ['127.0.0.1', 8090, 'invite'])
  assert.deepEqual(config.first_organization, { id: 'acme', name: 'Acme', plan: 'beta' })
  assert.deepEqual(config.sessions, { idle: 7 * 86_400_000, life: 30 * 86_400_000 })
})

test('each fault has its place, what is wrong and what to write', () => {
  for (const [what, source, ...wanted] of [
    ['an unknown field', `${GATEWAY}sign_up: open`, '2:1  sign_up is not known here; the fields are listen, url'],
    [
      'an unknown word',
      `${GATEWAY}signup: everybody`,
      '2:9  signup is "everybody"; write one of invite, waitlist, open',
    ],
    ['a duration', `${GATEWAY}sessions: { idle: 5 }`, '2:19  sessions.idle is 5; write a duration above 0 such as 7d'],
    ['an address', `${GATEWAY}listen: 8090`, '2:9  listen is 8090; write an address such as 127.0.0.1:8090'],
    ['a list', `${GATEWAY}proxies: 10.0.0.1`, '2:10  proxies is "10.0.0.1"; write a list: [a, b]'],
    ['an item', `${GATEWAY}proxies: [10.0.0.1, 5]`, '2:21  proxies.1 is 5; write the address of a proxy'],
    [
      'no network',
      `${GATEWAY}proxies: [10.0.0.0/33, 10.0.0.0/, proxy.local, "fd00::/8", "fd00::/129", 10.0.0.0/8]`,
      '2:11  proxies.0 is "10.0.0.0/33"; write the address of a proxy whose X-Forwarded-For is believed, such as',
      '2:24  proxies.1 is "10.0.0.0/"',
      '2:35  proxies.2 is "proxy.local"',
      '2:60  proxies.4 is "fd00::/129"',
    ],
    ['a mapping', 'gateway: on', '1:10  gateway is "on"; write a mapping with admin, api'],
    ['a needed field', `${GATEWAY}first_organization: { id: acme, name: A }`, '2:21  first_organization needs plan'],
    [
      'an id',
      `${GATEWAY}first_organization: { id: A!, name: A, plan: b }`,
      '2:27  first_organization.id is "A!"; write',
    ],
    [
      'a provider like a means',
      `${GATEWAY}openid: [{ id: passkey, name: P, issuer: "https://i", client_id: c, client_secret: s }]`,
      '2:16  openid.0.id is "passkey"; write a word for its address',
    ],
    ['a database', `${GATEWAY}database: mysql://x`, '2:11  database is "mysql://x"; write sqlite:./data/console.db or'],
    ['no YAML', 'gateway: [', '1:11  is no YAML'],
    ['twice the same', `${GATEWAY}name: a\nname: b`, '3:1  is no YAML: Map keys must be unique'],
    ['a variable', `${GATEWAY}name: \${NAME}`, `2:7  the variable NAME is not set; set it, or write \${NAME:-default}`],
    ['no token', 'name: x', '1:1  gateway needs token_file, or token and staff_token'],
    ['one token of two', 'gateway: { token: x }', '1:1  gateway needs token_file, or token and staff_token'],
    ['both ways', 'gateway: { token_file: x, token: y, staff_token: z }', '1:1  gateway has token_file and also token'],
    [
      'http beyond this machine',
      `${GATEWAY}url: http://console.example.com\nmail: { smtp: smtp://h, from: a@b }`,
      '1:1  url is http beyond this machine, where others could read sessions; write https://',
    ],
    ['open to the network', `${GATEWAY}listen: 0.0.0.0:8090`, '1:1  listen is reachable from other machines while url'],
    [
      'no mail',
      `${GATEWAY}url: https://console.example.com`,
      '1:1  mail.smtp is missing: without it links for signing',
      '1:1  mail.from is missing: servers refuse mail of console@localhost; write',
    ],
    [
      'no sender',
      `${GATEWAY}url: https://console.example.com\nmail: { smtp: smtp://h }`,
      '1:1  mail.from is missing: servers refuse mail of console@localhost; write',
    ],
    ['two faults', `${GATEWAY}signup: a\nname: 5`, '2:9  signup', '3:7  name is 5'],
  ] as const) {
    const found = faults(source)
    assert.equal(found.length, wanted.length, `${what}: ${found.join(' | ')}`)
    for (const [i, words] of wanted.entries())
      assert.ok(found[i]!.startsWith(`console.yaml:${words}`), `${what}: ${found[i]}`)
  }
})

test('variables stand for values, and a default for one that is not set or empty', () => {
  const source = `${GATEWAY}name: "\${NAME:-Sluice} of \${WHO}"`
  assert.equal(parseConfig(source, 'c.yaml', { WHO: 'us' }).name, 'Sluice of us')
  assert.equal(parseConfig(source, 'c.yaml', { WHO: 'us', NAME: 'Weir' }).name, 'Weir of us')
  assert.throws(
    () => loadConfig('/nowhere/console.yaml'),
    /console\.yaml:1:1 {2}cannot be read \(ENOENT\); give its path/,
  )
})

test('a package is missing when it is not there, or in another version than the lockfile has', () => {
  assert.deepEqual(missingPackages(true), [])
  installPackages(true)
  const folder = mkdtempSync(join(tmpdir(), 'sluice-packages-'))
  try {
    const lock = JSON.parse(readFileSync(join(import.meta.dirname, '../package-lock.json'), 'utf8'))
    writeFileSync(join(folder, 'package-lock.json'), JSON.stringify(lock))
    const missing = missingPackages(false, folder)
    assert.ok(missing.includes('hono') && missing.includes('@hono/node-server'))
    assert.ok(!missing.includes('@types/pg') && missingPackages(true, folder).includes('@types/pg'))
    lock.packages['node_modules/hono'].version = '0.0.1'
    mkdirSync(join(folder, 'node_modules'))
    writeFileSync(join(folder, 'node_modules/.package-lock.json'), JSON.stringify(lock))
    assert.deepEqual(missingPackages(true, folder), ['hono'])
  } finally {
    rmSync(folder, { recursive: true })
  }
})
