/**
 * A reload and the accounts of the store. A plan or model that was renamed in the file was gone for every account of the
 * store that named it: all of them got 500 `internal_error`, and the reload, `check` and /readyz said that all was well.
 */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, type TestContext, test } from 'node:test'
import type { GatewayOptions } from '../../cli/gateway.ts'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { eventually } from '../eventually.ts'
import { engines } from '../stores/redis-server.ts'
import { defaultYaml, KEY, ShiftedClock, sha256, startGateway, type TestGateway } from './harness.ts'

const PLANS = 'plans:\n  gold: { limits: { requests_per_minute: 1000 } }\n  silver: { limits: {} }\n'
const secretOf = (id: string) => `sk-${id}-0001-secret`
const CHAT = { model: 'eb1-fast-preview', messages: [{ role: 'user', content: 'Hi' }] }
const WARNING = 'accounts of the store cannot be used, and get 503 account_unavailable'

for (const [name, skip, newUrl] of engines())
  describe(name, { skip }, () => {
    const yaml = (url: string, plans: string) => (sim: string) =>
      defaultYaml(sim, { extra: plans, store: `{ url: "${url}", timeout: 5s }` })

    async function start(t: TestContext, url = newUrl(), plans = PLANS, more: Partial<GatewayOptions> = {}) {
      const clock = new ShiftedClock()
      const gateway = await startGateway({ yaml: yaml(url, plans), gateway: { clock, ...more } })
      t.after(() => gateway.close())
      return { t: gateway, clock, url }
    }

    /** Organizations of the store, each with one key. */
    async function put(t: TestGateway, all: Record<string, object>, key: object = {}): Promise<void> {
      for (const [id, settings] of Object.entries(all)) {
        const expected = (await t.gateway.store.accounts.read(id))?.version ?? 0
        const keys = [{ id: 'key_1', sha256: sha256(secretOf(id)), settings: JSON.stringify(key) }]
        const change = { id, expected, settings: JSON.stringify(settings), keys }
        assert.equal((await t.gateway.store.accounts.change([change]))[0]!.refused, undefined)
      }
      // A gateway that knows of no organization in its store asks nothing.
      const first = 'expires' in key ? 'gone' : Object.keys(all)[0]!
      await eventually(async () => (await ask(t, first)).code !== 'invalid_api_key')
    }

    async function ask(t: TestGateway, id: string, body: object = CHAT) {
      const reply = await t.post('/v1/chat/completions', body, { authorization: `Bearer ${secretOf(id)}` })
      const { error } = (await reply.json()) as any
      return { status: reply.status, code: error?.code as string | undefined, error, headers: reply.headers }
    }

    async function edit(t: TestGateway, ...edits: [from: string, to: string][]) {
      let text = await readFile(t.file, 'utf8')
      for (const [from, to] of edits) {
        assert.ok(text.includes(from), from)
        text = text.replace(from, to)
      }
      await writeFile(t.file, text)
      return t.gateway.reload()
    }

    async function series(t: TestGateway, name: string): Promise<string[]> {
      const text = await (await fetch(`${t.gateway.adminAddress}/metrics`)).text()
      return text.split('\n').filter(line => line.startsWith(`${name}{`) || line.startsWith(`${name} `))
    }

    test('a reload that renames a plan in use keeps the old chain, and says how many accounts and whose', async t => {
      const { t: gateway, clock } = await start(t)
      await put(gateway, Object.fromEntries(Array.from({ length: 7 }, (_, i) => [`c${i}`, { plan: 'gold' }])))
      await put(gateway, { other1: { plan: 'silver' } })
      const renamed: [string, string] = ['  gold:', '  golden:']
      const { applied, errors } = await edit(gateway, renamed)
      assert.equal(applied, false)
      const [fault] = errors
      assert.equal(errors.length, 1)
      assert.match(
        fault!.message,
        /^7 organizations of the store have the plan 'gold' \(c0, c1, c2, c3, c4 and 2 more\), and this file does not have it; keep it .* retired: \{ plans: \[gold\] \}/,
      )
      const lines = (await readFile(gateway.file, 'utf8')).split('\n')
      assert.equal(lines[fault!.line - 1], 'plans:')
      assert.ok(gateway.log.some(({ level, message }) => level === 'error' && message.includes('7 organizations of')))
      assert.deepEqual(await series(gateway, 'sluice_config_last_reload_ok'), ['sluice_config_last_reload_ok 0'])
      assert.equal((await ask(gateway, 'c0')).status, 200)

      // It is meant: the file says so.
      assert.equal((await edit(gateway, ['plans:', 'retired: { plans: [gold] }\nplans:'])).applied, true)
      for (let i = 0; i < 5; i++) {
        const { status, code, error, headers } = await ask(gateway, `c${i % 2}`)
        assert.deepEqual([status, code, error.retryable], [503, 'account_unavailable', true])
        assert.doesNotMatch(error.message, /gold|plan/)
        assert.ok(Number(headers.get('retry-after')) >= 60)
      }
      assert.equal((await ask(gateway, 'other1')).status, 200)
      // One line a minute, with counts.
      const warnings = () =>
        gateway.log.filter(({ message }) => message === WARNING).map(({ fields }) => fields.refused)
      assert.deepEqual(
        warnings().map(([{ plan, requests, organizations, such_as }]) => [plan, requests, organizations, such_as]),
        [['gold', 1, 1, 'c0']],
      )
      clock.shift += 60_000
      await ask(gateway, 'c6')
      assert.deepEqual(
        warnings().map(([{ requests, organizations }]) => [requests, organizations]),
        [
          [1, 1],
          [5, 3],
        ],
      )
      assert.deepEqual(await series(gateway, 'sluice_accounts_left_behind'), [
        'sluice_accounts_left_behind{kind="plan",name="gold",standing="retired"} 7',
      ])
      assert.deepEqual(await series(gateway, 'sluice_accounts'), [
        'sluice_accounts{plan="gold"} 7',
        'sluice_accounts{plan="silver"} 1',
      ])
      // It is back.
      assert.equal((await edit(gateway, ['retired: { plans: [gold] }\n', ''], ['  golden:', '  gold:'])).applied, true)
      assert.equal((await ask(gateway, 'c0')).status, 200)
      assert.deepEqual(await series(gateway, 'sluice_accounts_left_behind'), [])
    })

    test('a model of an account, its key or its limits is kept; retired, an empty list allows nothing', async t => {
      const { t: gateway } = await start(t)
      await put(gateway, {
        own: { plan: 'custom', models: ['eb1-preview-fast'] },
        limited: { plan: 'custom', model_limits: { 'eb1-fast-preview': { requests_per_minute: 5 } } },
      })
      await put(gateway, { keyed: { plan: 'custom' } }, { models: ['eb1-fast-preview'] })
      await put(gateway, { some: { plan: 'custom', models: ['eb1-preview', 'eb1-fast-preview'] } })
      const line = (await readFile(gateway.file, 'utf8'))
        .split('\n')
        .find(line => line.startsWith('  eb1-fast-preview:'))!
      // As an alias of another model the id stays; its own alias does not.
      const alias = line
        .replace('eb1-fast-preview:', 'eb1-quick-preview:')
        .replace('[eb1-preview-fast]', '[eb1-fast-preview]')
      const { errors } = await edit(gateway, [line, alias])
      assert.deepEqual(
        errors.map(({ message }) => message.split(', and this')[0]),
        ["1 organization of the store names the model 'eb1-preview-fast' (own)"],
      )
      const gone = await edit(gateway, [`${alias}\n`, ''])
      assert.deepEqual(
        gone.errors.map(({ message }) => message.split(', and this')[0]),
        [
          "3 organizations of the store name the model 'eb1-fast-preview' (keyed, limited, some)",
          "1 organization of the store names the model 'eb1-preview-fast' (own)",
        ],
      )
      assert.equal((await ask(gateway, 'own')).status, 200)
      const retired = 'retired: { models: [eb1-fast-preview, eb1-preview-fast] }\nplans:'
      assert.equal((await edit(gateway, ['plans:', retired])).applied, true)
      const other = { ...CHAT, model: 'eb1-preview' }
      const answers = async (id: string) => [(await ask(gateway, id)).status, (await ask(gateway, id, other)).status]
      // Not every model: none.
      assert.deepEqual(await answers('own'), [404, 403])
      assert.deepEqual(await answers('keyed'), [404, 403])
      assert.deepEqual(await answers('some'), [404, 200])
      assert.deepEqual(await answers('limited'), [404, 200])
      const headers = { authorization: `Bearer ${secretOf('own')}` }
      const models = (await (await fetch(`${gateway.url}/v1/models`, { headers })).json()) as any
      assert.deepEqual(models.data, [])
      assert.deepEqual(await series(gateway, 'sluice_accounts_left_behind'), [
        'sluice_accounts_left_behind{kind="model",name="eb1-fast-preview",standing="retired"} 3',
        'sluice_accounts_left_behind{kind="model",name="eb1-preview-fast",standing="retired"} 1',
      ])
    })

    test('the store is asked once, only when something is taken away; while it is out nothing is', async t => {
      const { t: gateway } = await start(t)
      await put(gateway, { acme1: { plan: 'silver' } })
      const { accounts } = gateway.gateway.store
      const users = accounts.users.bind(accounts)
      let asked = 0
      let out = false
      accounts.users = (...question) => {
        asked++
        if (out) throw new StoreUnavailable('the disk is gone')
        return users(...question)
      }
      assert.equal((await edit(gateway, ['  silver:', '  bronze: { limits: {} }\n  silver:'])).applied, true)
      assert.equal(asked, 0)
      out = true
      const refused = await edit(gateway, ['  bronze: { limits: {} }\n', ''])
      assert.equal(refused.applied, false)
      assert.match(
        refused.errors[0]!.message,
        /does not have the plan 'bronze' any more, and the store does not say whether its accounts use it \(the disk is gone\); reload again/,
      )
      // What is retired needs no answer.
      assert.equal((await edit(gateway, ['plans:', 'retired: { plans: [bronze] }\nplans:'])).applied, true)
      assert.equal((await edit(gateway, ['retired: { plans: [bronze] }\n', ''])).applied, true)
      out = false
      asked = 0
      assert.equal((await edit(gateway, ['  gold: { limits: { requests_per_minute: 1000 } }\n', ''])).applied, true)
      assert.equal(asked, 1)
    })

    test('workers ask their primary process, and only when something is taken away', async t => {
      const asked: object[] = []
      const usersOf: GatewayOptions['usersOf'] = async names => {
        asked.push(names)
        throw new Error('no worker answers')
      }
      const { t: gateway } = await start(t, newUrl(), PLANS, { usersOf })
      await put(gateway, { acme1: { plan: 'silver' } })
      assert.equal((await edit(gateway, ['  silver:', '  bronze: { limits: {} }\n  silver:'])).applied, true)
      const { errors } = await edit(gateway, ['  silver: { limits: {} }\n', ''])
      assert.match(errors[0]!.message, /the plan 'silver' any more, .* \(no worker answers\)/)
      assert.deepEqual(asked, [{ plan: ['silver'], model: [] }])
    })

    test('a start goes on without a plan: 503 for its accounts, 401 for keys that do not work anyway', async t => {
      const { t: first, url } = await start(t)
      await put(first, { gone: { plan: 'gold' }, disabled: { plan: 'gold', status: 'disabled' } })
      await put(first, { later: { plan: 'custom', limits: { requests_per_century: 5 } } })
      await put(first, { damaged: ['gold'] })
      await put(first, { old: { plan: 'gold' } }, { expires: '2020-01-01T00:00:00Z' })
      await first.gateway.close()
      const { t: second, clock } = await start(t, url, '')
      await eventually(async () => (await ask(second, 'gone')).code !== 'invalid_api_key')
      const codes = []
      for (const id of ['gone', 'later', 'damaged', 'disabled', 'old']) codes.push((await ask(second, id)).code)
      const unavailable = 'account_unavailable'
      assert.deepEqual(codes, [unavailable, unavailable, unavailable, 'invalid_api_key', 'invalid_api_key'])
      assert.equal((await second.post('/v1/chat/completions', { ...CHAT })).status, 200, KEY)
      assert.ok(
        (await series(second, 'sluice_accounts_left_behind')).includes(
          'sluice_accounts_left_behind{kind="plan",name="gold",standing="gone"} 3',
        ),
      )
      clock.shift += 60_000
      await ask(second, 'later')
      const told = second.log.findLast(({ message }) => message === WARNING)!.fields.refused
      assert.deepEqual(
        told.map(({ plan, such_as }: any) => [plan, such_as]),
        [
          ['gold', 'gone'],
          [undefined, 'later'],
        ],
      )
      assert.match(told[1].fault, /requests_per_century/)
    })

    test('check --store tells what accounts name and the file does not have; plain check does not ask', async t => {
      const { t: gateway } = await start(t)
      await put(gateway, { c1: { plan: 'gold', models: ['eb1-preview'] }, c2: { plan: 'gold' } })
      const run = (...args: string[]) =>
        new Promise<{ code: number; out: string; err: string }>(resolve => {
          const launcher = path.join(import.meta.dirname, '../../bin/sluice.mjs')
          const all = [launcher, ...args, '--config', gateway.file]
          execFile(process.execPath, all, (error, out, err) =>
            resolve({ code: error ? Number(error.code) : 0, out, err }),
          )
        })
      assert.equal((await run('check', '--store')).code, 0)
      const text = await readFile(gateway.file, 'utf8')
      await writeFile(gateway.file, text.replace('  gold:', '  golden:'))
      assert.equal((await run('check')).code, 0)
      const { code, err } = await run('check', '--store')
      assert.equal(code, 1)
      assert.match(err, /gateway\.yaml:\d+:1 {2}2 organizations of the store have the plan 'gold' \(c1, c2\)/)
      // The cures that are named work although the file does not have the plan.
      assert.equal((await run('org', 'set', 'c1', 'plan=golden')).code, 0)
      assert.equal((await run('key', 'revoke', 'c2', 'key_1')).code, 0)
      const refused = await run('org', 'set', 'c2', 'plan=nothing')
      assert.deepEqual([refused.code, /there is no plan 'nothing'/.test(refused.err)], [1, true])
      const shown = await run('org', 'show', 'c2')
      assert.deepEqual([shown.code, /there is no plan 'gold'/.test(shown.err)], [0, true])
      await writeFile(gateway.file, text.replace('plans:\n  gold:', 'retired: { plans: [gold] }\nplans:\n  golden:'))
      const retired = await run('check', '--store')
      assert.deepEqual(
        [retired.code, /warning: .*1 organization of the store has the plan 'gold' \(c2\)/.test(retired.err)],
        [0, true],
      )
    })
  })
