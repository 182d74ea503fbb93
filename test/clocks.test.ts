/**
 * No test may read the machine's clock or sleep. On a busy machine such a test fails, or proves nothing: one test
 * asserted that a timeline ends within 50 ms of its exchange, and failed under load. Instead, wait with `eventually`,
 * give the code under test a clock that the test moves (core/tools/clock.ts), count events, or check their order.
 */
import assert from 'node:assert/strict'
import { globSync, readFileSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import { test } from 'node:test'

const CLOCK =
  /performance\.now|hrtime|timers\/promises|\bset(?:Timeout|Interval)\(|AbortSignal\.timeout|\btimersOf\(|Date\.now\(\)\)? *[-<>]|[-<>]=? *Date\.now\(\)/

/** For each file: the purpose of its timers. None of them synchronises two things, and none is measured. */
const ALLOWED: Record<string, string> = {
  'eventually.ts': 'the waits themselves',
  'admin/accounts-page.long.test.ts': 'the end of a grace period is a week from when the button was pressed',
  'admin/life.test.ts': 'the end of a grace period is a week from when the organization was deleted',
  'admin/load.ts': 'the pace of the traffic that the dashboard shows',
  'admin/log.test.ts': 'lets a timer of the log fire between two lines',
  'chain/clock.test.ts': 'a timer that must not fire',
  'cli/launcher.test.ts': 'keeps a child process alive until it is signalled',
  'cli/org.test.ts': 'the end of a grace period is an hour from when the command ran',
  'clients/servers.ts': 'kills a server that does not end when it is told to',
  'config/watch.test.ts': 'keeps this process alive while a file is watched',
  'e2e/drain.test.ts': 'outlasts a timer of the drain; a plugin that leaves its timer behind',
  'e2e/shared-store.long.test.ts': 'outlasts store.timeout, by which nothing may be refused',
  'fake-upstream/server.ts': 'lets what was written reach the gateway before its connection is reset',
  'golden/kit/exchanges.ts': 'gives up on an answer that never comes',
  'golden/kit/gateway.ts': 'gives up on a gateway that never gets ready',
  'golden/kit/socket.ts': 'gives up on a message that never comes',
  'golden/kit/wire.ts': 'gives up on a connection that stays open without an answer',
  'listener/exchange.test.ts': 'a handler that answers in a later turn',
  'listener/native.long.test.ts': 'clients that drip, and the tick that keeps them alive',
  'listener/slow.long.test.ts': 'clients that drip',
  'mutants/run.ts': 'ends a run of tests that a mutant keeps from ending',
  'stores/crash-child.ts': 'work that takes a while, killed at any point of it',
  'stores/redis-server.ts': 'gives up on a command that a stopped server will not answer',
  'stores/redis.test.ts': 'lets a delivery be tried again while Redis is down',
  'stores/slow-disk.long.test.ts': 'outlasts store.timeout, by which nothing may have been written',
}

/** Suites that run for the minutes that they are given, and measure what a gateway does meanwhile. */
const MEASURES = /^(?:attack|soak)\/(?!.*\.test\.ts$)/

test('tests look at no clock and do not sleep, but for those listed with a reason', () => {
  const found = new Map<string, string[]>()
  for (const file of globSync(join(import.meta.dirname, '**/*.ts'))) {
    const name = relative(import.meta.dirname, file)
    if (file === import.meta.filename || MEASURES.test(name)) continue
    const lines = readFileSync(file, 'utf8').split('\n')
    const hits = lines.flatMap((line, i) => (CLOCK.test(line) ? [`${i + 1}: ${line.trim()}`] : []))
    if (hits.length > 0) found.set(name, hits)
  }
  const unlisted = [...found].filter(([file]) => !(file in ALLOWED))
  assert.deepEqual(unlisted, [], `say in ${basename(import.meta.filename)} what the timer is for, or do without`)
  assert.deepEqual(
    Object.keys(ALLOWED).filter(file => !found.has(file)),
    [],
    'no longer needed in the list',
  )
})
