/** `sluice org` and `sluice key` on organizations of the store, on both engines, and on those of the file. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, type TestContext, test } from 'node:test'
import type { AccountStore } from '../../core/ports/accounts.ts'
import { openAccounts } from '../../stores/accounts.ts'
import { redisDatabases, skipWithoutRedis } from '../stores/redis-server.ts'
import { folder, sluice, YAML } from './capture.ts'

const digest = (secret: string) => createHash('sha256').update(secret).digest('hex')
const newDatabase = redisDatabases()

/** Commands on a configuration of its own, each with `--config`. */
function house(t: TestContext, url = 'sqlite:./gateway.db') {
  const { dir, file, read } = folder(t, YAML.replace('sqlite::memory:', url))
  const run = (...args: string[]) => sluice(...args, '--config', file)
  const good = async (...args: string[]) => {
    const { code, out, err } = await run(...args)
    assert.equal(code, 0, err)
    return out
  }
  const json = async (...args: string[]) => JSON.parse(await good(...args, '--json'))
  const refused = async (why: RegExp, ...args: string[]) => {
    const { code, err } = await run(...args)
    assert.equal(code, 1, args.join(' '))
    assert.match(err, why)
  }
  const inStore = async <T>(ask: (accounts: AccountStore) => T | Promise<T>) => {
    const { accounts, close } = await openAccounts(url.startsWith('sqlite') ? `sqlite:${join(dir, 'gateway.db')}` : url)
    const found = await ask(accounts)
    await close()
    return found
  }
  const stored = (id: string) => inStore(accounts => accounts.read(id))
  /** How many organizations have each plan. */
  const planned = () =>
    inStore(async accounts => Object.fromEntries((await accounts.names()).map(of => [of.name, of.organizations])))
  return { dir, file, read, run, good, json, refused, stored, planned }
}

for (const [name, skip, url] of [
  ['sqlite', false, () => 'sqlite:./gateway.db'],
  ['redis', skipWithoutRedis, newDatabase],
] as const) {
  describe(name, { skip }, () => {
    test('an organization from its making to its end', async t => {
      const { dir, good, json, run, refused, stored } = house(t, url())
      const made = await json('org', 'create', 'acme', 'plan=tier1', 'requests_per_minute=7', '--key')
      assert.deepEqual([made.organization, made.plan, made.key], ['acme', 'tier1', 'key_1'])
      assert.equal((await stored('acme'))!.keys[0]!.sha256, digest(made.secret))
      await refused(/there is an organization acme in the store already/, 'org', 'create', 'acme', 'plan=tier1')
      await refused(/demo stands in .*gateway.yaml already/, 'org', 'create', 'demo', 'plan=tier1')
      await refused(/no plan 'tier9'; did you mean[\s\S]*Nothing was changed/, 'org', 'create', 'b', 'plan=tier9')
      await refused(/'a b' is no name/, 'org', 'create', 'a b', 'plan=tier1')
      assert.equal(await stored('b'), null)

      await good(
        'org',
        'set',
        'acme',
        'plan=tier2',
        'requests_per_minute=',
        'daily_spend_usd=2.50',
        'models=[eb1-preview]',
      )
      const shown = await json('org', 'show', 'acme')
      assert.deepEqual(
        [shown.place, shown.plan, shown.limits.requests_per_minute, shown.limits.daily_spend_usd, shown.models],
        ['store', 'tier2', 120, 2.5, ['eb1-preview']],
      )
      await refused(/unknown key 'planet'[\s\S]*Nothing was changed/, 'org', 'set', 'acme', 'planet=x')
      // The limits are members of a member, which the check of a file does not look into.
      const minutes = /unknown key 'request_per_minute'; did you mean 'requests_per_minute'\?\nNothing was changed/
      await refused(minutes, 'org', 'create', 'zz', 'request_per_minute=5', 'plan=tier1')
      await refused(minutes, 'key', 'set', 'acme', 'key_1', 'request_per_minute=5')
      await refused(/it takes plan, .*, and the limits requests_per_minute, /, 'org', 'set', 'acme', 'colour=red')
      assert.equal(await stored('zz'), null)
      await good('org', 'disable', 'acme')
      assert.equal(JSON.parse((await stored('acme'))!.settings).status, 'disabled')
      await good('org', 'enable', 'acme')
      assert.deepEqual(
        (await json('org', 'list')).map((row: any) => [row.organization, row.status, row.keys, row.place]),
        [
          ['demo', 'active', 1, 'file'],
          ['empty', 'active', 0, 'file'],
          ['acme', 'active', 1, 'store'],
        ],
      )
      // `--most 2` was two of the store, behind all of the file.
      for (const [args, ids, rest] of [
        [['--most', '1'], ['demo'], 'demo'],
        [['--most', '1', '--after', 'demo'], ['empty'], 'empty'],
        [['--most', '2'], ['demo', 'empty'], 'empty'],
        [['--most', '2', '--after', 'demo'], ['empty', 'acme'], 'acme'],
        [['--most', '2', '--after', 'empty'], ['acme'], undefined],
        [['--most', '2', '--after', 'acme'], [], undefined],
      ] as const) {
        const { out, err } = await run('org', 'list', ...args)
        const shown = [...out.matchAll(/^(\S+) .* (?:file|store)$/gm)].map(([, id]) => id)
        assert.deepEqual([shown, /--after (\w+)/.exec(err)?.[1]], [ids, rest], args.join(' '))
      }
      const body = join(dir, 'body.json')
      writeFileSync(body, '{"model":"eb1-preview","messages":[{"role":"user","content":"Hi"}]}')
      const routed = await json('route', '--org', 'acme', '--body', body)
      assert.deepEqual([routed.organization, routed.key, routed.refused], ['acme', 'key_1', undefined])
      for (const line of (await good('org', 'show', 'acme')).split('\n')) assert.ok(line.length <= 80, line)
    })

    // Each request was refused with model_not_available, and nothing but docs/limits.md told why: `init` leaves
    // max_output_tokens to the operator where nobody knows it.
    test('a prepaid organization and a model without max_output_tokens: create, set, credit and show name it', async t => {
      const { file, read, good, json, run } = house(t, url())
      const why =
        'warning: eb1-preview has no max_output_tokens, so a prepaid organization cannot use it: set it in gateway.yaml'
      const told = async (...args: string[]) => {
        const { code, err } = await run(...args)
        assert.equal(code, 0, err)
        return err
      }
      assert.equal(await told('org', 'create', 'acme', 'plan=tier1', 'billing=prepaid'), why)
      assert.equal(await told('org', 'credit', 'acme', '25.00'), why)
      assert.equal(await told('org', 'set', 'acme', 'plan=tier2'), why)
      assert.match(await good('org', 'show', 'acme'), /^models +all but eb1-preview \(no max_output_tokens\)$/m)
      await good('org', 'set', 'acme', 'models=[eb1-preview]')
      assert.match(await good('org', 'show', 'acme'), /^models +eb1-preview but eb1-preview \(no/m)
      assert.deepEqual((await json('org', 'show', 'acme')).models, ['eb1-preview'])
      writeFileSync(file, read().replace('context_window: 400000,', 'context_window: 400000, max_output_tokens: 50,'))
      assert.equal(await told('org', 'set', 'acme', 'models='), '')
      assert.match(await good('org', 'show', 'acme'), /^models +all$/m)
      assert.equal(await told('org', 'create', 'other', 'plan=tier1'), '')
    })

    test('what is shown of an organization has its raises, until when each holds, and none that has ended', async t => {
      // It showed the limits of every day alone, which a raise had lifted.
      const { good } = house(t, url())
      const raises = `raises=[
        { until: "2026-01-31T00:00:00Z", limits: { tokens_per_minute: 9000000 } },
        { until: "2999-01-31T00:00:00Z", limits: { requests_per_minute: 500 }, model_limits: { eb1-preview: { requests_per_day: 9 } } },
      ]`
      await good('org', 'create', 'acme', 'plan=tier1', raises)
      const shown = await good('org', 'show', 'acme')
      assert.match(shown, /^requests_per_minute +60$/m)
      assert.match(shown, /^until 2999-01-31T00:00:00Z: requests_per_minute +500$/m)
      assert.match(shown, /^until 2999-01-31T00:00:00Z: eb1-preview: requests_per_day +9$/m)
      assert.doesNotMatch(shown, /2026-01-31/)
    })

    test('[AUTH-5] keys of the store: new, rotated with a grace period, staged, revoked', async t => {
      const { good, json, refused, stored } = house(t, url())
      await good('org', 'create', 'acme', 'plan=tier1')
      const secret = await good('key', 'new', 'acme')
      await refused(/acme has a key key_1 already/, 'key', 'new', 'acme', '--id', 'key_1')
      const before = Date.now()
      const rotated = await json('key', 'rotate', 'acme', 'key_1', '--grace', '1h')
      const ends = Date.parse(rotated.expires)
      assert.ok(ends >= before + 3_600_000 && ends <= Date.now() + 3_600_000)
      assert.deepEqual(
        (await stored('acme'))!.keys.map(({ id, sha256, settings }) => [id, sha256, JSON.parse(settings).expires]),
        [
          ['key_1', digest(secret), rotated.expires],
          ['key_2', digest(rotated.secret), undefined],
        ],
      )
      await good('key', 'stage', 'acme', 'key_2', '--id', 'next')
      await good('key', 'activate', 'acme', 'next')
      await good('key', 'revoke', 'acme', 'key_2')
      assert.match(await good('key', 'list', 'acme'), /key_2 +revoked/)
      await refused(/is revoked, and stays so/, 'key', 'activate', 'acme', 'key_2')
      // A key that has ended does not stand in the way of the plan's number, and the next rotation closes it.
      await good('key', 'rotate', 'acme', 'next', '--grace', '0')
      await good('key', 'rotate', 'acme', 'next_2', '--grace', '0')
      assert.equal((await json('key', 'list', 'acme')).find((key: any) => key.key === 'next').status, 'revoked')
    })

    test('the audit tells who changed what, and has no secret and no digest', async t => {
      const { dir, good, json, run } = house(t, url())
      const made = await json('org', 'create', 'acme', 'plan=tier1', '--key')
      await good('org', 'set', 'acme', 'plan=tier2')
      const rotated = await json('key', 'rotate', 'acme', 'key_1', '--grace', '1h', '--id', 'key_2')
      await good('key', 'revoke', 'acme', 'key_1')
      writeFileSync(join(dir, 'more.ndjson'), `{"id":"b","plan":"tier1","keys":[{"id":"k","sha256":"${digest('x')}"}]}`)
      await good('org', 'import', join(dir, 'more.ndjson'))
      // Refused: no entry.
      await run('org', 'set', 'acme', 'plan=tier9')
      const { entries, next } = await json('audit')
      assert.deepEqual(
        entries.map((entry: any) => [entry.operation, entry.organization, entry.key]),
        [
          ['organization.import', 'b', ''],
          ['key.revoke', 'acme', 'key_1'],
          ['key.rotate', 'acme', 'key_2'],
          ['organization.change', 'acme', ''],
          ['organization.create', 'acme', ''],
        ],
      )
      assert.equal(next, null)
      const [, revoke, rotate, set, create] = entries
      // What is made with a key: who made it, when, and how its secret ends.
      for (const { after } of [create, rotate])
        for (const made of Object.values<any>(after.keys)) {
          assert.match(`${made.creator} ${made.created} ${made.hint}`, /^cli:\S+ 2\d{3}-\S+Z \S{4}$/)
          for (const name of ['creator', 'created', 'hint']) delete made[name]
        }
      assert.deepEqual(create.after, { plan: 'tier1', keys: { key_1: { status: 'active' } } })
      assert.deepEqual([create.before, set.before, set.after], [null, { plan: 'tier1' }, { plan: 'tier2' }])
      assert.deepEqual(rotate.after.keys, {
        key_1: { status: 'active', expires: rotated.expires },
        key_2: { status: 'active' },
      })
      assert.deepEqual([revoke.before.keys.key_1.status, revoke.after.keys.key_1.status], ['active', 'revoked'])
      for (const { by, address } of entries) assert.match(`${by} ${address}`, /^cli:\S+ $/)
      const text = JSON.stringify(entries)
      for (const secret of [made.secret, rotated.secret]) {
        assert.equal(text.includes(secret), false)
        assert.equal(text.includes(digest(secret)), false)
      }
      const first = await json('audit', '--org', 'acme', '--most', '1')
      const rest = await json('audit', '--org', 'acme', '--before', first.next)
      assert.deepEqual([first.entries.length, rest.entries.length], [1, 3])
      assert.match(await good('audit'), /organization\.create +acme/)
      assert.equal((await run('audit', '--before', "1' OR 1")).code, 2)
    })

    test('an import names what is broken, takes the rest, and goes on where it was', async t => {
      const { dir, good, json, run, stored, planned } = house(t, url())
      const lines = Array.from({ length: 1200 }, (_, i) =>
        JSON.stringify({ id: `o${i}`, plan: 'tier1', keys: [{ id: 'k', sha256: digest(`s${i}`) }] }),
      )
      const broken = {
        3: ['{', /no JSON/],
        5: ['{"id":"demo","plan":"tier1"}', /id: demo stands in the configuration/],
        7: ['{"id":"x","plan":"tier9"}', /x: plan: there is no plan/],
        600: [`{"id":"y","plan":"tier1","keys":[{"id":"k","sha256":"${digest('s1')}"}]}`, /y: the digest .* is o1's k/],
        700: ['{"id":"z","plan":"tier1","keys":[{"id":"k","secret":"sk-1"}]}', /keys.0.secret: a plain key/],
        701: [
          `{"id":"w","plan":"tier1","keys":[{"id":"k","sha256":"${digest('sk-demo')}"}]}`,
          /keys.0.sha256: .* demo/,
        ],
      } as const
      for (const [line, [text]] of Object.entries(broken)) lines[Number(line) - 1] = text
      const file = join(dir, 'accounts.ndjson')
      writeFileSync(file, lines.join('\n'))

      const atomic = await run('org', 'import', file, '--atomic')
      assert.equal(atomic.code, 1)
      assert.match(atomic.out, /^6 refused. Nothing was written.$/)
      assert.equal(await stored('o0'), null)

      const first = await run('org', 'import', file)
      assert.equal(first.code, 1)
      assert.deepEqual(await planned(), { tier1: 1194 })
      assert.match(first.out, /^1,194 created, 0 changed, 0 unchanged, 6 refused, 1,194 keys.$/)
      const faults = first.err.split('\n')
      for (const [i, [line, [, why]]] of Object.entries(broken).entries()) {
        assert.ok(faults[i]!.startsWith(`${file}:${line}: `), faults[i])
        assert.match(faults[i]!, why)
      }
      // A key that was revoked meanwhile stays so: importing again changes nothing that is there.
      await good('key', 'revoke', 'o1', 'k')
      const again = JSON.parse((await run('org', 'import', file, '--json')).out)
      assert.deepEqual([again.created, again.changed, again.refused], [0, 0, 7])
      assert.match(again.faults[0].fault, /o1: it is in the store with other settings or keys; --replace changes it/)
      const replaced = JSON.parse((await run('org', 'import', file, '--json', '--replace', '--plain-keys')).out)
      assert.deepEqual([replaced.created, replaced.changed, replaced.refused], [1, 1, 5])
      assert.equal((await stored('z'))!.keys[0]!.sha256, digest('sk-1'))

      // What export writes, import takes, and finds the same.
      const out = join(dir, 'out.ndjson')
      writeFileSync(out, await good('org', 'export'))
      assert.equal((await json('org', 'import', out)).unchanged, 1195)

      // The counts by plan follow what is replaced.
      const line = { id: 'o10', plan: 'tier2', keys: [{ id: 'k', sha256: digest('s10'), models: ['eb1-preview'] }] }
      writeFileSync(out, JSON.stringify(line))
      assert.equal((await json('org', 'import', out, '--replace')).changed, 1)
      assert.deepEqual(await planned(), { tier1: 1194, tier2: 1, 'eb1-preview': 1 })
    })
  })
}

test('CSV: rows with one id are one organization, and a cell that fits no column is named', async t => {
  const { dir, run, stored } = house(t)
  const file = join(dir, 'accounts.csv')
  const rows = [
    'id,plan,key_id,sha256,requests_per_minute,monthly_spend_usd,models',
    `a,tier1,k1,${digest('1')},5,7.25,eb1-preview`,
    `a,tier1,k2,${digest('2').toUpperCase()},5,7.25,`,
    '"b",custom,,,,,"all"',
    'c,custom',
    'd,custom,"k',
    'e,tier1,,,many,,',
  ]
  writeFileSync(file, `${rows.join('\r\n')}\r\n`)
  const { code, out, err } = await run('org', 'import', file)
  assert.equal(code, 1)
  assert.match(out, /^2 created, .* 3 refused, 2 keys/)
  assert.match(
    err,
    /csv:5: 2 cells, and 7 columns\n.*csv:6: a quote is not closed.*\n.*csv:7: e: limits.requests_per_minute must be/,
  )
  const a = (await stored('a'))!
  assert.deepEqual(
    [JSON.parse(a.settings).limits, a.keys.map(({ sha256 }) => sha256)],
    [{ requests_per_minute: 5, monthly_spend_usd: '7.25' }, [digest('1'), digest('2')]],
  )
})

test('an organization of the file is changed there, with its layout', async t => {
  const { file, read, good, json, refused } = house(t)
  await good('org', 'set', 'demo', 'plan=tier2', 'requests_per_minute=9', 'streaming=false')
  await good('org', 'disable', 'empty')
  assert.match(
    read(),
    /demo:\n {4}plan: tier2\n[\s\S]* {4}limits: \{ requests_per_minute: 9 \}\n {4}streaming: false\n/,
  )
  assert.match(read(), /empty: \{ plan: tier1, status: disabled \} {3}# no keys yet/)
  await good('org', 'set', 'demo', 'requests_per_minute=', 'tokens_per_minute=5')
  assert.match(read(), /limits: \{ requests_per_minute: ~, tokens_per_minute: 5 \}/)
  const rotated = await json('key', 'rotate', 'demo', 'key_demo')
  assert.ok(read().includes(`status: active, expires: ${rotated.expires} }   # sk-demo`))
  await refused(/tier9[\s\S]*Nothing was changed/, 'org', 'set', 'demo', 'plan=tier9')
  const lines = (await good('org', 'export', '--file')).split('\n').map(line => JSON.parse(line))
  assert.deepEqual(
    lines.map(({ id, plan, keys }) => [id, plan, keys?.length]),
    [
      ['demo', 'tier2', 2],
      ['empty', 'tier1', undefined],
    ],
  )
  // Commands that only look make no database.
  assert.equal(existsSync(join(file, '..', 'gateway.db')), false)
  assert.ok(readFileSync(file, 'utf8').startsWith('# The gateway.'))
})

test('called wrongly: exit code 2, and what would be right', async t => {
  const { run } = house(t)
  for (const args of [[], ['make'], ['show'], ['show', 'a', 'b'], ['set', 'demo'], ['set', 'demo', 'plan'], ['import']])
    assert.equal((await run('org', ...args)).code, 2, args.join(' '))
})
