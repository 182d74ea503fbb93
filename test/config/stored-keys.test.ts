/** How many keys an organization of the store may have: those that end count, and what is there already stays. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { checkStored } from '../../config/stored.ts'
import type { OrganizationWithKeys } from '../../core/ports/accounts.ts'
import { loadText, small } from './load-text.ts'

const HOUR = 3_600_000
const NEVER = null
const LATER = '2099-12-31T23:59:59.000Z'
/** The grace of a rotation that begins now. */
const soon = () => new Date(Date.now() + 24 * HOUR).toISOString()

const { config } = await loadText(
  small({ plans: 'plans: { two: { active_keys: 2 }, three: { active_keys: 3 }, any: {} }' }),
)

/** An organization with a key for each end; `revoked` is none. */
function stored(plan: string, ...ends: (string | null)[]): OrganizationWithKeys {
  return {
    ...{ id: 'acme', version: 1, settings: JSON.stringify({ plan }) },
    keys: ends.map((end, i) => ({
      ...{ id: `k${i}`, sha256: String(i).padStart(64, '0') },
      settings: JSON.stringify(end === 'revoked' ? { status: end } : { expires: end }),
    })),
  }
}

const fault = (after: OrganizationWithKeys, before: OrganizationWithKeys | null = null): string => {
  try {
    checkStored(after, config!, before)
    return ''
  } catch (error) {
    return (error as Error).message
  }
}

test('[AUTH-5] a key that ends later counts when another is made, and one on its way out does not', () => {
  const two = stored('two', NEVER, LATER)
  assert.equal(fault(two, stored('two', NEVER)), '')
  for (const end of [NEVER, LATER, new Date(Date.now() + 25 * HOUR).toISOString()]) {
    const full =
      /^keys: acme has 3 keys that are active or staged, and plan two allows 2; revoke 1,[\s\S]*Nothing was changed/
    assert.match(fault(stored('two', NEVER, LATER, end), two), full, String(end))
    assert.match(fault(stored('two', NEVER, LATER, end)), full, 'made with its keys')
  }
  for (const end of [soon(), '2020-01-01T00:00:00.000Z', 'revoked'])
    assert.equal(fault(stored('two', NEVER, LATER, end), two), '', end)
  // A rotation at the full plan.
  assert.equal(fault(stored('two', soon(), LATER, NEVER), two), '')
  // What was on its way out, and is to stay.
  assert.match(fault(stored('two', NEVER, LATER, LATER), stored('two', NEVER, LATER, soon())), /acme has 3 keys/)
  assert.equal(fault(stored('any', ...Array(50).fill(LATER))), '')
})

test('[AUTH-5] an organization with more keys than its plan allows keeps, changes and revokes them, and makes none', () => {
  for (const end of [NEVER, LATER]) {
    const many = stored('two', end, end, end, end)
    const renamed = { ...many, settings: JSON.stringify({ plan: 'two', status: 'disabled' }) }
    assert.equal(fault(renamed, many), '')
    assert.equal(fault(stored('two', end, end, end, 'revoked'), many), '')
    assert.equal(fault(stored('two', end, end, end), many), '')
    assert.equal(fault(stored('two', soon(), end, end, end, end), many), '', 'replaced')
    assert.match(fault(stored('two', end, end, end, end, end), many), /acme has 5 keys/)
  }
  // A plan with fewer keys is given to nobody who has more without an end.
  assert.match(fault(stored('two', NEVER, NEVER, NEVER), stored('three', NEVER, NEVER, NEVER)), /plan two allows 2/)
  assert.equal(fault(stored('two', LATER, LATER, LATER), stored('three', LATER, LATER, LATER)), '')
})
