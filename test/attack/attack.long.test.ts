/**
 * The attack itself, small: every part runs to its end against a gateway and says what it tried. What it finds depends
 * on the machine's speed, so its breaches are not asserted, except that no gateway ended by itself.
 */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { test } from 'node:test'
import { KINDS } from './floods.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const PARTS = ['bodies', 'large', 'sockets', 'tenants', 'upstreams', 'crash', 'flood']

interface Report {
  seed: number
  results: { part: string; cases: number }[]
  breaches: { part: string; promise: string; detail: string }[]
}

function attack(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const command = [...process.execArgv.filter(flag => flag.startsWith('--disable')), join(ROOT, 'test/attack/index.ts')]
  return new Promise(resolve =>
    execFile(process.execPath, [...command, ...args], (error, out, err) =>
      resolve({ code: error ? Number(error.code ?? 1) : 0, out, err }),
    ),
  )
}

test('a small attack: each part tries something, no gateway crashes, breaches and exit code agree', async () => {
  const { code, out, err } = await attack('--minutes', '0.05', '--seed', '1', '--json')
  assert.ok(out, err)
  const report: Report = JSON.parse(out)
  assert.equal(report.seed, 1)
  for (const part of PARTS) {
    const cases = report.results
      .filter(result => result.part.startsWith(part))
      .reduce((sum, { cases }) => sum + cases, 0)
    assert.ok(cases > 0, `${part} tried nothing`)
  }
  const floods = report.results.map(({ part }) => part).filter(part => part.startsWith('flood '))
  assert.deepEqual(
    floods.sort(),
    Object.keys(KINDS)
      .map(kind => `flood ${kind}`)
      .sort(),
  )
  assert.deepEqual(
    report.breaches.filter(({ detail }) => /ended by itself|could not go on/.test(detail)),
    [],
  )
  assert.equal(code, report.breaches.length > 0 ? 1 : 0)
})

test('some floods can be chosen, and then nothing else runs', async () => {
  const { out, err } = await attack('--minutes', '0.1', '--seed', '1', '--json', '--floods', 'strangers,digits')
  assert.ok(out, err)
  const { results }: Report = JSON.parse(out)
  assert.deepEqual(results.map(({ part }) => part).sort(), ['flood digits', 'flood strangers'])
  // Each of these requests is refused: by its credential, or by its size.
  for (const { part, cases } of results) assert.ok(cases > 0, `${part} tried nothing`)
})

test('an unknown part, an unknown flood and a seed that is no integer are refused', async () => {
  assert.equal((await attack('--only', 'everything')).code, 2)
  assert.equal((await attack('--floods', 'digits,everything')).code, 2)
  assert.equal((await attack('--seed', 'x')).code, 2)
})
