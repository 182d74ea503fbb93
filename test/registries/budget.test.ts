/**
 * A new bound needs only an entry in cli/budgets.ts. With no other change, its mechanism has its figures from the entry,
 * and /metrics and docs/security.md show it.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Amount } from '../../core/engine/budget.ts'
import { changeLine } from './one-line.ts'

changeLine(
  'cli/budgets.ts',
  'export const budgets: readonly Budget[] = [',
  'export const budgets: readonly Budget[] = [teapotBudget, ',
  "import { teapotBudget } from '../test/registries/toy-budget.ts'",
)

test('the metrics show it', async t => {
  const { startGateway } = await import('../e2e/harness.ts')
  const { teapots } = await import('./toy-budget.ts')
  const g = await startGateway()
  t.after(() => g.close())
  const leaves = await Promise.all([teapots.enter('a'), teapots.enter('a')])
  const third = teapots.enter('a')
  leaves.push(await teapots.enter('b'))
  const metrics = await (await fetch(`${g.gateway.adminAddress}/metrics`)).text()
  assert.match(metrics, /^sluice_budget_used\{budget="teapots"\} 3$/m)
  assert.match(metrics, /^sluice_budget_waiting\{budget="teapots"\} 1$/m)
  assert.doesNotMatch(metrics, /sluice_budget_refused_total\{budget="teapots"\}/, 'it counts none')
  assert.match(metrics, /^# HELP sluice_teapots Teapots in use\.\n# TYPE sluice_teapots gauge\nsluice_teapots 3$/m)
  for (const leave of leaves) leave()
  ;(await third)()
})

test('docs/security.md shows it, with the default of its setting', async () => {
  const { generated } = await import('../../docs/generate/index.ts')
  const row = generated()
    ['docs/security.md']!.split('\n')
    .find(line => line.startsWith('| teapots'))
  assert.equal(
    row,
    '| teapots in use | tenant: 2 | 3, `directory.misses`: 1,000 | 503 `route_capacity` | `sluice_budget_…{budget="teapots"}` |',
  )
})

test('each entry has a name of its own, a bound, and says what becomes of whoever is over it', async () => {
  const { budgets } = await import('../../cli/budgets.ts')
  const names = budgets.map(({ name }) => name)
  assert.equal(new Set(names).size, names.length, names.join(' '))
  const none = (amounts: Amount | readonly Amount[] | undefined) => [amounts ?? []].flat().length === 0
  for (const { name, bound, each, all, over, refused } of budgets) {
    assert.match(name, /^[a-z_]+$/)
    assert.ok(bound !== '' && !(none(each) && none(all)), name)
    assert.ok(over || refused, `${name} says nothing of whoever is over it`)
  }
})

test('codes and metrics that an entry names are there', async t => {
  const { startGateway } = await import('../e2e/harness.ts')
  const { budgets } = await import('../../cli/budgets.ts')
  const { ERRORS } = await import('../../core/canon/errors.ts')
  const g = await startGateway()
  t.after(() => g.close())
  const metrics = await (await fetch(`${g.gateway.adminAddress}/metrics`)).text()
  for (const { name, over = '', seen = '' } of budgets) {
    for (const [, status, code] of over.matchAll(/(\d{3}) `(\w+)`/g))
      assert.equal(ERRORS[code as keyof typeof ERRORS]?.status, Number(status), `${name}: ${code}`)
    for (const [metric] of seen.matchAll(/sluice_\w+/g))
      assert.ok(metrics.includes(`# TYPE ${metric} `), `${name}: no metric ${metric}`)
  }
})
