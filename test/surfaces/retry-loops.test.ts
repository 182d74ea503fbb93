/**
 * Every row of the error table, against the retry loops of the official clients and of the AI SDK: what can never
 * succeed is sent once, and what may succeed is sent again.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createOpenAI } from '@ai-sdk/openai'
import Anthropic from '@anthropic-ai/sdk'
import { generateText } from 'ai'
import OpenAI from 'openai'
import { ERRORS, type ErrorCode } from '../../core/canon/errors.ts'
import { BY_STATUS_ALONE, CODES, refusal } from '../clients/refusals.ts'

const RETRIES = 2

/** How often a client sends a request whose every answer is this error. */
async function sends(code: ErrorCode, client: (fetch: typeof globalThis.fetch) => Promise<unknown>): Promise<number> {
  let sent = 0
  await assert.rejects(
    client(async request => {
      sent++
      const { body, ...head } = refusal(code, new URL(String(request)).pathname)
      return new Response(body, head)
    }),
  )
  return sent
}

const OFFICIAL: Record<string, (fetch: typeof globalThis.fetch) => Promise<unknown>> = {
  openai: fetch =>
    new OpenAI({ apiKey: 'k', baseURL: 'http://gateway.test/v1', maxRetries: RETRIES, fetch }).responses.create({
      model: 'm',
      input: 'x',
    }),
  anthropic: fetch =>
    new Anthropic({ apiKey: 'k', baseURL: 'http://gateway.test', maxRetries: RETRIES, fetch }).messages.create({
      model: 'm',
      max_tokens: 9,
      messages: [{ role: 'user', content: 'x' }],
    }),
}
const aiSdk = (fetch: typeof globalThis.fetch): Promise<unknown> =>
  generateText({
    model: createOpenAI({ baseURL: 'http://gateway.test/v1', apiKey: 'k', fetch })('m'),
    prompt: 'x',
    maxRetries: RETRIES,
  })

for (const [name, client] of Object.entries(OFFICIAL)) {
  test(`[ERR-5] ${name} sends again exactly what may succeed, for every code`, async () => {
    for (const code of CODES) assert.equal(await sends(code, client), ERRORS[code].retriable ? 1 + RETRIES : 1, code)
  })
}

test('[ERR-5] a client that looks at the status alone repeats no refusal in vain but these', async context => {
  // It would sleep for seconds before each retry.
  const at = globalThis.setTimeout
  context.mock.method(globalThis, 'setTimeout', (call: () => void) => at(call, 0))
  const repeated: ErrorCode[] = []
  for (const code of CODES.filter(code => !ERRORS[code].retriable)) {
    if ((await sends(code, aiSdk)) > 1) repeated.push(code)
  }
  assert.deepEqual(repeated, BY_STATUS_ALONE)
})
