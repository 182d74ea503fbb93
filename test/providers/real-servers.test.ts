/**
 * What real servers sent, and what a client gets for it: one row for each reply that was once read wrongly, or that a
 * setting is there for. Shapes, codes and types are theirs; ids are shortened, and so are words that decide nothing.
 * Versions: llama.cpp b11434, vLLM 0.32.0, Ollama 0.33.0-rc2, mlx_lm 0.32.2,
 * llama-cpp-python 0.3.36, LiteLLM 1.108, aimock 1.43, LLMock 0.2.2.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { StreamEvent } from '../../core/canon/events.ts'
import type { Dialect } from '../../core/ports/dialect.ts'
import { anthropicMessages } from '../../providers/anthropic-messages/index.ts'
import { gemini } from '../../providers/gemini/index.ts'
import { openaiChat } from '../../providers/openai-chat/index.ts'
import { openaiResponses } from '../../providers/openai-responses/index.ts'
import { PRESETS } from '../../providers/presets.ts'
import { SseReader } from '../../providers/sse.ts'
import { decodeFrames, sequenced } from './dialect-kit.ts'

const weather = { type: 'function', name: 'get_weather', parameters: {}, path: 'tools[0]' } as const
const time = { ...weather, name: 'get_time', path: 'tools[1]' } as const
const conversation = { tools: [weather, time] }

// ---- errors ---------------------------------------------------------------------------------------------------------

const ERRORS: [server: string, dialect: Dialect, status: number, body: string, code: string, retriable: boolean][] = [
  [
    'vLLM, a prompt over the window',
    anthropicMessages,
    400,
    '{"type":"error","error":{"type":"BadRequestError","message":"This model\'s maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens."}}',
    'context_length_exceeded',
    false,
  ],
  [
    'llama.cpp, a prompt over the window',
    anthropicMessages,
    400,
    '{"error":{"code":400,"type":"exceed_context_size_error","message":"request (6211 tokens) exceeds the available context size (2048 tokens), try increasing it"}}',
    'context_length_exceeded',
    false,
  ],
  [
    'vLLM, a cap over the window',
    anthropicMessages,
    400,
    '{"type":"error","error":{"type":"BadRequestError","message":"max_completion_tokens=8192 cannot be greater than max_model_len=2048"}}',
    'upstream_server_error',
    false,
  ],
  [
    'aimock, a key that is not taken',
    anthropicMessages,
    401,
    '{"type":"error","error":{"type":"invalid_request_error","message":"Unauthorized"}}',
    'upstream_auth_error',
    false,
  ],
  [
    'LLMock, no money left',
    gemini,
    402,
    '{"error":{"code":402,"message":"Payment required.","status":"FAILED_PRECONDITION"}}',
    'insufficient_quota',
    false,
  ],
  [
    'LiteLLM, a prompt over the window, on its Gemini side',
    gemini,
    400,
    '{"error":{"message":"litellm.ContextWindowExceededError: This model\'s maximum context length is 2048 tokens.","type":null,"param":null,"code":"400"}}',
    'context_length_exceeded',
    false,
  ],
  // A 400 of this type is a master key that LiteLLM cannot look up without a database.
  [
    'LiteLLM, a key that is not taken',
    openaiChat,
    400,
    '{"error":{"message":"No connected db.","type":"no_db_connection","param":null,"code":"400"}}',
    'upstream_auth_error',
    false,
  ],
  [
    'mlx_lm, an image',
    openaiChat,
    400,
    '{"error":"Only \'text\' content type is supported."}',
    'upstream_server_error',
    false,
  ],
  [
    'Ollama, an effort for a model that does not think',
    openaiChat,
    400,
    '{"error":{"message":"\\"tiny\\" does not support thinking","type":"invalid_request_error","param":null,"code":null}}',
    'upstream_server_error',
    false,
  ],
  [
    'llama.cpp, an image',
    openaiChat,
    500,
    '{"error":{"code":500,"message":"image input is not supported","type":"server_error"}}',
    'upstream_server_error',
    true,
  ],
  ['llama-cpp-python, a request id that is no UUID', openaiChat, 400, '', 'upstream_server_error', false],
]
for (const [server, dialect, status, body, code, retriable] of ERRORS) {
  test(`${server}: ${code}`, () => {
    const error = dialect.fault(status, {}, body)
    assert.deepEqual([error.code, error.retriable], [code, retriable])
    assert.ok(!error.message.includes('litellm') && !error.message.includes('tiny'), error.message)
  })
}

// ---- streams --------------------------------------------------------------------------------------------------------

function decoded(dialect: Dialect, text: string): StreamEvent[] {
  const frames: { event: string; data: string }[] = []
  const reader = new SseReader()
  reader.push(Buffer.from(text), (event, data) => frames.push({ event, data }))
  return sequenced(decodeFrames(dialect, { conversation }, frames))
}
const last = (events: StreamEvent[]) => {
  const event = events.at(-1)!
  return event.type === 'finish' ? event.reason : event.type
}
const sse = (...data: string[]) => data.map(text => `data: ${text}\n\n`).join('')

test('llama-cpp-python interrupts a stream for another one, and says [DONE]: an error, not an end', () => {
  const cut = sse(
    '{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}',
    '{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":","},"finish_reason":null}]}',
    '[DONE]',
  )
  assert.equal(last(decoded(openaiChat, cut)), 'error')
})

test('mlx_lm: comments first, the role in each delta, a last delta without content', () => {
  const text = `: keepalive 1/1\n\n${sse(
    '{"choices":[{"index":0,"delta":{"role":"assistant","content":"one"},"finish_reason":null}]}',
    '{"choices":[{"index":0,"delta":{"role":"assistant","content":", two"},"finish_reason":null}]}',
    '{"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":"stop"}]}',
    '[DONE]',
  )}`
  const events = decoded(openaiChat, text)
  assert.equal(events.flatMap(event => (event.type === 'text' ? [event.text] : [])).join(''), 'one, two')
  assert.equal(last(events), 'stop')
})

test('llama.cpp names items of a Responses stream by their id alone: two calls stay two', () => {
  const args = (id: string, text: string) =>
    `{"type":"response.function_call_arguments.delta","delta":${JSON.stringify(text)},"item_id":"${id}"}`
  const added = (id: string, name: string) =>
    `{"type":"response.output_item.added","item":{"id":"${id}","type":"function_call","call_id":"c_${id}","name":"${name}","arguments":"","status":"in_progress"}}`
  const item = (id: string, name: string, text: string) =>
    `{"id":"${id}","type":"function_call","call_id":"c_${id}","name":"${name}","arguments":${JSON.stringify(text)},"status":"completed"}`
  const [paris, zone] = ['{"city": "Paris"}', '{"zone": "Europe/Paris"}']
  const text = sse(
    added('fc_ZN', 'get_weather'),
    args('fc_ZN', '{'),
    args('fc_ZN', '"city": "Paris"}'),
    added('fc_KO', 'get_time'),
    args('fc_KO', zone),
    `{"type":"response.output_item.done","item":${item('fc_ZN', 'get_weather', paris)}}`,
    `{"type":"response.output_item.done","item":${item('fc_KO', 'get_time', zone)}}`,
    `{"type":"response.completed","response":{"id":"r","status":"completed","output":[${item('fc_ZN', 'get_weather', paris)},${item('fc_KO', 'get_time', zone)}]}}`,
  )
  const calls: Record<string, string> = {}
  let open = ''
  for (const event of decoded(openaiResponses, text)) {
    if (event.type === 'tool_call') calls[(open = event.name)] = ''
    if (event.type === 'tool_args') calls[open] += event.text
  }
  assert.deepEqual(calls, { get_weather: paris, get_time: zone })
})

test('aimock ends every Responses stream with response.completed: its status tells what it was', () => {
  const ended = (status: string) =>
    last(
      decoded(
        openaiResponses,
        sse(
          '{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message","role":"assistant","content":[]}}',
          '{"type":"response.output_text.delta","output_index":0,"content_index":0,"item_id":"m","delta":"one"}',
          `{"type":"response.completed","response":{"id":"r","status":"${status}","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}`,
        ),
      ),
    )
  assert.equal(ended('incomplete'), 'length')
  assert.equal(ended('failed'), 'error')
})

test('aimock ends calls on its Gemini side with a reason that Google does not have', () => {
  const text = sse(
    '{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"get_weather","args":{"city":"Paris"}}}]},"finishReason":"FUNCTION_CALL","index":0}]}',
  )
  assert.equal(last(decoded(gemini, text)), 'tool_calls')
})

test('LiteLLM on its Gemini side: a null finishReason in each chunk, no parts in the last', () => {
  const text = sse(
    '{"candidates":[{"content":{"role":"model","parts":[{"text":"one"}]},"finishReason":null,"index":0}]}',
    '{"candidates":[{"content":{"role":"model","parts":[]},"finishReason":"STOP","index":0}]}',
  )
  assert.equal(last(decoded(gemini, text)), 'stop')
})

// ---- presets --------------------------------------------------------------------------------------------------------

// llama.cpp and Ollama take parallel_tool_calls: false and make two calls all the same. A backend that is known not to
// keep to it gets the gateway's own first call instead (decision 59).
test('the presets of servers that ignore parallel_tool_calls say so', () => {
  const single = (preset: string) => {
    const { supports } = PRESETS[preset]!.backend as { supports?: string[] }
    return supports === undefined || supports.includes('single_tool_call')
  }
  assert.deepEqual(['llama-cpp', 'ollama', 'lm-studio', 'together'].map(single), [false, false, true, true])
})
