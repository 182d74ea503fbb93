/** The budget of work before admission: who is refused when it is full, and by which bound. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Preparation, PreparedRequest } from '../../plugins/shared/preparation.ts'
import { PREPARATION } from './kit.ts'

const BOUNDS = {
  ...PREPARATION,
  ...{ requests: 8, bytes: 800, organization_requests: 6, organization_bytes: 600 },
}

const enter = (ledger: Preparation, organization: string, bytes = 0) => ledger.enter(organization, bytes, BOUNDS)
function entered(ledger: Preparation, organization: string, bytes = 0): PreparedRequest {
  const result = enter(ledger, organization, bytes)
  assert.ok(result instanceof PreparedRequest, JSON.stringify(result))
  return result
}
function codeOf(result: PreparedRequest | ReturnType<PreparedRequest['take']>): string | undefined {
  if (result === undefined || result instanceof PreparedRequest) return undefined
  assert.ok(result.kind === 'error')
  assert.equal(result.error.horizonMs, 1000)
  // [LIM-5] What is known of a bound of the organization is told; a bound of the process is not the account's.
  const { code, headers, details } = result.error
  const own = code === 'concurrency_limit_exceeded'
  assert.deepEqual(headers, own ? { 'x-ratelimit-scope': 'org' } : undefined)
  assert.equal(details?.['dimension'], own ? 'concurrency' : undefined)
  return result.error.code
}

test('an organization at its bound is refused with 429, whatever room the process has', () => {
  const ledger = new Preparation()
  const six = Array.from({ length: 6 }, () => entered(ledger, 'a'))
  assert.equal(codeOf(enter(ledger, 'a')), 'concurrency_limit_exceeded')
  six[0]!.leave()
  six[0]!.leave()
  entered(ledger, 'a', 600)
  assert.equal(codeOf(enter(ledger, 'a', 1)), 'concurrency_limit_exceeded')
  assert.deepEqual(ledger.refused, { organization: 2, process: 0 })
})

test('a full process refuses who holds more than a share, with 503, and nobody below it', () => {
  const ledger = new Preparation()
  for (let i = 0; i < 6; i++) entered(ledger, 'a')
  entered(ledger, 'b')
  entered(ledger, 'b')
  // Eight of eight are held; three organizations have a share of 2⅔ each.
  for (let i = 0; i < 2; i++) entered(ledger, 'c')
  assert.equal(codeOf(enter(ledger, 'c')), 'route_capacity')
  assert.equal(codeOf(enter(ledger, 'b')), 'route_capacity')
  assert.equal(ledger.refused.process, 2)
})

test('bytes count as they arrive, are given back at the end, and never after it', () => {
  const ledger = new Preparation()
  const first = entered(ledger, 'a', 100)
  const second = entered(ledger, 'a')
  assert.equal(second.take(500), undefined)
  assert.equal(codeOf(second.take(1)), 'concurrency_limit_exceeded')
  assert.equal(codeOf(first.take(1)), 'concurrency_limit_exceeded')
  assert.deepEqual(ledger.held, { requests: 2, bytes: 600 })
  second.leave()
  assert.equal(second.take(1000), undefined)
  assert.deepEqual(ledger.held, { requests: 1, bytes: 100 })
  // Alone, a request may be larger than the bound of its organization, not than the process's.
  assert.equal(first.take(700), undefined)
  assert.equal(codeOf(first.take(1)), 'route_capacity')
  first.leave()
  assert.deepEqual(ledger.held, { requests: 0, bytes: 0 })
})
