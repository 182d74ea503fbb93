/**
 * A console that somebody tries on their own machine, as the README has it. Its first pages left a stranger without the
 * cure, and told of a used link what was not so.
 */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { type AdminStandIn, startAdmin } from './admin-stand-in.ts'
import { startConsole } from './kit.ts'

const folder = mkdtempSync(join(tmpdir(), 'sluice-console-'))
const tokenFile = join(folder, 'admin-token')
/** The organizations of the gateway. */
const organizations: Record<string, unknown> = {}

let admin: AdminStandIn
before(async () => {
  admin = await startAdmin(({ method, path }) => {
    if (method === 'POST') return {}
    return path === 'notices' ? { notices: [], next: '' } : (organizations[path.replace('organizations/', '')] ?? null)
  })
})
after(async () => {
  await admin?.close()
  rmSync(folder, { recursive: true, force: true })
})

const place = (more: { tokenFile?: string } = {}) => ({
  ...{ url: 'http://127.0.0.1:1', gateway: { adminAddress: admin.url } },
  ...more,
})
const textOf = (body: string) => body.replace(/<[^>]+>/g, '').replace(/\s+/g, ' ')

test('while the gateway does not run, log and page say how to start it; with tokens of a deployment they do not', async () => {
  for (const given of [{ tokenFile }, {}]) {
    const c = await startConsole({ ...place(given), gateway: { adminAddress: 'http://127.0.0.1:1' } })
    try {
      const row = { id: 'oak', name: 'Oak', created: 0, creator: null, deleted: null }
      await c.console.parts.db.insertInto('organization').values(row).execute()
      const owner = await c.member('oak', 'owner@example.com', 'owner')
      const { body, status } = await owner.get('/o/oak')
      assert.equal(status, 503)
      const trial = given.tokenFile !== undefined
      assert.equal(body.includes('Start it with <code>npm start</code>, and leave it running.'), trial)
      const cure = /admin-token cannot be read \(ENOENT\); .* with local_token: start it with `npm start`$/m
      assert.equal(cure.test(c.lines.join('\n')), trial)
    } finally {
      await c.close()
    }
  }
})

const first = 'first_organization: { id: maple, name: Maple, plan: beta }'
const linkIn = (lines: readonly string[]) => /\/first\/\S+/.exec(lines.join('\n'))![0]

test('the first page says that any address will do where mail is printed, and there alone', async () => {
  const smtp = 'mail: { smtp: "smtp://127.0.0.1:1", from: console@example.com }'
  for (const yaml of [first, `${first}\n${smtp}`]) {
    const c = await startConsole(place(), { yaml })
    try {
      const { body } = await c.visitor().get(linkIn(c.lines))
      assert.match(body, /<label for="field-email">Your e-mail address<\/label>/)
      assert.equal(body.includes('For a trial any address will do'), yaml === first)
      assert.equal(body.includes('Links for signing in go there.'), yaml !== first)
    } finally {
      await c.close()
    }
  }
})

test('a first link that is over says so truly, and leaves who is signed in as they are', async () => {
  const c = await startConsole(place(), { yaml: first })
  try {
    const link = linkIn(c.lines)
    const visitor = c.visitor()
    const form = { email: 'ada@example.com', name: 'Ada' }
    assert.equal((await visitor.send(link, link, form)).location, '/o/maple?done=welcome')
    const other = c.visitor()
    for (const seen of [await other.get(link), await other.send('/sign-in', link, form)]) {
      assert.equal(seen.status, 404)
      assert.match(seen.body, /It has been used, or is older than an hour\./)
      assert.doesNotMatch(seen.body, /ten minutes|signed in already/)
      assert.match(seen.body, /<a href="\/sign-in">Sign in<\/a>/)
    }
    const again = await visitor.get(link)
    assert.equal(again.status, 404)
    assert.match(textOf(again.body), /You are signed in already as ada@example\.com\. Go to the start\./)
    assert.match(again.body, /<a href="\/">Go to the start<\/a>/)
    assert.equal((await visitor.get('/')).location, '/o/maple')
  } finally {
    await c.close()
  }
})

test('the first page says what staff and owner are, and whose sk-demo is where the gateway has it', async () => {
  const demo = (place: string, id: string) => ({ id: 'demo', place, keys: [{ id, status: 'active' }] })
  const read = async (yaml: string) => {
    const c = await startConsole(place(), { yaml })
    try {
      return textOf((await c.visitor().get(linkIn(c.lines))).body)
    } finally {
      await c.close()
    }
  }
  const staff = 'You become the first member of staff of Sluice: staff opens organizations and changes their plans. '
  const owner = 'You also become the owner of the organization Maple: an owner may do everything in it. '
  const other = /The key sk-demo belongs to another organization, demo: its requests are not among those of Maple\./
  const without = await read(first)
  assert.ok(without.includes(`${staff}${owner}This link works once.`))
  assert.ok((await read('')).includes(`${staff}This link works once.`))
  assert.doesNotMatch(without, /sk-demo/)
  for (const [organization, told] of [
    [demo('file', 'key_demo'), true],
    [demo('file', 'key_1'), false],
    [demo('store', 'key_demo'), false],
  ] as const) {
    organizations['demo'] = organization
    assert.equal(other.test(await read(first)), told)
  }
  organizations['demo'] = demo('file', 'key_demo')
  assert.doesNotMatch(await read(first.replace('id: maple', 'id: demo')), /sk-demo/)
  assert.doesNotMatch(
    await read(`${first}\nmail: { smtp: "smtp://127.0.0.1:1", from: console@example.com }`),
    /sk-demo/,
  )
})
