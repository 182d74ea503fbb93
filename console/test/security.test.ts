/** Sessions, links and forms, attacked: what a stranger, another site or a customer may try at the console's door. */
import assert from 'node:assert/strict'
import { request as rawRequest } from 'node:http'
import { after, before, beforeEach, test } from 'node:test'
import { KEY, type TestGateway } from '../../test/e2e/harness.ts'
import { eventually } from '../../test/eventually.ts'
import { newLink } from '../people/links.ts'
import { codeOf, stepOf } from '../people/totp.ts'
import { ownPath } from '../web/visit.ts'
import { gatewayForConsole, type Seen, startConsole, type TestConsole } from './kit.ts'

let gateway: TestGateway
let c: TestConsole
/** Added to the system's time, so that windows and links end. */
let shift = 0
const now = () => Date.now() + shift

before(async () => {
  gateway = await gatewayForConsole()
  c = await startConsole(gateway, { now })
  await c.organization('oak')
  await c.member('oak', 'owner@example.com', 'owner')
})
// Each test has its own window of attempts.
beforeEach(() => {
  shift += 3_600_000
})
after(async () => {
  await c?.close()
  await gateway?.close()
})

const SIGNED_IN = ['/', '/account']
async function isSignedIn(visitor: { get(path: string): Promise<Seen> }): Promise<boolean> {
  const seen = await visitor.get('/account')
  assert.ok(seen.status === 200 || seen.location?.startsWith('/sign-in'), `${seen.status} ${seen.location}`)
  return seen.status === 200
}

/** Signs in by mail, as people do. */
async function signIn(email: string, visitor = c.visitor()) {
  await visitor.send('/sign-in', '/sign-in', { email })
  const link = new URL(await c.linkFor(email)).pathname
  const seen = await visitor.send(link, link)
  return { visitor, link, seen }
}

test('the link of a mail signs in once; looking at it uses nothing up', async () => {
  const { visitor, link, seen } = await signIn('owner@example.com')
  assert.equal(seen.status, 303)
  assert.ok(await isSignedIn(visitor))
  const other = c.visitor()
  const gone = await other.get(link)
  assert.equal(gone.status, 404)
  assert.match(gone.body, /older than ten minutes\.\s+<a href="\/sign-in">Ask for another<\/a>/)
  assert.doesNotMatch(gone.body, /owner@example\.com/)
  // Who is signed in stays so, as whom they are: the link is not asked whose it was.
  const stranger = await c.person('stranger@example.com')
  assert.match((await stranger.get(link)).body, /You are signed in already as <strong>stranger@example\.com<\/strong>/)
  await other.get('/sign-in')
  assert.equal((await other.post(link)).status, 404)
  assert.ok(!(await isSignedIn(other)))
  // A scanner of mail opens links before their reader does.
  await other.send('/sign-in', '/sign-in', { email: 'owner@example.com' })
  const next = new URL(await c.linkFor('owner@example.com')).pathname
  for (let i = 0; i < 3; i++) assert.equal((await c.visitor().get(next)).status, 200)
  shift += 600_000
  assert.equal((await other.get(next)).status, 404, 'ten minutes later it is over')
})

test('of many who use a link at once one is signed in', async () => {
  const first = c.visitor()
  await first.send('/sign-in', '/sign-in', { email: 'owner@example.com' })
  const link = new URL(await c.linkFor('owner@example.com')).pathname
  const visitors = Array.from({ length: 6 }, () => c.visitor())
  await Promise.all(visitors.map(visitor => visitor.get(link)))
  const seen = await Promise.all(visitors.map(visitor => visitor.post(link)))
  assert.deepEqual(seen.map(({ status }) => status).sort(), [303, 404, 404, 404, 404, 404])
})

test('a session that somebody planted is not the one after signing in, and is over', async () => {
  const attacker = await c.person('attacker@example.com')
  const planted = attacker.cookies.get('sluice-session')!
  const victim = c.visitor()
  victim.cookies.set('sluice-session', planted)
  await c.visitor().send('/sign-in', '/sign-in', { email: 'owner@example.com' })
  const link = new URL(await c.linkFor('owner@example.com')).pathname
  await victim.send(link, link)
  assert.notEqual(victim.cookies.get('sluice-session'), planted)
  assert.ok(!(await isSignedIn(attacker)))
  const invented = c.visitor()
  invented.cookies.set('sluice-session', 'A'.repeat(43))
  assert.ok(!(await isSignedIn(invented)))
})

test('cookies are for this host, out of reach of scripts, and not sent along by other sites', async () => {
  const { seen } = await signIn('owner@example.com')
  const [cookie] = seen.headers.getSetCookie()
  assert.match(cookie!, /^sluice-session=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax; Max-Age=\d+$/)
})

test('signing out and ending a session end it at the server', async () => {
  const { visitor } = await signIn('owner@example.com')
  const stolen = c.visitor()
  for (const [name, value] of visitor.cookies) stolen.cookies.set(name, value)
  assert.ok(await isSignedIn(stolen))
  assert.equal((await visitor.send('/account', '/sign-out')).location, '/sign-in?done=signed-out')
  assert.ok(!(await isSignedIn(stolen)))
  const one = await c.person('owner@example.com')
  const two = await c.person('owner@example.com')
  await one.get('/account')
  const id = /\/account\/sessions\/(\w+)\/end/.exec((await one.get('/account')).body)![1]!
  const before = await Promise.all([one, two].map(isSignedIn))
  assert.deepEqual(before, [true, true])
  await one.send('/account', '/account/sessions/end')
  assert.deepEqual(await Promise.all([one, two].map(isSignedIn)), [true, false])
  // The id of a session is no secret and no key to it.
  const thief = await c.person('thief@example.com')
  assert.equal((await thief.send('/account', `/account/sessions/${id}/end`)).status, 404)
})

test('a form of another site, of another session or without a token does nothing', async () => {
  const owner = await c.person('owner@example.com')
  const other = await c.person('other@example.com')
  await other.get('/account')
  const foreign = other.formToken!
  const visitor = c.visitor()
  await visitor.get('/sign-in')
  const anonymous = visitor.formToken!
  const name = 'taken over'
  const attempts: [string, Record<string, string>, Record<string, string>][] = [
    ['another site', { name }, { origin: 'https://evil.example' }],
    ['the same host, another port', { name }, { origin: 'http://127.0.0.1:1' }],
    ['a sandboxed frame', { name }, { origin: 'null' }],
    ['a site of the same domain', { name }, { origin: '', 'sec-fetch-site': 'same-site' }],
    ['no token', { name, form: '' }, {}],
    ['the token of another person', { name, form: foreign }, {}],
    ['the token of nobody', { name, form: anonymous }, {}],
    ['text', { name }, { 'content-type': 'text/plain' }],
    ['JSON', { name }, { 'content-type': 'application/json' }],
  ]
  for (const [what, fields, headers] of attempts) {
    await owner.get('/account')
    const { status } = await owner.post('/account', fields, headers)
    assert.ok([403, 415].includes(status), `${what}: ${status}`)
    assert.ok(!(await owner.get('/account')).body.includes(name), what)
  }
  await owner.get('/account')
  const large = await owner.post('/account', { name: 'x'.repeat(70_000) })
  assert.equal(large.status, 413)
  await owner.get('/account')
  assert.equal((await owner.post('/account', { name })).status, 303, 'the same form of this site is taken')
})

test('no address changes anything by a GET', async () => {
  const owner = await c.person('owner@example.com')
  for (const path of ['/sign-out', '/account/sessions/end', '/account/delete', '/o/oak/members/leave', '/o/oak/delete'])
    assert.equal((await owner.get(path)).status, 405, path)
  assert.ok(await isSignedIn(owner))
  assert.equal((await owner.get('/o/oak')).status, 200)
})

/** fetch sets its own Host. */
function askAs(host: string, path = '/sign-in', method = 'GET'): Promise<{ status: number; location?: string }> {
  return new Promise((resolve, reject) => {
    const sent = rawRequest(c.url + path, { method, headers: { host } }, answer => {
      answer.resume()
      resolve({ status: answer.statusCode!, ...(answer.headers.location && { location: answer.headers.location }) })
    })
    sent.on('error', reject)
    sent.end()
  })
}

test('another name for this machine is not answered; another name of loopback leads to the right one', async () => {
  const { port } = new URL(c.url)
  for (const host of ['evil.example', `evil.example:${port}`, '127.0.0.1.evil.example'])
    assert.deepEqual(await askAs(host), { status: 421 }, host)
  assert.deepEqual(await askAs(`localhost:${port}`), { status: 302, location: `${c.url}/sign-in` })
  assert.deepEqual(await askAs(`localhost:${port}`, '/sign-in', 'POST'), { status: 421 })
})

test('after signing in one goes to a path of the console, whatever a link says', async () => {
  for (const path of ['/o/oak', '/o/oak/keys?x=1', '/%2F%2Fevil.example']) assert.equal(ownPath(path), path)
  for (const path of [
    '//evil.example',
    '/\\evil.example',
    '\\\\evil.example',
    '/x\\..\\y',
    'https://evil.example',
    'javascript:alert(1)',
    '/\t/evil.example',
    '/\n/evil.example',
    '',
    null,
  ])
    assert.equal(ownPath(path), '/', String(path))
  const visitor = c.visitor()
  await visitor.get('/sign-in?next=//evil.example')
  assert.equal(visitor.field('next'), '/')
  await visitor.post('/sign-in', { email: 'owner@example.com', next: 'https://evil.example/x' })
  const link = new URL(await c.linkFor('owner@example.com')).pathname
  assert.equal((await visitor.send(link, link)).location, '/')
})

/** An answer without what differs by itself. */
const told = ({ status, headers, body }: Seen, email: string) => ({
  status,
  body: body.replaceAll(email, 'EMAIL').replaceAll(/name="form" value="[^"]+"/g, ''),
  headers: Object.fromEntries(
    [...headers].filter(([name]) => !['date', 'content-length', 'set-cookie'].includes(name)),
  ),
})

test('no answer tells whether an address is known, and none is sent to an unknown one', async () => {
  const known = 'owner@example.com'
  const unknown = 'nobody@example.com'
  const seen = []
  for (const email of [known, unknown]) {
    const visitor = c.visitor()
    seen.push(told(await visitor.send('/sign-in', '/sign-in', { email }), email))
  }
  assert.deepEqual(seen[0], seen[1])
  await c.linkFor(known)
  const person = await c.person('other@example.com')
  const changes = []
  for (const email of [known, 'free@example.com'])
    changes.push(told(await person.send('/account', '/account/email', { email }), email))
  assert.deepEqual(changes[0], changes[1])
  await c.linkFor('free@example.com')
  assert.ok(!c.mails.some(({ to }) => to === unknown))
  // Past the bound of one address nothing is sent, and nothing is told.
  const before = c.mails.length
  for (let i = 0; i < 8; i++) {
    const again = told(await c.visitor().send('/sign-in', '/sign-in', { email: known }), known)
    assert.deepEqual(again, seen[0])
  }
  await eventually(() => c.mails.length === before + 4)
})

test('a network that tries too often waits, whatever it tries', async () => {
  const statuses = new Set<number>()
  for (let i = 0; i < 31; i++) {
    const visitor = c.visitor()
    const { status } = await visitor.send('/sign-in', '/sign-in', { email: `guess${i}@example.com` })
    statuses.add(status)
    if (i < 30) assert.equal(status, 200)
  }
  assert.deepEqual([...statuses], [200, 429])
  shift += 600_000
  assert.equal((await c.visitor().send('/sign-in', '/sign-in', { email: 'x@example.com' })).status, 200)
})

test('behind a proxy of a listed network each has an address of its own', async () => {
  const behind = await startConsole(gateway, { yaml: 'proxies: [127.0.0.0/8]', now })
  try {
    const statusOf = async (forwarded: string, email: string) => {
      const visitor = behind.visitor()
      await visitor.get('/sign-in')
      return (await visitor.post('/sign-in', { email }, { 'x-forwarded-for': forwarded })).status
    }
    const seen = []
    for (let i = 0; i < 31; i++) seen.push(await statusOf('198.51.100.7', `g${i}@example.com`))
    assert.deepEqual([seen[29], seen[30]], [200, 429])
    assert.equal(await statusOf('203.0.113.9', 'owner@example.com'), 200)
    assert.equal(await statusOf('203.0.113.10, 198.51.100.7', 'owner@example.com'), 429, 'the last one counts')
  } finally {
    await behind.close()
  }
})

test('without an invitation nobody signs up, and one that is taken back is none', async () => {
  const owner = await c.person('owner@example.com')
  const email = 'new@example.com'
  await owner.send('/o/oak/members', '/o/oak/members/invite', { email, role: 'developer' })
  const visitor = c.visitor()
  assert.match(await c.linkFor(email), /\/sign-in\?email=new%40example\.com$/)
  await visitor.send('/sign-in', '/sign-in', { email })
  const link = new URL(await c.linkFor(email)).pathname
  const id = /\/o\/oak\/invitations\/(\w+)\/end/.exec((await owner.get('/o/oak/members')).body)![1]!
  await owner.post(`/o/oak/invitations/${id}/end`)
  assert.equal((await visitor.send(link, link)).status, 404)
  assert.ok(!(await isSignedIn(visitor)))
})

test('an invitation is accepted by who has its address, once', async () => {
  const owner = await c.person('owner@example.com')
  const email = 'joins@example.com'
  await owner.send('/o/oak/members', '/o/oak/members/invite', { email, role: 'viewer' })
  await c.linkFor(email)
  const { visitor } = await signIn(email)
  const start = await visitor.get('/')
  const path = /\/invitations\/\w+\/accept/.exec(start.body)![0]
  const stranger = await c.person('stranger@example.com')
  await stranger.get('/account')
  assert.equal((await stranger.post(path)).status, 404)
  assert.equal((await visitor.send('/', path)).location, '/o/oak')
  assert.equal((await visitor.get('/o/oak/keys')).status, 200)
  assert.equal((await visitor.get('/o/oak/keys/new')).status, 403)
  await visitor.get('/account')
  assert.equal((await visitor.post(path)).status, 404)
  // Who is removed is out with the next request, in every session.
  await owner.get('/o/oak/members')
  const person = await c.person(email)
  await owner.post(`/o/oak/members/${person.id}/remove`)
  assert.equal((await visitor.get('/o/oak/keys')).status, 404)
})

test('the second factor is asked for, and its code is good for one session', async () => {
  const email = 'careful@example.com'
  const person = await c.person(email)
  // A code of the step before is good until its successor's end: a step begins now, and not while the code is on its way.
  shift += 30_000 - (now() % 30_000)
  await person.get('/account/app')
  const secret = person.field('secret')
  const code = (steps = 0) => codeOf(secret, stepOf(now()) + steps)
  assert.equal((await person.post('/account/app', { secret, code: '000000' })).status, 400)
  const on = await person.send('/account/app', '/account/app', { secret, code: code(-1) })
  const recovery = /<pre>([a-z2-7-]{11})/.exec(on.body)![1]!
  const { visitor, seen } = await signIn(email)
  assert.equal(seen.location, '/sign-in/second?next=%2F')
  for (const path of SIGNED_IN) assert.equal((await visitor.get(path)).location, '/sign-in/second')
  const half = visitor.cookies.get('sluice-session')!
  assert.equal((await visitor.send('/sign-in/second', '/sign-in/second', { code: '123456' })).status, 400)
  const given = code()
  assert.equal((await visitor.send('/sign-in/second', '/sign-in/second', { code: given })).location, '/')
  assert.ok(await isSignedIn(visitor))
  assert.notEqual(visitor.cookies.get('sluice-session'), half)
  const replay = c.visitor()
  replay.cookies.set('sluice-session', half)
  assert.ok(!(await isSignedIn(replay)))
  const second = await signIn(email)
  assert.equal((await second.visitor.send('/sign-in/second', '/sign-in/second', { code: given })).status, 400)
  assert.equal((await second.visitor.send('/sign-in/second', '/sign-in/second', { code: recovery })).location, '/')
  const third = await signIn(email)
  assert.equal((await third.visitor.send('/sign-in/second', '/sign-in/second', { code: recovery })).status, 400)
  const guesses = []
  for (let i = 0; i < 12; i++)
    guesses.push((await third.visitor.send('/sign-in/second', '/sign-in/second', { code: `${100000 + i}` })).status)
  assert.equal(guesses.at(-1), 429)
})

test('who has lost the app takes it off with a recovery code, which is then used up with the others', async () => {
  const person = await c.person('lost@example.com')
  const codes = async () => {
    await person.get('/account/app')
    const secret = person.field('secret')
    const on = await person.post('/account/app', { secret, code: codeOf(secret, stepOf(now())) })
    return /<pre>([^<]+)<\/pre>/.exec(on.body)![1]!.split('\n')
  }
  const off = async (code: string) => (await person.send('/account/app', '/account/app/off', { code })).location
  const before = await codes()
  assert.equal(before.length, 10)
  assert.equal(await off('aaaaa-aaaaa'), null)
  assert.equal(await off(before[3]!), '/account?done=totp-off')
  assert.match((await person.get('/account')).body, /Turn it on/)
  const after = await codes()
  assert.equal(await off(before[4]!), null, 'those of before went with it')
  // As at sign-in, it is good for one of the two.
  const { visitor } = await signIn('lost@example.com')
  assert.equal((await visitor.send('/sign-in/second', '/sign-in/second', { code: after[0]! })).location, '/')
  assert.equal(await off(after[0]!), null)
  assert.equal(await off(after[1]!.toUpperCase().replace('-', ' ')), '/account?done=totp-off')
})

test('an address changes by the mail that went to the new one, and the old one is told', async () => {
  const person = await c.person('old@example.com')
  await person.send('/account', '/account/email', { email: 'new-address@example.com' })
  const link = new URL(await c.linkFor('new-address@example.com')).pathname
  assert.match((await person.get('/account')).body, /old@example\.com/)
  // Nobody gives an account of theirs the address of a stranger, who would sign in to it later.
  const stranger = await c.person('victim@example.com')
  for (const other of [c.visitor(), stranger]) {
    assert.equal((await other.get(link)).status, 403)
    await other.get('/sign-in')
    if (other === stranger) await other.get('/account')
    assert.equal((await other.post(link)).status, 403)
  }
  assert.equal((await person.send(link, link)).location, '/account?done=email-changed')
  assert.match((await person.get('/account')).body, /new-address@example\.com/)
  assert.ok(c.mails.some(({ to, subject }) => to === 'old@example.com' && /changed/.test(subject)))
  // A link for signing in that was on its way to the old address is over.
  await person.send('/account', '/account/email', { email: 'owner@example.com' })
  assert.equal((await person.get(link)).status, 404)
})

test('an answer that no authenticator gave signs in nobody and adds no passkey', async () => {
  const person = await c.person('keys@example.com')
  const id = 'AAAAAAAAAAAAAAAAAAAAAA'
  const row = { label: 'x', public_key: 'AAAA', counter: 0, transports: '[]', created: now(), used: null }
  await c.console.parts.db
    .insertInto('passkey')
    .values({ ...row, id, person: person.id })
    .execute()
  const visitor = c.visitor()
  const client = { type: 'webauthn.get', challenge: 'x', origin: c.url }
  const forged = {
    ...{ id, rawId: id, type: 'public-key', clientExtensionResults: {} },
    response: {
      clientDataJSON: Buffer.from(JSON.stringify(client)).toString('base64url'),
      ...{ authenticatorData: 'AAAA', signature: 'AAAA', attestationObject: 'AAAA' },
    },
  }
  for (const response of [JSON.stringify(forged), JSON.stringify({ id: 5 }), '{', '']) {
    await visitor.get('/sign-in')
    const asked = JSON.parse((await visitor.post('/sign-in/passkey/options')).body)
    assert.equal(typeof asked.options.challenge, 'string')
    for (const challenge of [asked.challenge, asked.challenge, 'none'])
      assert.equal((await visitor.post('/sign-in/passkey', { challenge, response })).status, 400)
    assert.ok(!(await isSignedIn(visitor)))
    await person.get('/account')
    const { challenge } = JSON.parse((await person.post('/account/passkeys/options')).body)
    assert.equal((await person.post('/account/passkeys', { challenge, response, label: 'x' })).status, 400)
  }
  const kept = await c.console.parts.db.selectFrom('passkey').select('id').where('person', '=', person.id).execute()
  assert.deepEqual(
    kept.map(one => one.id),
    [id],
  )
})

test('a session is no API key, and an API key is no session', async () => {
  const { visitor } = await signIn('owner@example.com')
  const session = visitor.cookies.get('sluice-session')!
  for (const [name, value] of [
    ['authorization', `Bearer ${session}`],
    ['cookie', `sluice-session=${session}`],
  ] as const) {
    const answer = await fetch(`${gateway.url}/v1/models`, { headers: { [name]: value } })
    assert.equal(answer.status, 401)
    await answer.body?.cancel()
  }
  for (const [name, value] of [
    ['authorization', `Bearer ${KEY}`],
    ['cookie', `sluice-session=${KEY}`],
  ] as const)
    assert.match((await c.visitor().get('/o/oak', { [name]: value })).location!, /^\/sign-in/)
})

test('names of people and organizations are text, wherever they are shown', async () => {
  const owner = await c.person('owner@example.com')
  const name = `<script>alert(1)</script>"'&`
  await owner.send('/o/oak/members', '/o/oak/name', { name })
  await owner.send('/account', '/account', { name })
  const label = '"><img src=x onerror=alert(1)>'
  await owner.get('/o/oak/keys/new')
  await owner.post('/o/oak/keys/new', { id: owner.field('id'), label })
  for (const path of ['/o/oak', '/o/oak/keys', '/o/oak/members', '/o/oak/audit', '/account', '/?all']) {
    const { body, status } = await owner.get(path)
    assert.equal(status, 200, path)
    assert.ok(!body.includes('<script>alert') && !body.includes('<img src=x'), path)
  }
  await owner.send('/o/oak/members', '/o/oak/name', { name: 'Acme' })
})

test('every answer has the policy, and says that nobody keeps it', async () => {
  const owner = await c.person('owner@example.com')
  for (const path of ['/sign-in', '/o/oak', '/o/oak/keys', '/none', '/sign-out']) {
    const { headers } = await owner.get(path)
    assert.match(headers.get('content-security-policy')!, /default-src 'none'.*frame-ancestors 'none'/, path)
    assert.ok(!headers.get('content-security-policy')!.includes('unsafe'), path)
    assert.equal(headers.get('cache-control'), 'no-store', path)
    assert.equal(headers.get('x-content-type-options'), 'nosniff', path)
  }
})

test('what a session may do ends with it: idle for a week, or a month old', async () => {
  const idle = await c.person('owner@example.com')
  shift += 7 * 86_400_000
  assert.ok(!(await isSignedIn(idle)))
  const busy = await c.person('owner@example.com')
  for (let day = 0; day < 29; day++) {
    shift += 86_400_000
    assert.ok(await isSignedIn(busy), String(day))
  }
  shift += 86_400_000
  assert.ok(!(await isSignedIn(busy)))
})

test('the first link works once, makes the owner of the first organization, and ends with it', async () => {
  const yaml = 'first_organization: { id: first, name: First, plan: beta }\nsignup: open'
  const fresh = await startConsole(gateway, { yaml, now })
  try {
    const link = /\/first\/\S+/.exec(fresh.lines.join('\n'))![0]
    const visitor = fresh.visitor()
    // Before there is staff nobody signs up, also where everybody may.
    await visitor.send('/sign-in', '/sign-in', { email: 'early@example.com' })
    const visitors = [visitor, fresh.visitor(), fresh.visitor()]
    await Promise.all(visitors.map(one => one.get(link)))
    const seen = await Promise.all(
      visitors.map((one, i) => one.post(link, { email: `first${i}@example.com`, name: 'First' })),
    )
    assert.deepEqual(seen.map(({ status }) => status).sort(), [303, 404, 404])
    const winner = visitors[seen.findIndex(({ status }) => status === 303)]!
    assert.equal((await winner.get('/o/first')).status, 200)
    assert.equal((await winner.get('/staff')).status, 200)
    assert.equal((await fresh.visitor().get(link)).status, 404)
    assert.ok(!fresh.mails.some(({ to }) => to === 'early@example.com'))
    const { db } = fresh.console.parts
    assert.equal((await db.selectFrom('person').selectAll().where('staff', '=', 1).execute()).length, 1)
    // A link that was made before the staff was there.
    const late = await newLink(db, { purpose: 'first', email: '', person: null, next: '/' }, now())
    assert.equal((await fresh.visitor().get(`/first/${late}`)).status, 404)
    const cheat = await winner
      .get('/account')
      .then(() => winner.post(`/first/${late}`, { email: 'x@example.com', name: 'X' }))
    assert.equal(cheat.status, 404)
  } finally {
    await fresh.close()
  }
})

test('the waiting list takes everybody, tells nothing, and staff invites from it', async () => {
  const fresh = await startConsole(gateway, { yaml: 'signup: waitlist', now })
  try {
    const staff = await fresh.person('staff@example.com', { staff: true })
    const email = 'waits@example.com'
    const seen = []
    for (const address of [email, email, 'staff@example.com'])
      seen.push(told(await fresh.visitor().send('/waiting', '/waiting', { email: address, note: 'tests' }), address))
    assert.deepEqual(seen[1], seen[0])
    assert.deepEqual(seen[2], seen[0])
    await eventually(async () => (await staff.get('/staff/people')).body.includes(email))
    assert.equal((await staff.get('/staff/people')).body.split('waiting/invite').length, 2)
    await staff.post('/staff/waiting/invite', { email })
    await fresh.linkFor(email)
    const visitor = fresh.visitor()
    await visitor.send('/sign-in', '/sign-in', { email })
    const link = new URL(await fresh.linkFor(email)).pathname
    await visitor.send(link, link)
    const made = await visitor.send('/', '/organizations', { name: 'Waited & Sons' })
    assert.match(made.location!, /^\/o\/waited-sons-[a-z0-9]{6}\?done=organization-made$/)
    assert.equal((await visitor.get(made.location!)).status, 200)
    // One invitation opens one organization.
    assert.equal((await visitor.send('/account', '/organizations', { name: 'Another' })).status, 403)
  } finally {
    await fresh.close()
  }
})
