import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AGENTS } from './clients.ts'
import { compare, MODELS, markdown, outcomesOf } from './table.ts'

const result = (feature: string, model: string, outcome: string) => ({ feature, model, outcome, detail: '' })

test('outcomes have one word where all models agree, and say which did not answer', () => {
  const results = Object.values(MODELS).map(model => result('plain', model, 'ok'))
  results.push(result('n=2', MODELS.C, '400'), result('n=2', MODELS.M, 'ok'))
  const outcomes = outcomesOf(results)
  assert.deepEqual(outcomes, { plain: 'ok', 'n=2': '400 missing ok missing' })
  const one = { version: '1.2', day: '2026-11-27', features: outcomes }
  assert.match(
    markdown({ one }),
    /^\| one \| 1\.2, 2026-11-27 \| plain \| ok \| ok \| ok \| ok \|\n\| one \| 1\.2, 2026-11-27 \| n=2 \| 400 \|/m,
  )
})

test('worse than expected is a regression, better is not, and a client that did not run is neither', () => {
  const expected = { one: { a: 'ok', b: '400', c: 'ok ok ok 400', gone: 'ok' }, other: { a: 'ok' } }
  const found = { one: { a: 'ok ok failed ok', b: 'ok', c: 'ok', new: '404', fine: 'ok' } }
  const { regressions, gains } = compare(expected, found)
  assert.deepEqual(
    regressions.map(line => line.split(':')[0]),
    ['one, a', 'one, gone', 'one, new'],
  )
  assert.deepEqual(
    gains.map(line => line.split(':')[0]),
    ['one, b', 'one, c', 'one, fine'],
  )
  assert.deepEqual(compare(expected, { one: expected.one }), { regressions: [], gains: [] })
})

test('docs/clients.md has what each agent is set up with', () => {
  const task = { url: 'http://gateway.test', key: 'sk-one', model: 'm-1', prompt: 'x', folder: '/w' }
  for (const { name, runs } of AGENTS) {
    for (const run of runs) {
      const set = JSON.stringify([run.files?.(task), run.environment?.(task), run.arguments(task)])
      for (const part of [task.url, task.key, task.model]) assert.ok(set.includes(part), `${name}: ${part} in ${set}`)
      assert.doesNotMatch(set, /127\.0\.0\.1:8080|sk-demo|eb1-preview/, name)
    }
  }
})
