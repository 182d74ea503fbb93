/** The life of an API key as an operator leads it: `sluice key …` edits the file, and the running gateway follows. */
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { sluice } from '../cli/capture.ts'
import { eventually } from '../eventually.ts'
import { defaultYaml, KEY, startGateway } from './harness.ts'

test('[AUTH-3] [AUTH-4] [AUTH-5] [AUTH-6] new, stage, activate, revoke: the gateway follows each without a restart, and no stream is cut', async t => {
  const g = await startGateway({
    // Limits of the organization bind its new keys as they bind the first.
    yaml: sim =>
      defaultYaml(sim, {
        extra: 'plans:\n  three: { models: all, streaming: false, active_keys: 3, limits: { requests_per_day: 50 } }\n',
      })
        .replace('version: 2\n', 'version: 2\n# Edited by hand, and by sluice key.\n')
        .replace('other:\n    plan: custom', 'other:\n    plan: three   # self-serve'),
    gateway: { watch: true },
  })
  t.after(() => g.close())
  const key = (...args: string[]) => sluice('key', ...args, '--config', g.file)
  const ask = (secret: string, more: object = {}) =>
    fetch(`${g.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${secret}` },
      body: JSON.stringify({
        model: 'eb1-preview',
        messages: [{ role: 'user', content: 'x' }],
        max_tokens: 5,
        ...more,
      }),
    })
  /**
   * Asks until the gateway has followed; anything else than the two states is a fault. It asks for what no limit counts.
   */
  const becomes = (secret: string, status: 200 | 401) =>
    eventually(async () => {
      const response = await fetch(`${g.url}/v1/models`, { headers: { authorization: `Bearer ${secret}` } })
      await response.text()
      assert.ok(response.status === 200 || response.status === 401, String(response.status))
      return response.status === status
    })
  const generation = () => g.gateway.ingress.generation!.number

  // A key of an organization that streams: made, used at once, and shown once.
  const made = await key('new', 'acme', '--id', 'key_app')
  assert.equal(made.code, 0, made.err)
  const app = made.out.trim()
  assert.match(app, /^sk-[\w-]{43}$/)
  await becomes(app, 200)
  const running = await ask(app, {
    stream: true,
    max_tokens: 500,
    messages: [{ role: 'user', content: '[[sim: tokens 80; pace 50ms]] x' }],
  })
  assert.equal(running.status, 200)

  // Replaced in stages: both work, then only the new one.
  const staged = await key('stage', 'acme', 'key_app')
  assert.equal(staged.code, 0, staged.err)
  const next = staged.out.trim()
  await becomes(next, 200)
  await becomes(app, 200)
  assert.match(
    staged.err,
    /sluice key revoke acme key_app --config \S+, then npx sluice key activate acme (\S+) --config/,
  )
  const nextId = /activate acme (\S+)/.exec(staged.err)![1]!
  assert.equal((await key('revoke', 'acme', 'key_app')).code, 0)
  await becomes(app, 401)
  assert.equal((await key('activate', 'acme', nextId)).code, 0)
  await becomes(next, 200)
  // The stream that began under the old key was not cut.
  assert.match(await running.text(), /data: \[DONE\]/)

  // What is revoked stays revoked; what is not there is named.
  assert.match((await key('activate', 'acme', 'key_app')).err, /revoked, and stays so/)
  assert.match((await key('revoke', 'acme', 'key_nope')).err, /no key 'key_nope'; it has key_test, key_app/)

  // The plan's cap: staged keys count, and an edit over it changes nothing.
  const first = await key('new', 'other')
  const second = await key('stage', 'other', 'key_other')
  assert.deepEqual([first.code, second.code], [0, 0], first.err + second.err)
  await becomes(first.out.trim(), 200)
  const before = await readFile(g.file, 'utf8')
  const third = await key('new', 'other')
  assert.equal(third.code, 1)
  assert.match(third.err, /4 keys that are active or staged.*allows 3.*\n?.*Nothing was changed/s)
  assert.equal(await readFile(g.file, 'utf8'), before)
  assert.equal((await key('revoke', 'other', 'key_other')).code, 0)
  await becomes('sk-other-0001-secret', 401)
  assert.equal((await key('new', 'other')).code, 0, 'a revoked key makes room')

  // The new keys have their plan: no streaming, and one day's budget together.
  const streamed = await ask(first.out.trim(), { stream: true })
  assert.equal(streamed.status, 403)
  assert.equal(((await streamed.json()) as any).error.code, 'streaming_not_available')
  const [a, b] = [await ask(first.out.trim()), await ask(second.out.trim())]
  // A day's worth flows back too slowly to be seen here.
  assert.equal(
    Number(a.headers.get('x-ratelimit-remaining-requests-day')) -
      Number(b.headers.get('x-ratelimit-remaining-requests-day')),
    1,
  )
  for (const r of [a, b]) await r.text()

  // The list names them without a secret; the file kept its comments; secrets are nowhere.
  const { out: list } = await key('list')
  for (const id of ['key_test', 'key_app', nextId, 'key_other']) assert.ok(list.includes(id), id)
  assert.match(list, /acme +key_app +revoked/)
  const file = await readFile(g.file, 'utf8')
  assert.match(file, /# Edited by hand, and by sluice key\./)
  assert.match(file, /plan: three {3}# self-serve/)
  const seen = file + list + JSON.stringify(g.log)
  for (const secret of [app, next, first.out.trim(), second.out.trim(), KEY]) assert.ok(!seen.includes(secret))
  assert.ok(generation() >= 5, 'each change was a reload')
})
