/** A store with something of everything in it, and all that it tells through its ports. */
import assert from 'node:assert/strict'
import { periodIndex } from '../../core/canon/limits.ts'
import type { Cell, Notice, RecordKind, Store } from '../../core/ports/store.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { bucket, DAY, intent, MINUTE, outcome, slots, spend, usedIn } from './kit.ts'

export const digest = (n: number) => String(n).padStart(64, '0')
export const note = (operation: string) => ({
  ...{ time: systemClock.now(), by: 'cli:ops', address: '', operation, key: '' },
  ...{ before: { plan: 'a' }, after: { plan: 'b' } },
})
// A brace, a percent sign and a space are encoded in the keys of Redis, or not.
export const ORGS = ['acme', 'b{r}%20', 'zoë']
export const CELLS: readonly Cell[] = [
  // Slow enough to hold what was taken until the move has ended.
  bucket('o:rpm', 30),
  bucket('o:tpd', 1e6, DAY, 'tokens'),
  bucket('k:key_1:itpm', 5000, MINUTE, 'input_tokens'),
  slots('o:conc', 10),
  spend('o:day', 1e12),
  spend('k:key_1:month', 1e12, 'month'),
]

export const USERS = ['', 'ann', 'böb: 1']
export const USER_CELLS: readonly Cell[] = [
  bucket('k:key_1:u:tpd', 1000, DAY, 'tokens'),
  slots('k:key_1:u:conc', Number.POSITIVE_INFINITY),
  spend('k:key_1:u:month', 1e12, 'month'),
].map(cell => ({ ...cell, scope: 'user' }))

export const NOTICES: readonly Notice[] = [50, 80].map(percent => ({
  ...{ time: systemClock.now(), organization: 'zoë', key: '', model: '', period: 'month' as const },
  ...{ number: periodIndex('month', systemClock.now()), percent, limit: 1e12, spent: percent * 1e10 },
}))

/** What each end user has left of tokens and spend. */
export async function leftOfUsers({ limits }: Store, org: string): Promise<(number | undefined)[][]> {
  const left = USERS.map(async name => {
    const user = { name, cells: USER_CELLS, amounts: [1e12, 1, 0] }
    const request = { org, id: 'none', cells: CELLS, amounts: CELLS.map(() => 0), now: systemClock.now(), user }
    const answer = await limits.admit(request)
    assert.ok(!answer.admitted && answer.user)
    return [answer.user[0]?.remaining, answer.user[2]?.remaining]
  })
  return Promise.all(left)
}

/** Fills a store through its ports, as a gateway does. */
export async function fill(store: Store): Promise<void> {
  const now = systemClock.now()
  for (const [i, org] of ORGS.entries()) {
    const keys = [1, 2].map(n => ({
      id: `key_${n}`,
      sha256: digest(10 * i + n),
      settings: `{"n":${n},"models":["m${n}"]}`,
    }))
    await store.accounts.change([
      {
        id: org,
        expected: 0,
        settings: `{"plan":"${i % 2}","model_limits":{"l":{}}}`,
        keys,
        audit: note(`org create ${i}`),
        ...(i === 2 && { credit: { id: 'inv-7', amount: 5e9, time: now, by: 'cli:ops', note: 'by wire' } }),
      },
    ])
    // Before the rows: what is settled goes into the journal with the next row.
    for (const [n, name] of USERS.entries()) {
      const [id, amounts] = [`req_${i}_of_${n}`, CELLS.map(() => 0)]
      const user = { name, cells: USER_CELLS, amounts: [90, 1, 5000] }
      await store.limits.admit({ org, id, cells: CELLS, amounts, now, user })
      store.limits.settle(org, id, amounts, now, [10 * n + 7, 1, 100 * n + 3])
    }
    for (let n = 0; n < 20; n++) {
      const id = `req_${i}_${n}`
      await store.limits.admit({ org, id, cells: CELLS, amounts: [1, 50, 40, 1, 9_000_000, 9_000_000], now })
      const billing = i === 0 ? 'standard' : 'prepaid'
      await store.ledger.intent(
        intent(id, { organization: org, key_id: 'key_1', time: now - (20 - n) * MINUTE, billing }),
      )
      store.limits.settle(org, id, [1, 40 + n, 30, 1, 8_000_001 + n, 8_000_001 + n], now)
      // Amounts with a fraction, missing values, and half a surrogate pair.
      const more = n % 2 ? { ttfb_ms: null, bytes_in: 7, provider: '' } : { duration_ms: 0.1 + n, provider: 'p\ud800' }
      const tags = n % 3 ? {} : { tags: JSON.stringify({ team: `${n % 2}`, user: 'ü' }) }
      await store.ledger.outcome(outcome(id, { ...more, ...tags, cost: 8_000_001 + n }))
    }
    await store.records.put(org, 'response', 'resp_1', Buffer.from(`one of ${org}`), 30 * DAY, now)
    await store.records.put(org, 'continuation', 'c:1', Buffer.alloc(99, i), 30 * DAY, now)
    for (const key of ['kept', 'not kept', 'running'])
      await store.idempotency.begin(org, key, 'f', `r_${key}`, DAY, now)
    const record = { requestId: 'r_kept', status: 200, headers: [['a', 'b']] as [string, string][] }
    await store.idempotency.finish(
      org,
      'kept',
      { ...record, body: Buffer.from('body'), whole: true, asked: '{}' },
      DAY,
      now,
    )
    await store.idempotency.finish(org, 'not kept', null, DAY, now)
  }
  for (const notice of NOTICES) await store.notices.post(notice)
  await store.accounts.note(note('admin login'))
  await store.ledger.flush()
}

/** Everything that a store tells through its ports. */
export async function booksOf(store: Store) {
  const now = systemClock.now()
  const each = async <T>(read: (org: string) => T | Promise<T>) => Promise.all(ORGS.map(org => read(org)))
  const entries = (await store.accounts.audit({ before: '', most: 100 })).entries.map(({ id: _, ...entry }) => entry)
  return {
    organizations: await store.accounts.page('', 100),
    found: await store.accounts.find(digest(12)),
    withKey: (await store.accounts.withKey('key_2', '', 10)).map(({ id }) => id),
    names: (await store.accounts.names()).map(count => Object.values(count).join(' ')).sort(),
    users: [await store.accounts.users('plan', ['0', '1'], 9), await store.accounts.users('model', ['m2'], 9)],
    entries,
    usage: await usedIn(store),
    teams: await usedIn(store, { tag: 'team' }),
    ledger: (await store.ledger.query({}))
      .map(row => ({ ...row, provider: row.provider.toWellFormed() }))
      .sort((a, b) => (a.request_id < b.request_id ? -1 : 1)),
    credits: await each(org => store.accounts.credits(org)),
    billed: await each(org => store.accounts.billed(org)),
    recent: await each(async org => (await store.recent(org)).map(row => row.request_id)),
    spent: await each(async org =>
      (await store.limits.peek(org, CELLS, now)).filter((_, i) => i >= 3).map(state => state.remaining),
    ),
    ofUsers: await each(org => leftOfUsers(store, org)),
    kept: await each(async org => [
      await textOf(store, org, 'response', 'resp_1'),
      await textOf(store, org, 'continuation', 'c:1'),
    ]),
    replies: await each(async org => {
      const kept = await store.idempotency.begin(org, 'kept', 'f', 'x', DAY, now)
      const record = kept.state === 'replay' && { ...kept.record, body: String(Buffer.from(kept.record.body)) }
      return [kept.state, record, await store.idempotency.begin(org, 'not kept', 'f', 'x', DAY, now)]
    }),
    // Posted again, they are known.
    notices: (await store.notices.page('', 10)).notices.map(({ id: _, ...notice }) => notice),
    known: await Promise.all(NOTICES.map(notice => store.notices.post(notice))),
    secret: Buffer.from(await store.secret('')).toString('hex'),
  }
}

export async function textOf(store: Store, org: string, kind: RecordKind, id: string): Promise<string> {
  return Buffer.from((await store.records.get(org, kind, id, systemClock.now())) ?? []).toString()
}
