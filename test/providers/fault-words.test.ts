/**
 * What a provider's error object and status mean, for all dialects: its words are read for their kind and for the
 * figures of a window, and never repeated.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Dialect } from '../../core/ports/dialect.ts'
import { anthropicMessages } from '../../providers/anthropic-messages/index.ts'
import { gemini } from '../../providers/gemini/index.ts'
import { openaiChat } from '../../providers/openai-chat/index.ts'
import { openaiResponses } from '../../providers/openai-responses/index.ts'

const ALL = [openaiChat, openaiResponses, anthropicMessages, gemini]
const fault = (dialect: Dialect, status: number, error: object) =>
  dialect.fault(status, {}, JSON.stringify({ type: 'error', error }))

/** Sentences of servers for a prompt over the window, with the two figures that they tell. */
const TOO_LONG: [string, number, number][] = [
  // Anthropic
  ['prompt is too long: 210000 tokens > 200000 maximum', 210000, 200000],
  // OpenAI
  ["This model's maximum context length is 8192 tokens. However, your messages resulted in 8210 tokens.", 8210, 8192],
  [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 8290 tokens (8210 in the messages, 80 in the functions).",
    8290,
    8192,
  ],
  [
    "This model's maximum context length is 65536 tokens. However, you requested 71000 tokens (70000 in the messages, 1000 in the completion).",
    70000,
    65536,
  ],
  // Google
  ['The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).', 1200000, 1048576],
  // llama.cpp
  ['request (6211 tokens) exceeds the available context size (2048 tokens), try increasing it', 6211, 2048],
  // vLLM
  [
    "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens.",
    2049,
    2048,
  ],
  // llama-cpp-python, Mistral, xAI, OpenRouter
  ['Requested tokens (2100) exceed context window of 2048', 2100, 2048],
  [
    'Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length',
    40000,
    32768,
  ],
  ["This model's maximum prompt length is 131072 but the request contains 200000 tokens.", 200000, 131072],
  [
    "This endpoint's maximum context length is 1000 tokens. However, you requested about 2100 tokens (2000 of text input, 100 in the output).",
    2000,
    1000,
  ],
]

// The gateway's own refusal has the form that clients read figures from, and a provider's had none: an agent that
// leaves out as much as the figures tell could not know how much.
test('a prompt that a provider finds too long is told with the provider’s figures, on all dialects', () => {
  for (const dialect of ALL) {
    for (const [message, tokens, maximum] of TOO_LONG) {
      const google = dialect === gemini ? { code: 400, status: 'INVALID_ARGUMENT' } : { type: 'invalid_request_error' }
      const error = fault(dialect, 400, { message, ...google })
      const where = `${dialect.name}: ${message}`
      assert.equal(error.code, 'context_length_exceeded', where)
      assert.equal(error.message, `prompt is too long: ${tokens} tokens > ${maximum} maximum`, where)
      assert.deepEqual(error.details, { context_window: maximum }, where)
    }
  }
})

test('figures that do not say that the prompt is too long are not told', () => {
  for (const message of [
    'Your input exceeds the context window of this model.',
    // With its output cap alone the request is over.
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (5000 in the messages, 4000 in the completion).",
    'input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000',
    'The input token count exceeds the context window of 99999999999999999999',
  ]) {
    const error = fault(anthropicMessages, 400, { type: 'invalid_request_error', message })
    assert.equal(error.code, 'context_length_exceeded', message)
    assert.match(error.message, /^The prompt is too long for the context window/)
    assert.equal(error.details, undefined)
  }
})

// Servers that speak several APIs keep the error types of OpenAI's: a prompt that is too long was 502 on Messages and
// on gemini, so agents never learned that they have to compact.
test('errors in the envelope of another API are known on every dialect', () => {
  const cases: [object, string][] = [
    [
      { type: 'BadRequestError', message: "This model's maximum context length is 2048 tokens." },
      'context_length_exceeded',
    ],
    [{ code: 400, type: 'exceed_context_size_error', message: 'x' }, 'context_length_exceeded'],
    [{ message: 'litellm.ContextWindowExceededError: no', type: null, code: '400' }, 'context_length_exceeded'],
    [{ code: 'insufficient_quota', message: 'x' }, 'insufficient_quota'],
    [{ type: 'BadRequestError', message: 'x' }, 'upstream_server_error'],
  ]
  for (const dialect of ALL)
    for (const [error, code] of cases)
      assert.equal(fault(dialect, 400, error).code, code, `${dialect.name} ${JSON.stringify(error)}`)
})

// The type won over the status on the native dialects: a 401 that says invalid_request_error was 502
// upstream_server_error, a 402 of gemini too, and a 408 was told as a request that is refused again.
test('[AUTH-7] [ERR-7] 401, 402, 403, 404, 408 and 429 mean the same on all dialects, whatever the body says', () => {
  const statuses: [number, string][] = [
    [401, 'upstream_auth_error'],
    [403, 'upstream_auth_error'],
    [402, 'insufficient_quota'],
    [404, 'upstream_server_error'],
    [408, 'gateway_timeout'],
    [429, 'capacity_exceeded'],
  ]
  const bodies = [
    { type: 'invalid_request_error', message: 'no' },
    { type: 'not_found_error', message: 'no' },
    { code: 402, status: 'FAILED_PRECONDITION', message: 'no' },
    { status: 'INVALID_ARGUMENT', message: 'the maximum context length' },
    { type: 'api_error', message: 'no' },
  ]
  for (const dialect of ALL)
    for (const [status, code] of statuses)
      for (const body of bodies)
        assert.equal(fault(dialect, status, body).code, code, `${dialect.name} ${status} ${JSON.stringify(body)}`)
})
