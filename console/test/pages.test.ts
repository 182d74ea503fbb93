/** What people do on the pages, on a real gateway: keys that work, limits that stand, what staff changes. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { TestGateway } from '../../test/e2e/harness.ts'
import { eventually } from '../../test/eventually.ts'
import { REFUSAL } from '../limits/index.ts'
import { StaffGateway } from '../staff/gateway.ts'
import { csv } from '../usage/csv.ts'
import { gatewayForConsole, secretIn, startConsole, type TestConsole, type Visitor } from './kit.ts'

let gateway: TestGateway
let c: TestConsole
let owner: Visitor & { id: string }
before(async () => {
  gateway = await gatewayForConsole()
  c = await startConsole(gateway)
  await c.organization('oak', 'tier2')
  owner = await c.member('oak', 'owner@example.com', 'owner')
})
after(async () => {
  await c?.close()
  await gateway?.close()
})

async function makeKey(fields: Record<string, string> = {}): Promise<{ id: string; secret: string; form: any }> {
  await owner.get('/o/oak/keys/new')
  const form = { id: owner.field('id'), ...fields }
  const seen = await owner.post('/o/oak/keys/new', form)
  assert.equal(seen.status, 200, seen.body)
  return { id: form.id, secret: secretIn(seen)!, form }
}

const statusOf = async (secret: string, model = 'eb1-preview') => {
  const body = { model, messages: [{ role: 'user', content: 'Hi' }] }
  const reply = await gateway.post('/v1/chat/completions', body, { authorization: `Bearer ${secret}` })
  await reply.text()
  return reply.status
}
const works = (secret: string, status = 200) => eventually(async () => (await statusOf(secret)) === status)

test('a key is made once, works, and is shown once', async () => {
  const { id, secret, form } = await makeKey({ label: 'CI & tests' })
  await works(secret)
  const again = await owner.send('/o/oak/keys/new', '/o/oak/keys/new', form)
  assert.equal(again.status, 200)
  assert.equal(secretIn(again), undefined)
  assert.match(again.body, /was made before/)
  const list = await owner.get('/o/oak/keys')
  assert.match(list.body, /CI &amp; tests/)
  assert.match(list.body, /owner@example\.com/)
  for (const path of ['/o/oak/keys', `/o/oak/keys/${id}`, '/o/oak/audit', '/o/oak'])
    assert.ok(!(await owner.get(path)).body.includes(secret), path)
  // The example of the page is a request that works as it stands.
  const { body } = await owner.get('/o/oak/audit')
  assert.match(body, /made the key <span class="muted">key_/)
})

test('the page of a new key says what to do with it, and its buttons tell what they copy', async () => {
  const { body } = await owner.send('/o/oak/keys/new', '/o/oak/keys/new', { id: `key_${'0'.repeat(16)}` })
  const buttons = [...body.matchAll(/data-copy="\w+"\s+hidden>([^<]+)</g)].map(([, words]) => words)
  assert.deepEqual(buttons, ['Copy the key', 'Copy the request'])
  assert.match(body, /Paste the request into a terminal/)
  assert.match(body, /<a href="\/o\/oak\/requests">Requests<\/a>\./)
  assert.match(body, /href="\/o\/oak\/keys">Go to the keys<\/a>/)
})

test('the first page of an organization without a key says what to do, and where libraries find the API', async () => {
  await c.organization('yew')
  const { body } = await (await c.member('yew', 'yew@example.com', 'developer')).get('/o/yew')
  assert.match(body, /Paste the request into a terminal\./)
  const of = (url: string, whose: string) => new RegExp(`<code>${url}</code>\\s+for\\s+${whose}`)
  assert.match(body, of(`${gateway.url}/v1`, 'OpenAI’s'))
  assert.match(body, of(gateway.url, 'Anthropic’s'))
})

test('a form with a fault is shown again with what was written in it', async () => {
  await owner.get('/o/oak/keys/new')
  const id = owner.field('id')
  for (const [fields, words] of [
    [{ expires: '2020-01-01' }, 'The end is in the past; choose a later day'],
    [{ expires: 'soon' }, 'The end is no date'],
    [{ requests_per_minute: '-1' }, 'Requests a minute: write a whole number'],
    [{ daily_spend_usd: 'much' }, 'Spend a day, USD: write an amount such as 25.00'],
    [{ models: 'no-such-model' }, 'no-such-model'],
  ] as const) {
    const seen = await owner.post('/o/oak/keys/new', { id, label: 'kept <this>', ...fields })
    assert.equal(seen.status, 400)
    const alert = /role="alert">([^<]*)</.exec(seen.body)![1]!
    assert.ok(alert.includes(words), alert)
    assert.match(seen.body, /value="kept &lt;this&gt;"/)
    assert.equal(owner.field('id'), id)
  }
  assert.ok(!(await owner.get('/o/oak/keys')).body.includes('kept'))
  assert.equal((await owner.send('/o/oak/keys/new', '/o/oak/keys/new', { id: 'key_demo' })).status, 400)
})

test('models and limits narrow a key, are changed and taken away', async () => {
  const { id, secret } = await makeKey({ models: 'eb1-fast-preview', requests_per_minute: '1' })
  await eventually(async () => (await statusOf(secret)) === 403)
  assert.equal(await statusOf(secret, 'eb1-fast-preview'), 200)
  assert.equal(await statusOf(secret, 'eb1-fast-preview'), 429)
  const page = await owner.get(`/o/oak/keys/${id}`)
  assert.match(page.body, /Requests a minute<\/span><span class="words">1 of 1</)
  assert.match(page.body, /name="models" type="text" value="eb1-fast-preview"/)
  assert.equal(
    (await owner.post(`/o/oak/keys/${id}`, { label: 'wide' })).location,
    `/o/oak/keys/${id}?done=key-changed`,
  )
  await works(secret)
})

test('a key is replaced: both work, then the old one ends', async () => {
  const old = await makeKey({ label: 'deploy', requests_per_minute: '50' })
  await owner.get(`/o/oak/keys/${old.id}`)
  const id = owner.field('id')
  const seen = await owner.post(`/o/oak/keys/${old.id}/replace`, { id, grace: '24h' })
  const fresh = secretIn(seen)!
  await works(fresh)
  assert.equal(await statusOf(old.secret), 200)
  assert.match((await owner.get(`/o/oak/keys/${old.id}`)).body, /active until its end/)
  assert.match((await owner.get(`/o/oak/keys/${id}`)).body, /name="requests_per_minute" type="number" value="50"/)
  await owner.post(`/o/oak/keys/${old.id}/revoke`)
  await works(old.secret, 401)
  assert.equal(await statusOf(fresh), 200)
  // At once: nothing of the old one is left.
  await owner.get(`/o/oak/keys/${id}`)
  const last = secretIn(await owner.post(`/o/oak/keys/${id}/replace`, { id: owner.field('id'), grace: '0' }))!
  await works(last)
  await works(fresh, 401)
})

test('another label leaves the end of a key where it is, and another day moves it', async () => {
  const { id } = await makeKey({ label: 'short' })
  await owner.get(`/o/oak/keys/${id}`)
  await owner.post(`/o/oak/keys/${id}/replace`, { id: owner.field('id'), grace: '1h' })
  const path = `/o/oak/keys/${id}`
  const shown = async () => {
    const { body } = await owner.get(path)
    const [, end] = /<dt>Ends<\/dt><dd><time datetime="([^"]+)"/.exec(body) ?? []
    return { end, day: /name="expires" type="date" value="([^"]*)"/.exec(body)![1]! }
  }
  const before = await shown()
  assert.equal(before.day, before.end!.slice(0, 10))
  const fields = { label: 'renamed', expires: before.day }
  assert.equal((await owner.post(path, fields)).location, `${path}?done=key-changed`)
  assert.equal((await shown()).end, before.end)
  assert.match((await owner.get(path)).body, /name="label" type="text" value="renamed"/)
  await owner.post(path, { label: 'renamed', expires: '2099-12-31' })
  assert.match((await shown()).end!, /^2099-12-31T23:59:59/)
  await owner.post(path, { label: 'renamed', expires: '' })
  assert.deepEqual(await shown(), { end: undefined, day: '' })
})

test('a staged key works beside the old one, and is activated when that is revoked', async () => {
  const old = await makeKey({ label: 'stage' })
  await owner.get(`/o/oak/keys/${old.id}`)
  const id = owner.field('id')
  const fresh = secretIn(await owner.post(`/o/oak/keys/${old.id}/replace`, { id, grace: 'staged' }))!
  await works(fresh)
  await owner.get(`/o/oak/keys/${old.id}`)
  await owner.post(`/o/oak/keys/${old.id}/revoke`)
  await works(old.secret, 401)
  await owner.get(`/o/oak/keys/${id}`)
  assert.equal((await owner.post(`/o/oak/keys/${id}/activate`)).location, `/o/oak/keys/${id}?done=key-activated`)
  assert.match((await owner.get(`/o/oak/keys/${id}`)).body, /badge good">active/)
})

test('a deleted key is gone from the list and refused', async () => {
  const { id, secret } = await makeKey({ label: 'goes away' })
  await works(secret)
  await owner.get(`/o/oak/keys/${id}`)
  assert.equal((await owner.post(`/o/oak/keys/${id}/delete`)).location, '/o/oak/keys?done=key-deleted')
  await works(secret, 401)
  assert.ok(!(await owner.get('/o/oak/keys')).body.includes('goes away'))
  assert.equal((await owner.get(`/o/oak/keys/${id}`)).status, 404)
  assert.equal((await owner.get('/o/oak/keys')).status, 200)
})

test('limits show what stands at the gateway', async () => {
  const { body } = await owner.get('/o/oak/limits')
  assert.match(body, /Your plan is <strong>tier2<\/strong>/)
  assert.match(body, /Requests a minute<\/span><span class="words">\d+ of 120</)
  assert.match(body, /Spend a month<\/span><span class="words">\$0\.\d+ of \$500\.00</)
})

test('the refusal that the page of limits shows has the headers and members of a real one', async () => {
  const { secret } = await makeKey({ requests_per_minute: '1' })
  await works(secret)
  const body = { model: 'eb1-preview', messages: [{ role: 'user', content: 'Hi' }] }
  const reply = await gateway.post('/v1/chat/completions', body, { authorization: `Bearer ${secret}` })
  assert.equal(reply.status, 429)
  const [head, text] = REFUSAL.split('\n\n') as [string, string]
  const shown = head.split('\n').slice(1)
  const real = [...reply.headers.keys()].filter(name => /^(retry|x-ratelimit)/.test(name))
  assert.deepEqual(shown.map(line => line.split(':')[0]).sort(), real.sort())
  const names = (value: any): unknown =>
    value && typeof value === 'object' ? Object.entries(value).map(([name, member]) => [name, names(member)]) : null
  assert.deepEqual(names(JSON.parse(text)), names(await reply.json()))
  assert.ok((await owner.get('/o/oak/limits')).body.includes('requests_limit_exceeded'))
})

test('use is shown by day, model and key, and as CSV; what providers charge is not', async () => {
  await c.organization('ash')
  const ash = await c.member('ash', 'ash@example.com', 'owner')
  const keyOf = async (label: string) => {
    await ash.get('/o/ash/keys/new')
    const id = ash.field('id')
    return { id, secret: secretIn(await ash.post('/o/ash/keys/new', { id, label }))! }
  }
  assert.match((await ash.get('/o/ash/usage')).body, /Nothing was used in this time/)
  const [one, two] = [await keyOf('one'), await keyOf('=two()')]
  for (const { secret } of [one, one, two]) await works(secret)
  await works(two.secret)
  const rows = (await gateway.ledger()).filter(({ organization }) => organization === 'ash')
  const total = rows.length
  assert.ok(total >= 4)
  const byKey = await ash.get('/o/ash/usage?by=key')
  assert.match(byKey.body, /data-head="Key" class="">one<\/td><td data-head="Requests" class="number">\d+</)
  assert.match(byKey.body, /aria-label="Spend by day from [\d-]+ to [\d-]+: \$0\.\d+/)
  // The days are divided as the sums are, and a tag leaves out what does not have it.
  assert.match(byKey.body, /<title>[\d-]+, one: \$0\.\d+<\/title>/)
  assert.match(byKey.body, /<\/svg> =two\(\) \$0\.\d+<\/li>/)
  for (const by of ['model', 'key', 'day', 'tag'])
    assert.match((await ash.get(`/o/ash/usage?by=${by}&tag=team`)).body, /Nothing was used in this time/, by)
  assert.equal((await ash.get('/o/ash/usage.csv?by=model&tag=team')).body.trim().split('\r\n').length, 1)
  assert.match((await ash.get('/o/ash/usage?by=day')).body, new RegExp(`class="number">${total}<`))
  const { body, headers } = await ash.get('/o/ash/usage.csv')
  assert.match(headers.get('content-disposition')!, /^attachment; filename="ash-[\d-]+\.csv"$/)
  const [head, ...lines] = body.trim().split('\r\n')
  assert.equal(head, 'day,model,key,requests,input,cached,cache_write,output,reasoning,searches,cost_usd')
  const requests = lines.map(line => Number(line.split(',')[3]))
  assert.equal(
    requests.reduce((sum, n) => sum + n, 0),
    total,
  )
  assert.ok(!/provider/.test(body + byKey.body))
  // Nonsense in the address is the last 30 days.
  for (const query of ['since=x&until=y', 'since=2099-01-01', 'until=1990-01-01&since=2020-01-01', 'by=provider'])
    assert.equal((await ash.get(`/o/ash/usage?${query}`)).status, 200, query)
})

test('requests are listed without content, filtered, and say what to do about a code', async () => {
  await c.organization('fir')
  const fir = await c.member('fir', 'fir@example.com', 'developer')
  await fir.get('/o/fir/keys/new')
  const id = fir.field('id')
  const secret = secretIn(await fir.post('/o/fir/keys/new', { id, label: 'app' }))!
  await works(secret)
  const failed = {
    model: 'eb1-preview',
    messages: [{ role: 'user', content: 'a secret prompt [[sim: status 500]]' }],
  }
  const reply = await gateway.post('/v1/chat/completions', failed, { authorization: `Bearer ${secret}` })
  await reply.text()
  await gateway.ledger()
  const { body } = await fir.get('/o/fir/requests')
  assert.match(body, /badge good">completed/)
  assert.ok(body.includes(reply.headers.get('x-request-id')!))
  assert.ok(!body.includes('secret prompt') && !/provider_|sim-large/.test(body))
  assert.equal(reply.status, 502)
  assert.match(body, /<code>upstream_server_error<\/code>/)
  assert.match(body, /What to do<\/summary>\s*<p>[^<]+<\/p>\s*<p>[^<]+<\/p>/)
  const wrong = await fir.get('/o/fir/requests?code=invalid_type')
  assert.match(wrong.body, /There is no such request in this time/)
  assert.match((await fir.get(`/o/fir/requests?key=${id}&outcome=completed`)).body, /badge good">completed/)
  assert.equal((await fir.get('/o/fir/requests?after=x')).status, 400)
})

test('text that a spreadsheet would take for a formula is text', () => {
  assert.equal(csv(['a', 'b'], [['=1+1', -5]]), "a,b\r\n'=1+1,-5\r\n")
  assert.equal(csv(['a'], [['say "hi", you']]), 'a\r\n"say ""hi"", you"\r\n')
  for (const text of ['+1', '-1', '@x', '\tx']) assert.ok(csv(['a'], [[text]]).includes(`'${text}`))
})

test('who sees keys and may not change them is offered nothing that is refused', async () => {
  const viewer = await c.member('oak', 'viewer@example.com', 'viewer')
  const { id } = await makeKey({ label: 'seen' })
  assert.ok(!(await viewer.get('/o/oak/keys')).body.includes('/o/oak/keys/new'))
  const { body } = await viewer.get(`/o/oak/keys/${id}`)
  assert.ok(!/action="\/o\/oak\/keys/.test(body))
  const billing = await c.member('oak', 'billing@example.com', 'billing')
  assert.ok(!(await billing.get('/o/oak')).body.includes('href="/o/oak/keys"'))
})

test('members get roles, and the last owner stays', async () => {
  const second = await c.member('oak', 'second@example.com', 'developer')
  await owner.get('/o/oak/members')
  const refused = await owner.post(`/o/oak/members/${owner.id}/role`, { role: 'viewer' })
  assert.equal(refused.status, 400)
  assert.match(refused.body, /An organization needs an owner/)
  assert.equal((await owner.post('/o/oak/members/leave')).status, 400)
  assert.equal((await owner.post(`/o/oak/members/${second.id}/role`, { role: 'tsar' })).status, 400)
  await owner.post(`/o/oak/members/${second.id}/role`, { role: 'owner' })
  assert.equal((await second.get('/o/oak/audit')).status, 200)
  assert.equal((await second.send('/account', '/account/delete')).location, '/sign-in')
  assert.equal((await second.get('/account')).location, '/sign-in?next=%2Faccount')
  assert.match((await owner.get('/o/oak/audit')).body, /changed the role of/)
})

test('an account that may not be deleted keeps all its memberships; one that is leaves a line in each', async () => {
  for (const id of ['aspen', 'zebrawood']) await c.organization(id)
  const other = await c.member('aspen', 'aspen@example.com', 'owner')
  const leaving = await c.member('aspen', 'leaving@example.com', 'developer')
  await c.member('zebrawood', 'leaving@example.com', 'owner')
  const refused = await leaving.send('/account', '/account/delete')
  assert.equal(refused.status, 400)
  assert.match(refused.body, /You are the last owner of Name of zebrawood/)
  for (const path of ['/o/aspen/keys', '/o/zebrawood/keys']) assert.equal((await leaving.get(path)).status, 200)
  const heir = await c.member('zebrawood', 'heir@example.com', 'owner')
  assert.equal((await leaving.send('/account', '/account/delete')).location, '/sign-in')
  for (const [owner, path] of [
    [other, '/o/aspen/audit'],
    [heir, '/o/zebrawood/audit'],
  ] as const) {
    const { body } = await owner.get(path)
    assert.match(body, /a former member<\/td><td[^>]*>left the organization/)
    assert.ok(!body.includes('leaving@'))
  }
})

test('staff changes the plan at once, disables and enables, and no customer reads its name', async () => {
  const staff = await c.person('staff@example.com', { staff: true })
  const { secret } = await makeKey()
  await works(secret)
  const path = '/staff/organizations/oak'
  assert.match((await staff.get(path)).body, /<dd>tier2<\/dd>/)
  assert.equal((await staff.post(`${path}/plan`, { plan: 'no-such-plan' })).status, 400)
  await staff.post(`${path}/plan`, { plan: 'tier3' })
  assert.match((await owner.get('/o/oak/limits')).body, /of 240</)
  await staff.get(path)
  await staff.post(`${path}/status`, { status: staff.field('status') })
  await eventually(async () => (await statusOf(secret)) !== 200)
  // A page that was loaded before says what it wants, and does not turn it round.
  assert.equal((await staff.post(`${path}/status`, { status: 'disabled' })).status, 303)
  assert.notEqual(await statusOf(secret), 200)
  assert.equal((await staff.post(`${path}/status`)).status, 400)
  await staff.get(path)
  assert.equal(staff.field('status'), 'active')
  await staff.post(`${path}/status`, { status: 'active' })
  await works(secret)
  const { body } = await owner.get('/o/oak/audit')
  assert.match(body, /plan: tier2 → tier3/)
  assert.match(body, /the operator<\/td><td[^>]*>changed the plan to/)
  assert.ok(!body.includes('staff@example.com'))
  assert.match((await staff.get('/staff?find=oa')).body, /href="\/staff\/organizations\/oak"/)
  assert.ok(!(await staff.get('/staff?find=x')).body.includes('organizations/oak'))
})

test('the pages of the account keep the menu of the only organization, as far as the role goes', async () => {
  for (const id of ['hazel', 'alder']) await c.organization(id)
  const billing = await c.member('hazel', 'hazel@example.com', 'billing')
  const menu = async (path: string) => /<nav class="menu".*?<\/nav>/s.exec((await billing.get(path)).body)?.[0]
  for (const path of ['/account', '/account/app']) {
    assert.match((await menu(path))!, /href="\/o\/hazel\/usage"/)
    assert.doesNotMatch((await menu(path))!, /aria-current|\/keys/)
  }
  assert.equal(await menu('/nowhere'), undefined)
  await c.member('alder', 'hazel@example.com', 'owner')
  assert.equal(await menu('/account'), undefined, 'of two organizations it is neither')
})

test('an organization is deleted by its owner: keys stop, its pages are gone, staff takes it back', async () => {
  await c.organization('elm')
  const elm = await c.member('elm', 'elm@example.com', 'owner')
  await elm.get('/o/elm/keys/new')
  const secret = secretIn(await elm.post('/o/elm/keys/new', { id: elm.field('id') }))!
  await works(secret)
  await elm.get('/o/elm/members')
  assert.equal((await elm.post('/o/elm/delete')).location, '/')
  await eventually(async () => (await statusOf(secret)) !== 200)
  assert.equal((await elm.get('/o/elm')).status, 404)
  const staff = await c.person('staff@example.com', { staff: true })
  // A page from before the deletion: nothing of it is taken back.
  await staff.get('/staff/organizations/elm')
  assert.equal((await staff.post('/staff/organizations/elm/status', { status: 'disabled' })).status, 303)
  assert.equal((await elm.get('/o/elm')).status, 404)
  assert.match((await staff.get('/staff/organizations/elm')).body, /badge bad">disabled<\/span> leaves <time/)
  // Another page from before: it was disabled, and its owner has deleted it since.
  const enabled = await staff.post('/staff/organizations/elm/status', { status: 'active' })
  assert.equal(enabled.status, 400)
  assert.match(enabled.body, /has been deleted since/)
  assert.equal((await elm.get('/o/elm')).status, 404)
  await staff.get('/staff/organizations/elm')
  await staff.post('/staff/organizations/elm/status', { status: 'active', leaves: staff.field('leaves') })
  await works(secret)
  assert.equal((await elm.get('/o/elm')).status, 200)
})

test('staff invites an owner to an organization that has none', async () => {
  await c.organization('larch')
  const larch = await c.member('larch', 'larch@example.com', 'owner')
  const staff = await c.person('staff@example.com', { staff: true })
  const path = '/staff/organizations/larch'
  assert.ok(!(await staff.get(path)).body.includes('Invite an owner'))
  const early = await staff.post(`${path}/invite`, { email: 'staff@example.com' })
  assert.equal(early.status, 400)
  assert.match(early.body, /The organization has an owner, who invites others/)
  assert.equal((await larch.send('/o/larch/members', '/o/larch/delete')).location, '/')
  assert.equal((await larch.send('/account', '/account/delete')).location, '/sign-in')
  assert.match((await staff.send(path, `${path}/invite`, { email: 'x@example.com' })).body, /take the deletion back/)
  await staff.get(path)
  await staff.post(`${path}/status`, { status: 'active', leaves: staff.field('leaves') })
  assert.match((await staff.get(path)).body, /Invite an owner/)
  assert.equal((await staff.post(`${path}/invite`, { email: 'no address' })).status, 400)
  for (const email of ['mistyped@example.com', 'heir-of-larch@example.com'])
    assert.equal((await staff.send(path, `${path}/invite`, { email })).location, `${path}?done=invited`)
  const open = (await staff.get(path)).body
  const ends = [...open.matchAll(/invitations\/\w+\/end/g)].map(([end]) => end)
  assert.equal(ends.length, 2)
  const mistyped = /mistyped@[\s\S]*?(invitations\/\w+\/end)/.exec(open)![1]!
  assert.equal((await staff.post(`${path}/${mistyped}`)).location, `${path}?done=invitation-ended`)
  assert.match(c.mails.at(-1)!.text, /invited to Name of larch at Sluice/)
  const heir = await c.person('heir-of-larch@example.com')
  const start = await heir.get('/')
  assert.match(start.body, /You are invited to Name of larch as owner/)
  assert.equal((await heir.post(/\/invitations\/\w+\/accept/.exec(start.body)![0])).location, '/o/larch')
  assert.equal((await heir.get('/o/larch/members')).status, 200)
  assert.match((await heir.get('/o/larch/audit')).body, /the operator<\/td><td[^>]*>invited/)
  assert.ok(!(await staff.get(path)).body.includes('Invite an owner'))
})

test('an organization that the gateway alone has gets an owner too', async () => {
  await new StaffGateway(c.config, 'console').create('rowan', { plan: 'beta', name: 'Rowan' })
  const staff = await c.person('staff@example.com', { staff: true })
  const path = '/staff/organizations/rowan'
  assert.equal((await staff.send(path, `${path}/invite`, { email: 'rowan@example.com' })).status, 303)
  const owner = await c.person('rowan@example.com')
  const start = await owner.get('/')
  assert.match(start.body, /You are invited to Rowan as owner/)
  await owner.post(/\/invitations\/\w+\/accept/.exec(start.body)![0])
  assert.equal((await owner.get('/o/rowan/keys')).status, 200)
  assert.equal((await staff.send('/staff', '/staff/organizations/none/invite', { email: 'a@example.com' })).status, 404)
})

test('an organization of gateway.yaml is shown, and what would change it is refused with the reason', async () => {
  const { db } = c.console.parts
  const row = { id: 'acme', name: 'Acme', created: 0, creator: null, deleted: null }
  await db.insertInto('organization').values(row).execute()
  const acme = await c.member('acme', 'acme@example.com', 'owner')
  assert.match((await acme.get('/o/acme/keys')).body, /key_test/)
  await acme.get('/o/acme/keys/new')
  const seen = await acme.post('/o/acme/keys/new', { id: acme.field('id') })
  assert.equal(seen.status, 400)
  assert.match(seen.body, /stands in the gateway’s file, and its operator changes it there\./)
  assert.ok(!seen.body.includes('gateway.yaml'))
})

test('when the gateway is down, pages say so, and what does not need it goes on', async () => {
  const down = await startConsole({ url: 'http://127.0.0.1:1', gateway: { adminAddress: 'http://127.0.0.1:1' } })
  try {
    const { db } = down.console.parts
    const row = { id: 'oak', name: 'Oak', created: 0, creator: null, deleted: null }
    await db.insertInto('organization').values(row).execute()
    const someone = await down.member('oak', 'owner@example.com', 'owner')
    for (const path of ['/o/oak', '/o/oak/keys', '/o/oak/limits', '/o/oak/audit']) {
      const seen = await someone.get(path)
      assert.equal(seen.status, 503, path)
      assert.match(seen.body, /The gateway does not answer/)
      assert.ok(!seen.body.includes('127.0.0.1:1'), 'the address of the gateway is for the log')
    }
    for (const path of ['/', '/account', '/o/oak/members', '/o/oak/keys/new'])
      assert.ok([200, 303].includes((await someone.get(path)).status), path)
    await someone.get('/o/oak/members')
    assert.equal((await someone.post('/o/oak/members/invite', { email: 'x@example.com', role: 'viewer' })).status, 303)
    assert.match(down.lines.join('\n'), /the gateway does not answer/)
  } finally {
    await down.close()
  }
})
