// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the notation of gateway.yaml
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  appendFileSync,
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { VERBS } from '../../cli/main.ts'
import { columns, fold } from '../../cli/terminal.ts'
import { folder, sluice, YAML } from './capture.ts'

const ROOT = join(import.meta.dirname, '../..')

test('help lists every verb; a wrong call is exit code 2', async () => {
  const help = await sluice('--help')
  assert.equal(help.code, 0)
  for (const verb of Object.keys(VERBS)) assert.match(help.out, new RegExp(`^  ${verb} `, 'm'))
  assert.equal((await sluice()).code, 2)
  const typo = await sluice('chekc')
  assert.equal(typo.code, 2)
  assert.match(typo.err, /no verb 'chekc'; did you mean 'check'\?/)
  const unlike = await sluice('toString')
  assert.equal(unlike.code, 2)
  assert.equal(unlike.err, "sluice: there is no verb 'toString'. `sluice --help` lists them.")
  const option = await sluice('check', '--nope')
  assert.equal(option.code, 2)
  // Node's own message goes on with how to pass a name that begins with a hyphen.
  assert.match(
    option.err,
    /^sluice check: there is no option '--nope'; `sluice check --help` lists them\nUsage: sluice check/,
  )
  const near = await sluice('check', '--stict')
  assert.match(near.err, /^sluice check: there is no option '--stict'; did you mean '--strict'\?\nUsage/)
  const other = await sluice('admin-token', 'x', '--config', 'f')
  assert.match(
    other.err,
    /^sluice admin-token: there is no option '--config'; .* lists them\nUsage: sluice admin-token/,
  )
})

test('every verb explains itself within 80 columns', async () => {
  for (const verb of ['start', 'init', 'try', 'check', 'explain', 'list', 'key', 'plugin', 'store', 'trace']) {
    for (const args of [
      [verb, '--help'],
      ['help', verb],
    ]) {
      const { code, out } = await sluice(...args)
      assert.equal(code, 0)
      assert.match(out, new RegExp(`^Usage: sluice ${verb}`))
      assert.deepEqual(
        out.split('\n').filter(line => line.length > 80),
        [],
      )
    }
  }
})

test('check: a good file, a bad one, one that is not there', async t => {
  const { file, dir } = folder(t)
  const good = await sluice('check', file)
  assert.deepEqual([good.code, good.err], [0, ''])
  assert.match(good.out, /is good: 2 pipelines, 2 routes, 1 model, 2 organizations\./)

  writeFileSync(file, YAML.replace('- upstream ', '- upsteram ').replace('plan: tier1', 'plan: tier9'))
  const bad = await sluice('check', '--config', file)
  assert.equal(bad.code, 1)
  assert.match(
    bad.err,
    /gateway\.yaml:17:7 {2}there is no plugin 'upsteram'; did you mean 'upstream'\?\n.*no plan 'tier9'.*\n.*has 2 faults\./,
  )

  const none = await sluice('check', join(dir, 'none.yaml'))
  assert.equal(none.code, 1)
  assert.match(none.err, /no such file/)
  assert.equal((await sluice('check', file, file)).code, 2)
})

test('check warns on standard error and still passes', async t => {
  const { file } = folder(t, YAML.replace('store:', 'secret: "short"\nstore:'))
  const { code, out, err } = await sluice('check', file)
  assert.equal(code, 0)
  assert.match(err, /^warning: .*:5:9 {2}the secret is short/)
  assert.match(out, /1 warning/)
})

test('explain shows each phase in the order it runs', async t => {
  const { file } = folder(t)
  const { code, out } = await sluice('explain', file)
  assert.equal(code, 0)
  assert.match(out, /pipeline completions\n {2}POST \/v1\/chat\/completions {2}surface chat/)
  assert.match(out, /1 +auth +fills identity\n {2}· +\(body\)/)
  assert.match(out, /3 +model-access +implied by version 1; needs[\s\S]*12 +upstream +answers; needs/)
  assert.match(out, /below the terminal[\s\S]*header-stamp/)
  assert.deepEqual(
    out.split('\n').filter(line => line.length > 80),
    [],
  )
  const one = await sluice('explain', file, '--pipeline', 'models')
  assert.ok(!one.out.includes('pipeline completions'))
  assert.equal((await sluice('explain', file, '--pipeline', 'nope')).code, 1)
})

test('list names plugins, dialects and plans', async () => {
  const { code, out } = await sluice('list')
  assert.equal(code, 0)
  for (const word of ['token-estimate', 'openai-responses', 'tier5', '(terminal)']) assert.ok(out.includes(word), word)
  assert.deepEqual(
    out.split('\n').filter(line => line.length > 80),
    [],
  )
})

test('[AUTH-3] key new shows the secret once and writes only its digest', async t => {
  const { file, read } = folder(t)
  const { code, out, err } = await sluice('key', 'new', 'demo', '--config', file)
  assert.equal(code, 0)
  assert.match(out, /^sk-[A-Za-z0-9_-]{43}$/)
  assert.match(err, /key_1 of demo/)
  const digest = createHash('sha256').update(out).digest('hex')
  const line = /\n {6}- \{ id: key_1, sha256: "(\w+)", hint: (\S+), creator: "?cli:\S+, created: \S+, status: active \}/
  const [whole, written, hint] = line.exec(read())!
  assert.deepEqual([written, hint!.replaceAll('"', '')], [digest, out.slice(-4)])
  assert.equal(read().replace(whole, ''), YAML)
  assert.ok(!read().includes(out))
  assert.equal((await sluice('check', file)).code, 0)
})

test('[AUTH-5] an edit keeps the file’s mode and owner, and goes through a link', async t => {
  const { dir, file, read } = folder(t)
  const link = join(dir, 'link.yaml')
  symlinkSync('gateway.yaml', link)
  chmodSync(file, 0o664)
  const root = process.getuid?.() === 0
  if (root) chownSync(file, 12345, 12346)
  assert.equal((await sluice('key', 'new', 'demo', '--id', 'fresh', '--config', link)).code, 0)
  assert.ok(lstatSync(link).isSymbolicLink())
  assert.match(read(), /id: fresh/)
  const { mode, uid, gid } = statSync(file)
  assert.equal(mode & 0o777, 0o664)
  if (root) assert.deepEqual([uid, gid], [12345, 12346])
})

test('[AUTH-5] stage, revoke, activate: one line each changes', async t => {
  const { file, read } = folder(t)
  const staged = await sluice('key', 'stage', 'demo', 'key_demo', '--config', file)
  assert.equal(staged.code, 0)
  assert.match(
    read(),
    /id: key_demo_2, sha256: "[0-9a-f]{64}", hint: \S{4,6}, creator: "?cli:\w+"?, created: \S+, status: staged \}/,
  )
  assert.ok(staged.err.includes(`npx sluice key revoke demo key_demo --config ${file}, then npx sluice key activate`))
  assert.equal((await sluice('key', 'revoke', 'demo', 'key_demo', '--config', file)).code, 0)
  assert.equal((await sluice('key', 'activate', 'demo', 'key_demo_2', '--config', file)).code, 0)
  const left = read().replace(/ {6}- \{ id: key_demo_2.*\n/, '')
  assert.equal(left, YAML.replace('status: active', 'status: revoked'))
  const list = await sluice('key', 'list', '--config', file)
  assert.match(list.out, /demo +key_demo +revoked +f77894fd… +sk-demo\ndemo +key_demo_2 +active/)
  const again = await sluice('key', 'revoke', 'demo', 'key_demo', '--config', file)
  assert.deepEqual([again.code, again.err], [1, 'key_demo is already revoked'])
  const back = await sluice('key', 'activate', 'demo', 'key_demo', '--config', file)
  assert.deepEqual([back.code, back.err], [1, 'key_demo is revoked, and stays so; make a new key instead'])
})

test('a key of the file is labelled, set, shown, replaced with what it may do, and deleted', async t => {
  const { file, read } = folder(t)
  const good = async (...args: string[]) => {
    const { code, out, err } = await sluice('key', ...args, '--config', file)
    assert.equal(code, 0, err)
    return out
  }
  const secret = await good('new', 'demo', 'label=CI server', 'requests_per_minute=5', 'models=[eb1-preview]')
  const shown = JSON.parse(await good('show', 'demo', 'key_1', '--json'))
  assert.deepEqual(
    [shown.label, shown.hint, shown.limits, shown.models, shown.last_used],
    ['CI server', secret.slice(-4), { requests_per_minute: 5 }, ['eb1-preview'], null],
  )
  await good('set', 'demo', 'key_1', 'requests_per_minute=7', 'label=', 'expires=2999-01-01T00:00:00Z')
  const set = JSON.parse(await good('show', 'demo', 'key_1', '--json'))
  assert.deepEqual(
    [set.label, set.limits, set.expires],
    [undefined, { requests_per_minute: 7 }, '2999-01-01T00:00:00.000Z'],
  )
  assert.match(
    await good('show', 'demo', 'key_1'),
    /ends in \S{4}[\s\S]*last used +never\n[\s\S]*requests_per_minute +7/,
  )
  assert.match(
    await good('show', 'demo', 'key_demo'),
    /last used +not within 400 days/,
    'nothing says when it was made',
  )
  await good('stage', 'demo', 'key_1')
  const staged = JSON.parse(await good('show', 'demo', 'key_2', '--json'))
  assert.deepEqual(
    [staged.status, staged.limits, staged.models, staged.expires],
    ['staged', { requests_per_minute: 7 }, ['eb1-preview'], null],
  )
  for (const id of ['key_1', 'key_2']) await good('delete', 'demo', id)
  assert.equal(read(), YAML)
  await good('delete', 'demo', 'key_demo')
  assert.match(read(), /keys:\n(.*\n)? *\[\]/)
  assert.equal(await good('list', 'demo'), 'no keys')
  for (const [member, why] of [
    ['status=revoked', /key activate and key revoke/],
    ['hint=abcd', /made with the key/],
  ] as const) {
    await good('new', 'empty')
    const { code, err } = await sluice('key', 'set', 'empty', 'key_1', member, '--config', file)
    assert.equal(code, 2)
    assert.match(err, why)
    await good('delete', 'empty', 'key_1')
  }
})

test('key edits a flow mapping, an empty list, and an included file', async t => {
  const { file, read, dir } = folder(t)
  assert.equal((await sluice('key', 'new', 'empty', '--id', 'k', '--staged', '--config', file)).code, 0)
  assert.match(
    read(),
    /empty: \{ plan: tier1, keys: \[\{ id: k, sha256: "[0-9a-f]{64}",[^}]* status: staged \}\] \} {3}# no keys yet/,
  )

  const [main, accounts] = YAML.split('organizations:\n') as [string, string]
  writeFileSync(file, `${main}organizations: { file: ./accounts.yaml }\n`)
  const text = accounts.replace(/^ {2}/gm, '').replace('empty: { plan: tier1 }', 'empty:\n  plan: tier1\n  keys: []')
  writeFileSync(join(dir, 'accounts.yaml'), text)
  const before = read()
  const { code, err } = await sluice('key', 'new', 'empty', '--config', file)
  assert.equal(code, 0, err)
  assert.equal(read(), before)
  assert.equal((await sluice('check', file)).code, 0)
  assert.match((await sluice('key', 'list', 'empty', '--config', file)).out, /empty +key_1 +active/)
})

test('[AUTH-5] an edit that would not load is not written', async t => {
  const { file, read } = folder(
    t,
    YAML.replace('organizations:', 'plans: { tier1: { active_keys: 1 } }\n\norganizations:'),
  )
  const before = read()
  const { code, err } = await sluice('key', 'new', 'demo', '--config', file)
  assert.equal(code, 1)
  assert.match(err, /2 keys that are active or staged, and plan tier1 allows 1[\s\S]*Nothing was changed/)
  assert.equal(read(), before)
  for (const [args, said] of [
    [['new', 'nobody'], /no organization 'nobody'/],
    [['revoke', 'demo', 'nokey'], /no key 'nokey'/],
  ] as const) {
    const run = await sluice('key', ...args, '--config', file)
    assert.equal(run.code, 1)
    assert.match(run.err, said)
  }
  for (const args of [
    [],
    ['burn', 'demo'],
    ['new'],
    ['revoke', 'demo'],
    ['new', 'demo', 'x'],
    ['new', 'demo', 'x', 'y'],
  ]) {
    assert.equal((await sluice('key', ...args, '--config', file)).code, 2, args.join(' '))
  }
})

test('plugin new writes a plugin, its test and the lines that use it, and all of it works', async t => {
  const { file, read, dir } = folder(t)
  const { code, out, err } = await sluice('plugin', 'new', 'tenant-tag', '--config', file)
  assert.equal(code, 0, err)
  assert.ok(existsSync(join(dir, 'my-plugins/tenant-tag.ts')) && out.includes('tenant-tag.test.ts'))
  const expected =
    YAML.replace('    - token-estimate\n', '    - tenant-tag\n    - token-estimate\n') +
    '\nplugins: [./my-plugins/tenant-tag.ts]\n'
  assert.equal(read(), expected)
  const check = await sluice('check', file)
  assert.deepEqual([check.code, check.err], [0, ''])
  const explained = await sluice('explain', file)
  assert.match(explained.out, /5 +tenant-tag/)
  assert.match(err, /There it may change what is asked/)

  const second = await sluice(
    'plugin',
    'new',
    'other',
    '--pipeline',
    'models',
    '--dir',
    join(dir, 'more'),
    '--config',
    file,
  )
  assert.equal(second.code, 0, second.err)
  assert.ok(read().includes('models: [auth, other, models, header-stamp]'))
  assert.ok(read().includes('plugins: [./my-plugins/tenant-tag.ts, ./more/other.ts]'))
  assert.equal((await sluice('check', file)).code, 0)

  for (const [args, expectedCode] of [
    [['new', 'auth'], 1],
    [['new', 'tenant-tag'], 1],
    [['new', 'x', '--pipeline', 'nope'], 1],
    [['new', 'Bad_Name'], 2],
    [['new'], 2],
    [['old', 'x'], 2],
    [[], 2],
    [['test'], 2],
  ] as const) {
    assert.equal((await sluice('plugin', ...args, '--config', file)).code, expectedCode, args.join(' '))
  }
})

// Without them an editor did not know `sluice`, and an untyped test hid three type errors.
test('plugin new: the files that it writes are checked by TypeScript, and what is there already stays', async t => {
  const { file, dir } = folder(t)
  const at = (name: string) => join(dir, 'my-plugins', name)
  assert.equal((await sluice('plugin', 'new', 'tenant-tag', '--config', file)).code, 0)
  const tsc = () =>
    spawnSync(process.execPath, [join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', at('tsconfig.json')], {
      encoding: 'utf8',
    })
  const good = tsc()
  assert.deepEqual([good.status, good.stdout], [0, ''])
  appendFileSync(at('tenant-tag.test.ts'), "\nawait runPlugin(plugin, { config: { require_heder: 'x' } })\n")
  const bad = tsc()
  assert.match(bad.stdout, /tenant-tag\.test\.ts.*require_heder/)
  assert.equal(bad.status === 0, false)

  assert.deepEqual(JSON.parse(readFileSync(at('package.json'), 'utf8')).type, 'module')
  writeFileSync(at('tsconfig.json'), '{}')
  const second = await sluice('plugin', 'new', 'other', '--config', file)
  assert.equal(second.code, 0)
  assert.doesNotMatch(second.out, /tsconfig/)
  assert.equal(readFileSync(at('tsconfig.json'), 'utf8'), '{}')
})

test('plugin new --layer writes a layer of each place, just above the terminal; types, test and configuration are good', async t => {
  const { file, dir } = folder(t)
  const at = (name: string) => join(dir, 'my-plugins', name)
  for (const place of ['call', 'attempt', 'wire']) {
    const { code, out, err } = await sluice('plugin', 'new', `my-${place}`, '--layer', place, '--config', file)
    assert.equal(code, 0, err)
    assert.match(out, /in pipeline completions, above upstream/)
    const tested = spawnSync(process.execPath, [
      join(ROOT, 'bin/sluice.mjs'),
      'plugin',
      'test',
      at(`my-${place}.test.ts`),
    ])
    assert.equal(tested.status, 0, String(tested.stdout))
  }
  const { code, err } = await sluice('check', file)
  assert.deepEqual([code, err], [0, ''])
  const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
  const typed = spawnSync(process.execPath, [tsc, '-p', at('tsconfig.json')], { encoding: 'utf8' })
  assert.deepEqual([typed.status, typed.stdout], [0, ''])

  const other = await sluice('plugin', 'new', 'x', '--layer', 'wire', '--pipeline', 'models', '--config', file)
  assert.deepEqual([other.code, /calls no model/.test(other.err)], [1, true])
  assert.equal((await sluice('plugin', 'new', 'x', '--layer', 'wires', '--config', file)).code, 2)
})

test('plugin new --dialect writes a dialect that a provider can speak; types, test and configuration are good', async t => {
  const { file, dir } = folder(t)
  const at = (name: string) => join(dir, 'my-plugins', name)
  const made = await sluice('plugin', 'new', 'acme', '--dialect', '--config', file)
  assert.deepEqual([made.code, /under plugins/.test(made.out), /dialect: acme/.test(made.err)], [0, true, true])
  const text = readFileSync(file, 'utf8')
  assert.doesNotMatch(text, /^ *- acme$/m)
  writeFileSync(
    file,
    text.replace(/^providers:$/m, 'providers:\n  acme: { dialect: acme, base_url: "http://127.0.0.1:9" }'),
  )
  assert.notEqual(readFileSync(file, 'utf8'), text)
  const { code, err } = await sluice('check', file)
  assert.deepEqual([code, err], [0, ''])
  const tested = spawnSync(process.execPath, [join(ROOT, 'bin/sluice.mjs'), 'plugin', 'test', at('acme.test.ts')])
  assert.equal(tested.status, 0, String(tested.stdout))
  const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
  const typed = spawnSync(process.execPath, [tsc, '-p', at('tsconfig.json')], { encoding: 'utf8' })
  assert.deepEqual([typed.status, typed.stdout], [0, ''])

  const again = await sluice('plugin', 'new', 'acme', '--dialect', '--config', file)
  assert.match(again.err, /there is already a dialect 'acme'/)
  assert.equal((await sluice('plugin', 'new', 'x', '--dialect', '--layer', 'wire', '--config', file)).code, 2)
})

test('text folds at 80 columns', () => {
  assert.equal(fold('aaa bbb ccc', 7, 2), 'aaa bbb\n  ccc')
  assert.equal(fold('aaaaaaaaaa', 4), 'aaaaaaaaaa')
  assert.equal(
    columns(
      [
        ['a', 'one two three'],
        ['bbb', 'x'],
      ],
      14,
    ),
    '  a    one two\n       three\n  bbb  x',
  )
})

// A machine that builds or bills should not hold providers' keys. These commands call no provider, and once refused to
// run without every variable of the file: each ended with exit code 1 and "environment variable … is not set".
test('commands that call no provider warn of a variable that is not set; start and check --strict refuse it', async t => {
  const { file } = folder(
    t,
    YAML.replace('base_url: simulator', 'base_url: "https://127.0.0.1:9/v1", api_key: "${NO_SUCH_KEY_HERE}"'),
  )
  const body = join(file, '..', 'body.json')
  writeFileSync(body, JSON.stringify({ model: 'eb1-preview', messages: [{ role: 'user', content: 'hi' }] }))
  for (const args of [
    ['check', file],
    ['explain', file],
    ['route', file, '--body', body],
    ['key', 'list', '--config', file],
    ['key', 'new', 'demo', '--config', file],
  ]) {
    const { code, err } = await sluice(...args)
    assert.equal(code, 0, `${args.join(' ')}: ${err}`)
    assert.match(err, /^warning: .*gateway\.yaml:27:\d+ {2}environment variable NO_SUCH_KEY_HERE is not set/m)
  }
  for (const args of [
    ['check', '--strict', file],
    ['start', file],
    ['try', file],
  ]) {
    const { code, err } = await sluice(...args)
    assert.equal(code, 1)
    assert.match(err, /^\S*gateway\.yaml:27:\d+ {2}environment variable NO_SUCH_KEY_HERE is not set/)
  }
})

test('where no placeholder can stand, the fault is the variable that is not set', async t => {
  const { file } = folder(t, YAML.replace('"sqlite::memory:"', '"${NO_SUCH_STORE}"'))
  const { code, err } = await sluice('check', file)
  assert.equal(code, 1)
  assert.match(err, /:5:8 {2}environment variable NO_SUCH_STORE is not set; [^\n]*\n[^\n]* has 1 fault\.$/)
})

// Such a pipeline could not be told from one with limits, and a plugin in a place where it does nothing from one that works.
test('explain marks what is unlimited or open, and check and explain a plugin that can do nothing where it stands', async t => {
  const chain = (name: string, list: string) =>
    `  ${name}: ${list}\nroutes:\n  - { match: POST /${name}, pipeline: ${name} }`
  const relay = (options: string) => `[{ proxy: { target: "http://127.0.0.1:9", api_key: k, ${options} } }]`
  const open = folder(t, YAML.replace('\nroutes:', `\n${chain('relay', relay('unlimited: true, open: true'))}`))
  const { code, out } = await sluice('explain', open.file, '--pipeline', 'relay')
  assert.equal(code, 0)
  assert.match(out, /unlimited +proxy serves without limits, without a spend cap and without a$/m)
  assert.match(out, /open +proxy lends its credential to everybody who reaches the listener/)
  assert.ok(!(await sluice('explain', open.file, '--pipeline', 'completions')).out.includes('unlimited'))
  assert.equal(
    (await sluice('check', folder(t, YAML.replace('\nroutes:', `\n${chain('relay', relay(''))}`)).file)).code,
    1,
  )

  const { dir, file } = folder(
    t,
    `${YAML.replace('models: [auth, models, header-stamp]', 'models: [auth, models, tags, header-stamp, registers]')}plugins: [./tags.js, ./registers.js]\n`,
  )
  const plugin = (name: string, hooks: string) =>
    writeFileSync(
      join(dir, `${name}.js`),
      `export default { name: '${name}', summary: 'X.', create: () => (${hooks}) }\n`,
    )
  plugin('tags', '{ onRequest: () => undefined, close() {} }')
  plugin('registers', '{ close() {} }')
  const checked = await sluice('check', file)
  assert.equal(checked.code, 0, checked.err)
  assert.match(
    checked.err,
    /gateway\.yaml:20:26 {2}tags does nothing here: it is listed below models \(line 20, column 18\), and has hooks for the way down only\. Move it above\./,
  )
  assert.equal(checked.err.split('\n').length, 1)
  const explained = await sluice('explain', file, '--pipeline', 'models')
  assert.match(explained.out, /tags +does nothing here: none of its hooks can run/)
  assert.equal(explained.out.split('does nothing').length, 2)
})
