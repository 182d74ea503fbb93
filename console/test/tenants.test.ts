/**
 * Two tenants never meet: every path and method, with every role of the one and of the other, made from the list of
 * routes. A new page is in it by itself; what its right allows is written here by hand, once for each right.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import type { TestGateway } from '../../test/e2e/harness.ts'
import { recordPayment } from '../billing/payments.ts'
import type { SendRequest } from '../gateway.ts'
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
let c: TestConsole
/** What the console sends to the admin API; the tests of the gateway's own check put another in between. */
let send: SendRequest
const people = new Map<string, Visitor & { id: string }>()
/** Ids of alpha for the parts of paths. */
const ids: Record<string, string> = { organization: 'alpha', key: 'key_of_alpha' }

before(async () => {
  gateway = await gatewayForConsole()
  const real = sender(gateway.gateway.adminAddress!, () => CUSTOMERS)
  send = real
  c = await startConsole(gateway, { send: request => send(request) })
  for (const id of ['alpha', 'beta']) {
    await c.organization(id)
    for (const role of ROLES) people.set(`${id}-${role}`, await c.member(id, `${id}-${role}@example.com`, role))
    const headers = { 'sluice-act-for': id }
    const body = JSON.stringify({ id: `key_of_${id}`, label: `${id}-label` })
    await real({ method: 'POST', path: `organizations/${id}/keys`, headers, body })
    const inviter = people.get(`${id}-owner`)!.id
    const { db, now } = c.console.parts
    await invite(db, { email: `${id}-invited@example.com`, organization: id, role: 'viewer', inviter }, now())
  }
  const { db } = c.console.parts
  await recordPayment(db, {
    ...{ id: 'alpha-row', provider: 'hand', kind: 'settled', state: '', organization: 'alpha', customer: null },
    ...{ payment: 'alpha-row', object: 'alpha-row', amount: 500, currency: 'usd', time: 0, received: 0 },
    ...{ person: null, note: 'alpha-transfer' },
  })
  people.set('stranger', await c.person('stranger@example.com'))
  people.set('staff', await c.person('staff@example.com', { staff: true }))
  const invitation = await db
    .selectFrom('invitation')
    .selectAll()
    .where('organization', '=', 'alpha')
    .executeTakeFirst()
  Object.assign(ids, { invitation: invitation!.id, person: people.get('alpha-viewer')!.id, id: invitation!.id })
})
after(async () => {
  await c?.close()
  await gateway?.close()
})

/** The path of a route, with ids of alpha; some are given another value. */
const pathOf = ({ path }: Route, other: Record<string, string> = {}) =>
  path.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(other[name] ?? ids[name] ?? 'x'.repeat(43)))

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
  const headers = { 'sluice-act-for': 'alpha' }
  const real = sender(gateway.gateway.adminAddress!, () => CUSTOMERS)
  const { body } = await real({ method: 'GET', path: 'organizations/alpha', headers })
  return JSON.stringify([rows, body.version, body.keys])
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
  const real: SendRequest = request => sender(gateway.gateway.adminAddress!, () => CUSTOMERS)(request)
  const shown = async () => {
    const owner = people.get('beta-owner')!
    const seen: [string, Seen][] = []
    for (const route of ROUTES)
      if (route.scope === 'member' && route.method === 'GET') {
        const path = pathOf(route, { organization: 'beta', key: 'key_of_beta' })
        seen.push([path, await owner.get(path)])
      }
    return seen
  }

  for (const [fault, wrong] of [
    [
      'the organization is taken out: requests go to the path of another',
      (request: Parameters<SendRequest>[0]) => ({ ...request, path: request.path.replace('/beta', '/alpha') }),
    ],
    [
      'the acting header is taken out',
      ({ headers: { 'sluice-act-for': _, ...headers }, ...request }: Parameters<SendRequest>[0]) => ({
        ...request,
        headers,
      }),
    ],
    [
      'both: a list of all organizations is asked for',
      ({ headers: { 'sluice-act-for': _, ...headers }, ...request }: Parameters<SendRequest>[0]) => ({
        ...{ ...request, headers, path: 'organizations' },
      }),
    ],
  ] as const)
    test(fault, async () => {
      let sent = 0
      let refused = 0
      send = async request => {
        sent++
        const answer = real(wrong(request))
        await answer.catch(error => error.code === 'act_for' && refused++)
        return answer
      }
      try {
        for (const [path, { status, body }] of await shown()) {
          assert.ok([200, 502].includes(status), `${path}: ${status}`)
          for (const word of SECRET_WORDS) assert.ok(!body.includes(word), `${path} shows ${word}`)
        }
        assert.ok(sent >= 5, String(sent))
        assert.equal(refused, sent)
      } finally {
        send = real
      }
      // The same pages, when nothing is forgotten.
      for (const [path, { status }] of await shown()) assert.ok([200, 303].includes(status), `${path}: ${status}`)
    })

  test('its token changes no plan and makes no organization', async () => {
    const own = { 'sluice-act-for': 'beta', 'if-match': '"1"' }
    for (const [method, path, body] of [
      ['PATCH', 'organizations/beta', { plan: 'benchmark' }],
      ['POST', 'organizations/beta/credits', { id: 'x', amount_usd: '1000' }],
      ['DELETE', 'organizations/beta', undefined],
      ['POST', 'organizations', { id: 'gamma', plan: 'benchmark' }],
      ['GET', 'audit', undefined],
    ] as const)
      await assert.rejects(
        real({ method, path, headers: own, ...(body && { body: JSON.stringify(body) }) }),
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
