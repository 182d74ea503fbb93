/** Requests that a surface refuses, and those that it takes: one form of row for all of them, and one runner. */
import assert from 'node:assert/strict'
import { it } from 'node:test'
import type { Conversation } from '../../core/canon/conversation.ts'
import { GatewayError } from '../../core/canon/errors.ts'
import type { Surface } from '../../core/ports/surface.ts'
import { validateUnstructured } from '../../surfaces/output-format.ts'

/**
 * A body that is refused, and how.
 * - `what`: rows of the contract in brackets, and, where the body does not speak for itself, what is wrong with it.
 * - `change`: laid over a good body; a member that is undefined is left out. What is no object is the whole body.
 * - `param`: the member that the refusal names; null for none.
 * - `says`: what the message must say beside that name.
 */
export type RefusedRow = [what: string, change: unknown, code: string, param: string | null, says?: RegExp]

/** One test for each row: the code, the param, and a message that names the member; 400, and not to be retried. */
export function refuses(surface: Surface, good: () => Record<string, unknown>, rows: readonly RefusedRow[]): void {
  for (const [what, change, code, param, says] of rows) {
    it(`${what} ${JSON.stringify(change).slice(0, 90)}: ${code}`, () => {
      const error = refusal(surface, bodyOf(good(), change))
      assert.deepEqual([error.code, error.param], [code, param], error.message)
      if (param !== null) assert.ok(error.message.includes(param.split('.')[0]!), error.message)
      if (says) assert.match(error.message, says)
    })
  }
}

/** What a row sends. */
export function bodyOf(good: Record<string, unknown>, change: unknown): unknown {
  if (typeof change !== 'object' || change === null || Array.isArray(change)) return change
  return Object.fromEntries(Object.entries({ ...good, ...change }).filter(([, value]) => value !== undefined))
}

/**
 * The refusal of a body, which must be one: 400, and not to be retried.
 * @param structured the gateway offers structured output; it does not by default
 */
export function refusal(surface: Surface, body: unknown, structured = false): GatewayError {
  try {
    if (structured) surface.validate(body, 'reject')
    else validateUnstructured(surface, body as Record<string, unknown>, 'reject')
    surface.parse(body)
  } catch (error) {
    assert.ok(error instanceof GatewayError, String(error))
    assert.equal(error.status, 400)
    assert.equal(error.type, 'invalid_request_error')
    assert.equal(error.retriable, false)
    return error
  }
  return assert.fail(`accepted: ${JSON.stringify(body).slice(0, 300)}`)
}

/** The conversation of a body, which must be accepted as it is. */
export function accepted(surface: Surface, body: unknown): Conversation {
  assert.deepEqual(surface.validate(body, 'reject'), [])
  return surface.parse(body)
}
