/** The Lua scripts of stores/redis/lua/: how they are made, what a linter finds, and where their errors point. */
import assert from 'node:assert/strict'
import { globSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { test } from 'node:test'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { openStore } from '../../stores/index.ts'
import { assemble, type Inserts, LUA } from '../../stores/redis/assemble.ts'
import { INSERTS, script } from '../../stores/redis/scripts.ts'
import type { RedisStore } from '../../stores/redis/store.ts'
import { bucket, options, T0, temporary } from './kit.ts'
import { lint } from './lua-lint.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

const STORES = join(import.meta.dirname, '../../stores')
/** Name, and the lists that are in it once. */
const SCRIPTS = new Set(
  globSync('**/*.ts', { cwd: STORES }).flatMap(file =>
    [...readFileSync(join(STORES, file), 'utf8').matchAll(/\bscript\(('\w+'(?:, '\w+')*)\)/g)].map(([, args]) =>
      args!.replaceAll("'", ''),
    ),
  ),
)
const made = (call: string) => script(...(call.split(', ') as Parameters<typeof script>))
const FILES = globSync('*.lua', { cwd: LUA }).map(file => basename(file, '.lua'))

const lineWith = (name: string, text: string) => {
  const index = readFileSync(join(LUA, `${name}.lua`), 'utf8')
    .split('\n')
    .findIndex(line => line.includes(text))
  assert.ok(index >= 0, text)
  return `${name}.lua:${index + 1}`
}

test('the linter finds nothing in any script', () => {
  assert.ok(SCRIPTS.size >= 30, 'the scripts are found')
  const linted = [...SCRIPTS].map(name => {
    const { lua, lines } = made(name)
    return { lines, faults: new Set(lint(lua).map(({ line, message }) => `${lines[line - 1]}: ${message}`)) }
  })
  // What several scripts include need not be read in each of them.
  const isReadElsewhere = (fault: string) =>
    fault.includes('nothing reads') &&
    linted.some(({ lines, faults }) => lines.includes(fault.slice(0, fault.indexOf(': '))) && !faults.has(fault))
  const faults = new Set(linted.flatMap(({ faults }) => [...faults]))
  assert.deepEqual([...faults].filter(fault => !isReadElsewhere(fault)).sort(), [])
})

test('the linter finds what it is for', () => {
  const texts: [string, string[]][] = [
    ['local a =', ["1 [1:9] <expression> expected near '<eof>'"]],
    ['return KEYS[1] .. other', ["1 nothing is called 'other'"]],
    ['\ncount = 1', ["2 'count' is no local: a script may not set a global"]],
    ['local function f() return 1 end\nlocal a, b, c = f()\nreturn b', ["2 nothing reads 'c'"]],
    ['local a = 1\na = 2', ["1 nothing reads 'a'"]],
    ['local a = 1\nlocal a = 2\nreturn a', ["2 'a' is declared twice in one block", "1 nothing reads 'a'"]],
    ['for i, name in ipairs(KEYS) do end', ["1 nothing reads 'i'", "1 nothing reads 'name'"]],
    ['for i, name in ipairs(KEYS) do redis.call(name) end', []],
    ['if KEYS[1] then local a = 1 end\nreturn a', ["2 nothing is called 'a'", "1 nothing reads 'a'"]],
    ['repeat local done = KEYS[1] until done\nreturn {KEYS = 1, [#ARGV] = ARGV.length}', []],
  ]
  for (const [text, faults] of texts)
    assert.deepEqual(
      lint(text).map(({ line, message }) => `${line} ${message}`),
      faults,
      text,
    )
})

test('every file belongs to a script, and every constant and list to a file', () => {
  const used = new Set([...SCRIPTS].flatMap(name => made(name).lines.map(at => at.slice(0, at.indexOf('.')))))
  assert.deepEqual([...used].sort(), FILES.sort())
  const text = FILES.map(name => readFileSync(join(LUA, `${name}.lua`), 'utf8')).join('\n')
  const code = text.replace(/'[^'\n]*'|--.*/g, '')
  const { constants, lists } = INSERTS
  for (const name of Object.keys(constants)) assert.match(code, new RegExp(`\\b${name}\\b`))
  for (const name of Object.keys(lists)) assert.match(text, new RegExp(`--@each ${name}\\b`))
  for (const line of text.split('\n')) assert.ok(line.length <= 120, line)
})

test('parts, copies and constants are inserted, and each line knows where it stands', () => {
  const folder = temporary()
  const inserts: Inserts = {
    constants: { WIDTH: 7, PLACE: "'none'" },
    lists: {
      place: [
        { PLACE: 'day', DAYS: 1 },
        { PLACE: 'month', DAYS: 30 },
      ],
    },
  }
  const write = (name: string, text: string) => writeFileSync(join(folder, `${name}.lua`), text)
  write(
    'whole',
    `-- A WORD in a comment.
local
--@each place ,
  used_PLACE, PLACE
--@end
  = KEYS[WIDTH], "WIDTH", 'it\\'s WIDTH' -- WIDTH
--@each place
--@include part
--@end

return PLACE
`,
  )
  write('part', '  -- indented\n  row.PLACE = used_PLACE * DAYS\n')
  assert.deepEqual(assemble('whole', inserts, folder), {
    lua: `local
  used_day, day
,
  used_month, month
  = KEYS[7], "WIDTH", 'it\\'s WIDTH' -- WIDTH
  row.day = used_day * 1
  row.month = used_month * 30
return 'none'`,
    lines: [2, 4, 5, 4, 6].map(line => `whole.lua:${line}`).concat('part.lua:2', 'part.lua:2', 'whole.lua:11'),
  })
  write('constant', '\nreturn MISSING')
  write('list', '--@each missing\n--@end')
  write('end', '--@each place\nreturn')
  write('directive', '--@insert part')
  for (const [name, message] of Object.entries({
    constant: "constant.lua:2: there is no constant 'MISSING'",
    list: "list.lua:1: there is no list 'missing'",
    end: "end.lua:1: no '--@end' follows",
    directive: 'directive.lua:1: unknown directive: --@insert part',
  }))
    assert.throws(() => assemble(name, inserts, folder), { message })
})

// The lines of Redis's errors are those of the text that it was sent, in which parts and copies are written out.
test("Redis's error names the line of the file", { skip: skipWithoutRedis }, async t => {
  const server = await RedisServer.start()
  t.after(() => server.stop())
  const store = (await openStore(options(server.url, { dataDir: temporary() }))) as RedisStore
  t.after(() => store.close())
  const { client } = store
  const { cells } = store.leases.keysOf('a')
  await client.redis.set(cells, 'no hash')
  const admit = () =>
    store.limits.admit({ org: 'a', id: 'r', cells: [bucket('o:rpm', 5)], amounts: [1], now: T0 }) as Promise<unknown>
  const failsAt = (at: string) => (error: Error) => {
    assert.ok(error instanceof StoreUnavailable)
    assert.match(error.message, /^redis failed: .*WRONGTYPE/)
    assert.ok(error.message.includes(at), error.message)
    assert.doesNotMatch(error.message, /user_script/)
    return true
  }
  const inAdmit = failsAt(lineWith('admit', "call('HMGET'"))
  const inReclaim = failsAt(lineWith('give_back', "call('HGET', KEYS[1], mark)"))
  // The first call of each sends the text, the second its digest.
  for (const _ of [1, 2]) {
    await assert.rejects(admit(), inAdmit)
    await assert.rejects(client.script(script('reclaim'), [cells], ['m']), inReclaim)
  }
})
