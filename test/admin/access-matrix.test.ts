/**
 * Every route of the admin listener with every kind of token: who may is written here once more, by hand, so that a
 * slip in the table of routes is seen.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { test } from 'node:test'
import { parse } from 'yaml'
import { type Action, OUTSIDE, refusal } from '../../admin/access.ts'
import { OPERATIONS } from '../../admin/api.ts'
import { ACTIONS } from '../../config/schema.ts'
import { defaultYaml, sha256, startGateway } from '../e2e/harness.ts'

/** By operation: whom a token must be bound to, if it is bound. */
const MAY: Record<string, readonly Action[]> = {
  'GET organizations': ['organizations', 'plans'],
  'POST organizations': ['organizations'],
  'GET organizations/*': ACTIONS,
  'PATCH organizations/*': ['organizations', 'plans'],
  'DELETE organizations/*': ['organizations'],
  'GET organizations/*/keys': ['keys'],
  'POST organizations/*/keys': ['keys'],
  'GET organizations/*/keys/*': ['keys'],
  'PATCH organizations/*/keys/*': ['keys'],
  'DELETE organizations/*/keys/*': ['keys'],
  'POST organizations/*/keys/*/rotate': ['keys'],
  'POST organizations/*/keys/*/revoke': ['keys'],
  'POST organizations/*/keys/*/activate': ['keys'],
  'GET organizations/*/credits': ['plans', 'usage'],
  'POST organizations/*/credits': ['plans'],
  'GET organizations/*/usage': ['usage'],
  'GET organizations/*/exchanges': ['usage'],
  'GET organizations/*/rows': ['usage'],
  'GET usage': ['usage'],
  'GET plans': ['organizations', 'plans', 'usage'],
  'GET models': ['organizations', 'plans', 'usage'],
  'GET notices': ['usage'],
  'GET organizations/*/audit': ACTIONS,
  'GET caller': ACTIONS,
  'GET audit': ['organizations'],
}

test('the table of routes, the document and this test have the same operations', () => {
  const table = OPERATIONS.map(({ method, path }) => `${method} ${path}`).sort()
  assert.deepEqual(Object.keys(MAY).sort(), table)
  const document = parse(readFileSync(path.join(import.meta.dirname, '../../docs/admin-api.yaml'), 'utf8'))
  const written = Object.entries<object>(document.paths).flatMap(([where, item]) =>
    Object.keys(item)
      .filter(method => method !== 'parameters')
      .map(method => `${method.toUpperCase()} ${where.replace('/api/v1/', '').replace(/\{\w+\}/g, '*')}`),
  )
  assert.deepEqual(written.sort(), table)
})

interface Kind {
  role: 'read' | 'operate'
  acts_for: 'optional' | 'required'
  actions: readonly Action[] | null
}
const KINDS: Kind[] = (['read', 'operate'] as const).flatMap(role =>
  (['optional', 'required'] as const).flatMap(acts_for =>
    [null, ...ACTIONS.map(action => [action] as const), ['keys', 'usage'] as const].map(actions => ({
      ...{ role, acts_for, actions },
    })),
  ),
)
/** What a request says it acts for, where the path is about `own`. */
const ACTING = [undefined, 'own', 'foreign', 'OWN', 'own, own', '*', ''] as const

/** Why a token may not; null when it may. */
function expected({ role, acts_for, actions }: Kind, operation: string, acting: string | undefined): string | null {
  const ofOne = operation.includes('organizations/*')
  if (acts_for === 'required' && acting === undefined) return 'act_for'
  if (acting !== undefined && !ofOne && operation !== 'GET caller') return 'act_for'
  if (acting !== undefined && ofOne && acting !== 'own') return 'act_for'
  if (operation !== 'GET caller' && actions && !(MAY[operation] ?? []).some(one => actions.includes(one)))
    return 'action'
  if (!operation.startsWith('GET') && role !== 'operate') return 'role'
  return null
}

test('each route and each kind of token: what is decided is what is written here', () => {
  let refused = 0
  const all = [
    ...OPERATIONS.map(({ method, path, need }) => [`${method} ${path}`, need] as const),
    ['GET outside', OUTSIDE] as const,
  ]
  for (const kind of KINDS)
    for (const acting of ACTING)
      for (const [operation, need] of all) {
        const { role, acts_for: actsFor, actions } = kind
        const caller = { by: 'token:x', address: '', role, actsFor, actions }
        const organization = operation.includes('organizations/*') ? 'own' : undefined
        const found = refusal(caller, acting, need, organization)?.code ?? null
        assert.equal(found, expected(kind, operation, acting), `${JSON.stringify(kind)} ${acting} ${operation}`)
        if (found !== null) refused++
      }
  assert.ok(refused > 1000)
})

test('listening: each route is refused to a token that acts for another organization, and to one without the header', async t => {
  const tokens = KINDS.map((_, i) => `adm-kind-${i}`)
  const lines = KINDS.map(
    ({ role, acts_for, actions }, i) =>
      `{ name: t${i}, role: ${role}, acts_for: ${acts_for}, sha256: "${sha256(tokens[i]!)}"${actions ? `, actions: [${actions.join(', ')}]` : ''} }`,
  )
  const g = await startGateway({
    yaml: sim =>
      defaultYaml(sim).replace(
        'admin: 127.0.0.1:0',
        `admin: { listen: 127.0.0.1:0, tokens: [${[...lines, `{ name: all, role: operate, sha256: "${sha256('adm-all')}" }`].join(', ')}] }`,
      ),
  })
  t.after(() => g.close())
  const send = async (token: string, method: string, where: string, acting?: string, body?: unknown) => {
    const answer = await fetch(`${g.gateway.adminAddress}/${where}`, {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...(acting !== undefined && { 'sluice-act-for': acting }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    const text = await answer.text()
    const code = answer.headers.get('content-type') === 'application/json' ? JSON.parse(text).error?.code : undefined
    return { status: answer.status, code, text }
  }
  const all = 'adm-all'
  for (const id of ['own', 'foreign'])
    assert.equal((await send(all, 'POST', 'api/v1/organizations', undefined, { id, plan: 'tier1' })).status, 201)
  // All kinds are decided above; here one of each sort shows that the decision is asked for.
  const sorts = [...KINDS.entries()].filter(([, { role, acts_for, actions }]) =>
    acts_for === 'required' ? role === 'operate' && actions?.length !== 1 : actions?.[0] === 'keys',
  )
  for (const [i, kind] of sorts)
    for (const acting of ['own', 'foreign', undefined]) {
      for (const { method, path } of OPERATIONS) {
        // What is not refused would change what the next one finds.
        const operation = `${method} ${path}`
        const why = expected(kind, operation, acting)
        if (why === null && method !== 'GET') continue
        const where = `api/v1/${path.replace('*', 'own').replace('*', 'none')}`
        const got = await send(tokens[i]!, method, where, acting, method === 'GET' ? undefined : {})
        if (why !== null) assert.deepEqual([got.status, got.code], [403, why], `${i} ${operation} ${acting}`)
        else assert.notEqual(got.status, 403, `${i} ${operation} ${acting}`)
      }
      for (const where of ['metrics', 'feed', 'history', 'accounts', 'trace?id=x']) {
        if (where === 'feed' && expected(kind, 'GET outside', acting) === null) continue
        const got = await send(tokens[i]!, 'GET', where, acting)
        assert.equal(got.status === 403, expected(kind, 'GET outside', acting) !== null, `${i} ${where} ${acting}`)
      }
    }
  // The members of a change decide what a bound token needs.
  const bound = (...actions: Action[]) =>
    tokens[KINDS.findIndex(k => k.role === 'operate' && k.acts_for === 'optional' && `${k.actions}` === `${actions}`)]!
  const { body } = await fetch(`${g.gateway.adminAddress}/api/v1/organizations/own`, {
    headers: { authorization: `Bearer ${all}` },
  }).then(async answer => ({ body: (await answer.json()) as { version: number } }))
  const patch = (token: string, members: object) =>
    fetch(`${g.gateway.adminAddress}/api/v1/organizations/own`, {
      method: 'PATCH',
      headers: {
        authorization: `Bearer ${token}`,
        'content-type': 'application/json',
        'if-match': `"${body.version + 1e9}"`,
      },
      body: JSON.stringify(members),
    }).then(answer => answer.status)
  for (const [members, organizations, plans] of [
    [{ name: 'x' }, 412, 403],
    [{ metadata: {} }, 412, 403],
    [{ status: 'disabled' }, 412, 403],
    [{ plan: 'tier2' }, 403, 412],
    [{ limits: {} }, 403, 412],
    [{ billing: 'free' }, 403, 412],
    [{ prices: {} }, 403, 412],
    [{ name: 'x', plan: 'tier2' }, 403, 403],
    [{ anything: 1 }, 403, 412],
  ] as const)
    assert.deepEqual(
      [await patch(bound('organizations'), members), await patch(bound('plans'), members)],
      [organizations, plans],
      JSON.stringify(members),
    )
  // Nobody names another in the audit by a header that is no name.
  for (const actor of ['a b', 'ü', 'x'.repeat(129), '']) {
    const answer = await fetch(`${g.gateway.adminAddress}/api/v1/organizations/own/keys`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${all}`,
        'content-type': 'application/json',
        'sluice-actor': Buffer.from(actor).toString('latin1'),
      },
      body: '{"id":"k"}',
    })
    assert.equal(answer.status, 400, actor)
  }
})
