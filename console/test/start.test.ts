/** `npm run console` as an operator types it: what it prints, how it ends, what it says of a wrong file. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { defaultYaml, startGateway } from '../../test/e2e/harness.ts'
import { eventually } from '../../test/eventually.ts'
import { freePort } from '../../test/ports.ts'
import { Visitor } from './kit.ts'
import { runConsole } from './program.ts'

const folder = mkdtempSync(join(tmpdir(), 'sluice-console-'))
after(() => rmSync(folder, { recursive: true, force: true }))

test('with the local token of a gateway nothing else is needed: a link, an organization, a key', async () => {
  const token = join(folder, 'admin-token')
  const gateway = await startGateway({
    yaml: url =>
      defaultYaml(url).replace('admin: 127.0.0.1:0', `admin: { listen: 127.0.0.1:0, local_token: "${token}" }`),
  })
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const file = join(folder, 'console.yaml')
  writeFileSync(
    file,
    `listen: 127.0.0.1:${port}
url: ${url}
database: sqlite:./console.db
gateway: { admin: "${gateway.gateway.adminAddress}", api: "${gateway.url}/v1", token_file: "${token}" }
first_organization: { id: maple, name: Maple, plan: beta }
`,
  )
  const running = runConsole('--config', file)
  try {
    await eventually(() => running.said().includes(`console on ${url}`), running.said)
    assert.match(running.said(), /^No mail server is set: mail, with links for signing in, is printed here\.$/m)
    const link = /\/first\/\S+/.exec(running.said())![0]
    const visitor = new Visitor(url)
    const seen = await visitor.send(link, link, { email: 'ada@example.com', name: 'Ada' })
    assert.equal(seen.location, '/o/maple?done=welcome')
    await visitor.get('/o/maple/keys/new')
    assert.match((await visitor.post('/o/maple/keys/new', { id: visitor.field('id') })).body, /id="secret">sk-/)
    // Mail is printed where none is configured.
    await visitor.send('/account', '/sign-out')
    const asked = await visitor.send('/sign-in', '/sign-in', { email: 'ada@example.com' })
    assert.match(asked.body, /printed in the terminal in which the console runs/)
    assert.doesNotMatch(asked.body, /spam|Look into your mail/)
    await eventually(() => /mail to ada@example\.com: Sign in to Sluice/.test(running.said()))
    const second = runConsole('--config', file)
    assert.equal(await second.ended, 1)
    assert.match(second.said(), /another process has the address: change listen in console\.yaml/)
    running.child.kill('SIGTERM')
    assert.equal(await running.ended, 0)
    // There is staff now: no further link.
    const again = runConsole('--config', file)
    await eventually(() => again.said().includes('console on'))
    assert.ok(!again.said().includes('/first/'))
    again.child.kill('SIGINT')
    assert.equal(await again.ended, 0)
  } finally {
    running.child.kill('SIGKILL')
    await gateway.close()
  }
})

test('a wrong file is refused with place and cure, and checked without a start', async () => {
  const file = join(folder, 'wrong.yaml')
  writeFileSync(file, 'gateway: { token_file: ./t }\nsignup: everybody\n')
  const wrong = runConsole('--config', file)
  assert.equal(await wrong.ended, 1)
  assert.match(wrong.said(), /wrong\.yaml:2:9 {2}signup is "everybody"; write one of invite, waitlist, open/)
  const checked = runConsole('--check')
  assert.equal(await checked.ended, 0)
  assert.match(checked.said(), /the configuration is fine/)
  const help = runConsole('--help')
  assert.equal(await help.ended, 0)
  assert.match(help.said(), /npm run console/)
})
