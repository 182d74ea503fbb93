/**
 * Every sentence of the specification of the service, one row each, against a gateway that was started as an operator
 * starts it. `npm run spec` prints the table. To add a row, write one object in `rows/`.
 */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import type { Reply } from './kit/reply.ts'
import { tryRows } from './kit/run.ts'
import { ROWS } from './rows.ts'

const refusals = new Map<string, Reply>()
const results = await tryRows(
  ROWS.filter(row => !row.long),
  true,
  refusals,
)

for (const [section, list] of Map.groupBy(results, ({ row }) => row.section)) {
  describe(section, () => {
    for (const { row, verdict, evidence, fault } of list) {
      const reach = verdict === 'out of reach' && evidence
      test(`${row.id}, ${row.at}: ${row.says}`, { skip: reach }, () => assert.equal(fault, undefined))
    }
  })
}

test('each row can fail, or says why it cannot be seen from outside', () => {
  for (const { id, check, beyond } of ROWS) assert.ok((check === undefined) !== (beyond === undefined), id)
})

/** How often an official SDK sends a request whose every answer is this refusal, byte for byte. */
async function sends({ surface, status, headers, raw }: Reply): Promise<number> {
  let sent = 0
  const fetch = async () => {
    sent++
    return new Response(raw, { status, headers })
  }
  const options = { apiKey: 'k', baseURL: 'http://gateway.test/v1', maxRetries: 2, fetch }
  const messages = [{ role: 'user' as const, content: 'x' }]
  await assert.rejects(async () => {
    if (surface === 'messages') await new Anthropic(options).messages.create({ model: 'm', max_tokens: 9, messages })
    else if (surface === 'chat') await new OpenAI(options).chat.completions.create({ model: 'm', messages })
    else await new OpenAI(options).responses.create({ model: 'm', input: 'x' })
  })
  return sent
}

test('the retry loops of the official SDKs do with every refusal of the table what it says', async context => {
  // They would sleep for seconds before each retry.
  const at = globalThis.setTimeout
  context.mock.method(globalThis, 'setTimeout', (call: () => void) => at(call, 0))
  for (const [what, reply] of refusals) {
    const again = reply.error?.retryable === true && reply.header('x-should-retry') !== 'false'
    assert.equal(await sends(reply), again ? 3 : 1, what)
  }
  // A broken recorder would compare nothing.
  assert.ok(refusals.size > 60, `${refusals.size} refusals`)
})
