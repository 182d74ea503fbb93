/** `count-tokens`: a terminal that answers with the metered prompt. It asks nobody, and bills nothing. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { estimate } from '../../core/plugin.ts'
import { countTokens } from '../../plugins/count-tokens.ts'
import { runPlugin } from '../../plugins/testing.ts'

test('[CNT-1] the answer is the number that token-estimate found, and nothing else', async () => {
  const run = await runPlugin(countTokens, { slots: [[estimate, { input: 123 }]] })
  assert.equal(run.status, 200)
  assert.deepEqual(run.json, { input_tokens: 123 })
  assert.equal(run.settlement.outcome, 'completed')
})

test('it is a terminal, for which the plugins above refuse nothing that can be read, and needs the count', () => {
  assert.deepEqual([countTokens.terminal, countTokens.advisory], [true, true])
  assert.deepEqual(countTokens.needs, [estimate])
})
