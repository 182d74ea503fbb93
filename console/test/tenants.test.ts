/**
 * Two tenants never meet: every path and method, with every role of the one and of the other, made from the list of
 * routes. A new page is in it by itself; what its right allows is written here by hand, once for each right.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, describe, test } from 'node:test'
import type { TestGateway } from '../../test/e2e/harness.ts'
import { recordPayment } from '../billing/payments.ts'
import { sender } from '../gateway.ts'
import { PAGES } from '../pages.ts'
import { invite } from '../people/memberships.ts'
import { RIGHTS, type Right, ROLES, type Role } from '../people/roles.ts'
import { StaffGateway } from '../staff/gateway.ts'
import type { Route } from '../web/visit.ts'
import { startAdmin } from './admin-stand-in.ts'
import { CUSTOMERS, gatewayForConsole, type Seen, STAFF, startConsole, type TestConsole, type Visitor } from './kit.ts'

const ROUTES = PAGES.flatMap(({ routes }) => routes)

/** Who may use a right. Written by hand, so that a slip in the table of the console is seen. */
const MAY: Record<Right, readonly Role[]> = {
  overview: ['owner', 'developer', 'billing', 'viewer'],
  'keys.see': ['owner', 'developer', 'viewer'],
  'keys.change': ['owner', 'developer'],
  usage: ['owner', 'developer', 'billing', 'viewer'],
  requests: ['owner', 'developer', 'viewer'],
  limits: ['owner', 'developer', 'billing', 'viewer'],
  'members.see': ['owner', 'developer', 'billing', 'viewer'],
  'members.change': ['owner'],
  'billing.see': ['owner', 'billing'],
  'billing.change': ['owner', 'billing'],
  audit: ['owner'],
  playground: ['owner', 'developer'],
  'organization.change': ['owner'],
}

/** Words that only members of an organization may read: they stand in its keys, members, payments and events. */
const SECRET_WORDS = [
  'alpha-label',
  'alpha-transfer',
  'alpha-owner@',
  'alpha-invited@',
  'Name of alpha',
  'key_of_alpha',
]

let gateway: TestGateway
let between: Between
let c: TestConsole
const people = new Map<string, Visitor & { id: string }>()
/** Ids of the organizations, for the parts of paths. */
const ids: Record<string, Record<string, string>> = {}

/** Asks the admin API, with the token of the console's pages. */
const ask = (...[request]: Parameters<ReturnType<typeof sender>>) =>
  sender(gateway.gateway.adminAddress!, () => CUSTOMERS)(request)

before(async () => {
  gateway = await gatewayForConsole()
  between = await startBetween(gateway.gateway.adminAddress!)
  // Nobody pays here: a form that leads to Stripe asks the gateway first.
  const stripe = 'stripe: { key: rk_test_1, api: "http://127.0.0.1:1", portal: off, checkout: on }'
  c = await startConsole({ url: gateway.url, gateway: { adminAddress: between.url } }, { yaml: stripe })
  for (const id of ['alpha', 'beta']) ids[id] = await addOrganization(id)
  const { db } = c.console.parts
  await recordPayment(db, {
    ...{ id: 'alpha-row', provider: 'hand', kind: 'settled', state: '', organization: 'alpha', customer: null },
    ...{ payment: 'alpha-row', object: 'alpha-row', amount: 500, currency: 'usd', time: 0, received: 0 },
    ...{ person: null, note: 'alpha-transfer' },
  })
  people.set('stranger', await c.person('stranger@example.com'))
  people.set('staff', await c.person('staff@example.com', { staff: true }))
})
after(async () => {
  await c?.close()
  await between?.close()
  await gateway?.close()
})

/** An organization with members of all roles, a key and an invitation. @returns ids of it for the parts of paths */
async function addOrganization(id: string): Promise<Record<string, string>> {
  await c.organization(id)
  for (const role of ROLES) people.set(`${id}-${role}`, await c.member(id, `${id}-${role}@example.com`, role))
  const key = `key_of_${id}`
  const body = JSON.stringify({ id: key, label: `${id}-label` })
  await ask({ method: 'POST', path: `organizations/${id}/keys`, headers: { 'sluice-act-for': id }, body })
  const { db, now } = c.console.parts
  const inviter = people.get(`${id}-owner`)!.id
  const invited = { email: `${id}-invited@example.com`, organization: id, role: 'viewer' as const, inviter }
  await invite(db, invited, now())
  const found = db.selectFrom('invitation').select('id').where('organization', '=', id)
  const { id: invitation } = await found.executeTakeFirstOrThrow()
  return { organization: id, key, invitation, person: people.get(`${id}-viewer`)!.id, id: invitation }
}

/** What the console asks the admin API. */
interface Asked {
  method: string
  /** Behind /api/v1/, with its query. */
  path: string
  headers: Record<string, string>
  body: string
}

interface Between {
  url: string
  /** A fault of the console: it makes another question of one, or null where it leaves it. */
  fault: (asked: Asked) => Asked | null
  /** What pages asked for a customer, whether it had a fault, and the word of its refusal; '' where it was answered. */
  answered: { asked: Asked; faulty: boolean; code: string }[]
  close(): Promise<void>
}

/** Stands between the console and the admin API, so that whatever page has a fault, it has it here. */
async function startBetween(admin: string): Promise<Between> {
  const server = createServer(async (request, response) => {
    const pieces: Buffer[] = []
    for await (const piece of request) pieces.push(piece)
    const { connection: _, host: __, 'content-length': ___, ...headers } = request.headers as Asked['headers']
    const asked: Asked = {
      ...{ method: request.method!, path: request.url!.replace('/api/v1/', ''), headers },
      body: Buffer.concat(pieces).toString(),
    }
    // Anything else is done by the console itself, or by staff.
    const forCustomer = headers['sluice-act-for'] !== undefined && headers['sluice-actor'] !== 'user:console'
    const faulty = forCustomer ? between.fault(asked) : null
    const { path, body, ...init } = faulty ?? asked
    const answer = await fetch(`${admin}/api/v1/${path}`, { ...init, ...(body !== '' && { body }) })
    const text = await answer.text()
    const code = answer.ok ? '' : JSON.parse(text).error.code
    if (forCustomer) between.answered.push({ asked, faulty: faulty !== null, code })
    const etag = answer.headers.get('etag')
    response.writeHead(answer.status, { 'content-type': 'application/json', ...(etag !== null && { etag }) })
    response.end(text)
  })
  server.keepAliveTimeout = 120_000
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const between: Between = {
    ...{ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, fault: () => null, answered: [] },
    async close() {
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    },
  }
  return between
}

/** The path of a route, with ids of alpha; some are given another value. */
const pathOf = ({ path }: Route, other: Record<string, string> = {}) =>
  path.replace(/:(\w+)/g, (_, name: string) =>
    encodeURIComponent(other[name] ?? ids['alpha']?.[name] ?? 'x'.repeat(43)),
  )

type Verdict = 'open' | 'sign-in' | 'hidden' | 'role'

/** Who got in, by what the answer says. */
function verdict({ status, location, body }: Seen): Verdict {
  if (status === 303 && location?.startsWith('/sign-in') && !location.includes('done=')) return 'sign-in'
  if (status === 404 && body.includes('or it is not yours to see')) return 'hidden'
  if (status === 403 && body.includes('Your role in')) return 'role'
  return 'open'
}

/** @param who `anyone`, `stranger`, `staff`, or a role of alpha or of beta */
function expected(route: Route, who: string): Verdict {
  if (route.scope === 'public' || route.scope === 'machine') return 'open'
  if (who === 'anyone') return 'sign-in'
  if (route.scope === 'person') return 'open'
  if (route.scope === 'staff') return who === 'staff' ? 'open' : 'hidden'
  const role = who.startsWith('alpha-') ? (who.slice('alpha-'.length) as Role) : null
  if (role === null) return 'hidden'
  return MAY[route.right].includes(role) ? 'open' : 'role'
}

/** A valid token of a form, of a page that everybody may see. */
async function formToken(visitor: Visitor): Promise<string> {
  await visitor.get(visitor.cookies.has('sluice-session') ? '/account' : '/sign-in')
  return visitor.formToken!
}

/** What alpha is, in the console and at the gateway. */
async function stateOfAlpha(): Promise<string> {
  const { db } = c.console.parts
  const rows = await Promise.all([
    db.selectFrom('organization').selectAll().where('id', '=', 'alpha').execute(),
    db.selectFrom('member').selectAll().where('organization', '=', 'alpha').orderBy('person').execute(),
    db.selectFrom('invitation').selectAll().where('organization', '=', 'alpha').execute(),
    db.selectFrom('person').select(['id', 'email', 'staff', 'name']).orderBy('id').execute(),
  ])
  return JSON.stringify([rows, await stateAtGateway('alpha')])
}

/** What an organization is at the gateway, and all that was ever changed of it. */
async function stateAtGateway(id: string): Promise<unknown> {
  const headers = { 'sluice-act-for': id }
  const [state, audit] = await Promise.all(
    ['', '/audit?limit=500'].map(part => ask({ method: 'GET', path: `organizations/${id}${part}`, headers })),
  )
  return [state!.body.version, state!.body.keys, audit!.body.entries]
}

test('every right is in the table of this test, and every route of an organization names its organization', () => {
  assert.deepEqual(Object.keys(MAY).sort(), [...RIGHTS].sort())
  for (const route of ROUTES) {
    assert.equal(route.scope === 'member', /^\/o\/:organization(\/|$)/.test(route.path), route.path)
    assert.equal(route.scope === 'staff', route.path.startsWith('/staff'), route.path)
  }
  assert.equal(new Set(ROUTES.map(({ method, path }) => `${method} ${path}`)).size, ROUTES.length)
})

describe('paths × methods × roles', () => {
  const WHO = ['anyone', 'stranger', 'staff', ...['alpha', 'beta'].flatMap(id => ROLES.map(role => `${id}-${role}`))]
  for (const who of WHO)
    test(who, async () => {
      const visitor = people.get(who) ?? c.visitor()
      const token = await formToken(visitor)
      const state = await stateOfAlpha()
      for (const route of ROUTES.filter(({ scope }) => scope !== 'machine')) {
        const what = `${who}: ${route.method} ${route.path}`
        const wanted = expected(route, who)
        // Who may not gets a form that is right in all else. Who may gets one that changes nothing.
        const form = wanted === 'open' ? 'wrong' : token
        const seen = await (route.method === 'GET' ? visitor.get(pathOf(route)) : visitor.post(pathOf(route), { form }))
        // A page for everybody may send its reader to the sign-in by itself.
        if (route.scope !== 'public') assert.equal(verdict(seen), wanted, what)
        if (route.method === 'POST' && wanted === 'open') assert.equal(seen.status, 403, what)
        if (!who.startsWith('alpha-') && route.scope !== 'staff')
          for (const word of SECRET_WORDS) assert.ok(!seen.body.includes(word), `${what} shows ${word}`)
        if (who !== 'anyone') continue
        for (const method of ['PUT', 'PATCH', 'DELETE', 'OPTIONS', route.method === 'GET' ? 'POST' : 'GET']) {
          if (ROUTES.some(other => other.method === method && other.path === route.path)) continue
          const answer = await fetch(c.url + pathOf(route), { method, redirect: 'manual' })
          const caught = ROUTES.some(other => other.method === method && matches(other.path, pathOf(route)))
          if (!caught) assert.equal(answer.status, 405, `${method} ${route.path}`)
        }
      }
      assert.equal(await stateOfAlpha(), state, 'nothing of alpha has changed')
    })
})

/** Whether another pattern takes a path, as /keys/:key takes /keys/new. */
const matches = (pattern: string, path: string) =>
  new RegExp(`^${pattern.replace(/:\w+/g, '[^/]+')}$`).test(decodeURIComponent(path))

describe('an owner of one organization, with ids of the other', () => {
  for (const route of ROUTES)
    if (route.scope === 'member' && route.path.split(':').length > 2)
      test(`${route.method} ${route.path}`, async () => {
        const visitor = people.get('beta-owner')!
        const form = await formToken(visitor)
        const state = await stateOfAlpha()
        const path = pathOf(route, { organization: 'beta' })
        const fields = { form, role: 'viewer', grace: '0', id: 'key_00000000000000aa', label: 'taken over' }
        const seen = await (route.method === 'GET' ? visitor.get(path) : visitor.post(path, fields))
        assert.equal(seen.status, 404)
        for (const word of SECRET_WORDS.filter(word => word !== 'key_of_alpha')) assert.ok(!seen.body.includes(word))
        assert.equal(await stateOfAlpha(), state)
      })
})

describe('a console that forgets its check is stopped by the gateway', () => {
  const MEMBER = ROUTES.filter(({ scope }) => scope === 'member')
  const nameOf = ({ method, path }: Route) => `${method} ${path.replace('/o/:organization', '')}`
  /** Routes that ask the gateway nothing. Any other one has to be refused by it. */
  const NOTHING = new Set([
    ...['GET /keys/new', 'GET /playground', 'GET /members', 'GET /billing/portal', 'POST /members/invite'],
    ...['POST /members/:person/role', 'POST /members/:person/remove', 'POST /members/leave'],
    'POST /invitations/:invitation/end',
  ])
  /** What staff's token alone may do: it reaches all organizations, and nothing but the header holds it to one. */
  const STAFFS = new Set(['POST /name', 'POST /delete'])
  /** Fields of all forms, so that each handler gets as far as the gateway. */
  const fields = () => ({
    ...{ id: `key_${randomBytes(8).toString('hex')}`, label: 'changed', grace: '0', role: 'viewer', amount: '25.00' },
    ...{
      email: `${randomBytes(4).toString('hex')}@example.com`,
      name: 'Changed',
      model: 'eb1-preview',
      prompt: 'Hello',
    },
  })

  /** Uses a route as the owner of an organization. @returns what was seen, and what the gateway was asked meanwhile */
  async function use(route: Route, id: string) {
    const owner = people.get(`${id}-owner`)!
    const form = await formToken(owner)
    const path = pathOf(route, ids[id])
    between.answered = []
    const seen = await (route.method === 'GET' ? owner.get(path) : owner.post(path, { ...fields(), form }))
    return { seen, answered: between.answered }
  }

  const without = ({ headers: { 'sluice-act-for': _, ...headers }, ...asked }: Asked): Asked => ({ ...asked, headers })
  const elsewhere = (asked: Asked, id: string): Asked => ({
    ...asked,
    path: asked.path.replace(`organizations/${id}`, 'organizations/alpha'),
  })
  const changing =
    (wrong: (asked: Asked, id: string) => Asked) =>
    (asked: Asked, id: string): Asked | null =>
      asked.method === 'GET' ? null : wrong(asked, id)

  for (const [id, what, wrong, held] of [
    ['gamma', 'the organization is taken out: requests go to the path of another', elsewhere, true],
    ['delta', 'the acting header is taken out', without, false],
    ['epsilon', 'both: the path of another, without the header', (asked, id) => elsewhere(without(asked), id), false],
    [
      ...(['zeta', 'a list of all organizations is asked for'] as const),
      asked => ({ ...without(asked), method: 'GET', path: 'organizations', body: '' }),
      false,
    ],
    // Many a form asks before it changes something: here it gets its answer, and forgets afterwards.
    ['eta', 'the organization is taken out of what changes something', changing(elsewhere), true],
    ['theta', 'the acting header is taken out of what changes something', changing(without), false],
  ] satisfies [string, string, (asked: Asked, id: string) => Asked | null, held: boolean][])
    test(what, async () => {
      ids[id] = await addOrganization(id)
      const before = [await stateOfAlpha(), await stateAtGateway(id)]
      between.fault = asked => wrong(asked, id)
      let changes = 0
      try {
        for (const route of MEMBER) {
          const name = nameOf(route)
          if (STAFFS.has(name) && !held) continue
          const { seen, answered } = await use(route, id)
          for (const word of SECRET_WORDS) assert.ok(!seen.body.includes(word), `${name} shows ${word}`)
          if (NOTHING.has(name)) assert.deepEqual(answered, [], name)
          else
            assert.ok(answered.length > 0, `${name} did not get to the gateway: add its fields, or name it in NOTHING`)
          for (const { asked, faulty, code } of answered)
            assert.equal(code, faulty ? 'act_for' : '', `${name}: ${asked.method} ${asked.path}`)
          const faulty = answered.some(one => one.faulty)
          assert.ok((faulty ? [502] : [200, 303, 400]).includes(seen.status), `${name}: ${seen.status}`)
          if (faulty && route.method === 'POST') changes++
        }
      } finally {
        between.fault = () => null
      }
      // Those of keys, and of the playground.
      assert.ok(changes >= 7, `${changes} forms were refused`)
      assert.deepEqual([await stateOfAlpha(), await stateAtGateway(id)], before)
    })

  test('when nothing is forgotten, the same requests are let in', async () => {
    ids['iota'] = await addOrganization('iota')
    // What ends the organization comes last.
    const ends = (route: Route) => Number(nameOf(route) === 'POST /delete')
    for (const route of MEMBER.toSorted((a, b) => ends(a) - ends(b))) {
      const { seen, answered } = await use(route, 'iota')
      assert.ok([200, 303, 400].includes(seen.status), `${nameOf(route)}: ${seen.status}`)
      assert.equal(answered.length === 0, NOTHING.has(nameOf(route)), nameOf(route))
      assert.ok(answered.every(({ code }) => code !== 'act_for'))
    }
  })

  test('its token changes no plan and makes no organization', async () => {
    const own = { 'sluice-act-for': 'beta', 'if-match': '"1"' }
    for (const [method, path, body] of [
      ['PATCH', 'organizations/beta', { plan: 'benchmark' }],
      ['POST', 'organizations/beta/credits', { id: 'x', amount_usd: '1000' }],
      ['DELETE', 'organizations/beta', undefined],
      ['POST', 'organizations', { id: 'omega', plan: 'benchmark' }],
      ['GET', 'audit', undefined],
    ] as const)
      await assert.rejects(
        ask({ method, path, headers: own, ...(body && { body: JSON.stringify(body) }) }),
        ({ status, code }: any) => status === 403 && ['action', 'act_for'].includes(code),
        `${method} ${path}`,
      )
  })

  test('what needs the token of staff is bound to the organization of its page', async () => {
    const admin = await startAdmin(() => ({ id: 'gamma', version: 1 }))
    const other = await startConsole({ url: 'http://127.0.0.1:1', gateway: { adminAddress: admin.url } })
    try {
      const row = { id: 'gamma', name: 'Gamma', created: 0, creator: null, deleted: null }
      await other.console.parts.db.insertInto('organization').values(row).execute()
      const owner = await other.member('gamma', 'owner@example.com', 'owner')
      await owner.send('/o/gamma/members', '/o/gamma/name', { name: 'Delta' })
      await owner.send('/o/gamma/members', '/o/gamma/delete')
      const asked = admin.asked.filter(({ headers }) => headers.authorization === `Bearer ${STAFF}`)
      const sent = asked.filter(({ path }) => path.startsWith('organizations/'))
      assert.deepEqual(
        sent.map(({ method, path, headers }) => [method, path, headers['sluice-act-for']]),
        ['GET', 'PATCH', 'DELETE'].map(method => [method, 'organizations/gamma', 'gamma']),
      )
    } finally {
      await other.close()
      await admin.close()
    }
    // The gateway holds that token to it, too.
    const bound = new StaffGateway(c.config, 'user:x', 'beta')
    await assert.rejects(bound.delete('alpha'), ({ status, code }: any) => status === 403 && code === 'act_for')
    await assert.rejects(
      bound.change('alpha', () => ({ name: 'x' })),
      ({ code }: any) => code === 'act_for',
    )
  })
})
