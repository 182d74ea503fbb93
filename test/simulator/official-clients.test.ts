/** The official clients read the simulator: its wire forms are the providers' own. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { withSimulator } from './harness.ts'

test('openai: chat completions, created and streamed, with parallel calls', () =>
  withSimulator(async simulator => {
    const client = new OpenAI({ baseURL: `${simulator.url}/v1`, apiKey: 'k', maxRetries: 0 })
    const tools = [{ type: 'function' as const, function: { name: 'add', parameters: { type: 'object' } } }]
    const messages = [{ role: 'user' as const, content: '[[sim: call add {"a":1}; call add {"a":2}]]' }]
    const created = await client.chat.completions.create({ model: 'sim', messages, tools })
    const streamed = await client.chat.completions.stream({ model: 'sim', messages, tools }).finalChatCompletion()
    const args = (calls: any[] | undefined) => calls?.map(call => call.function.arguments)
    assert.deepEqual(args(created.choices[0]!.message.tool_calls), ['{"a":1}', '{"a":2}'])
    assert.deepEqual(args(streamed.choices[0]!.message.tool_calls), ['{"a":1}', '{"a":2}'])
    await assert.rejects(
      client.chat.completions.create({ model: 'sim', messages: [{ role: 'user', content: '[[sim: status 429]]' }] }),
      OpenAI.RateLimitError,
    )
  }))

test('openai: responses, with reasoning, a search, custom tools and namespaces', () =>
  withSimulator(async simulator => {
    const client = new OpenAI({ baseURL: simulator.url, apiKey: 'k', maxRetries: 0 })
    const said = await client.responses
      .stream({
        model: 'sim',
        input: '[[sim: reason 2; search "cats"; chunk 4]]',
        reasoning: { effort: 'low', summary: 'auto' },
        tools: [{ type: 'web_search' }],
      })
      .finalResponse()
    assert.deepEqual(
      said.output.map(item => item.type),
      ['reasoning', 'web_search_call', 'message'],
    )
    const called = await client.responses
      .stream({
        model: 'sim',
        input: '[[sim: call run "ls"; call f {"a":1}]]',
        tools: [
          { type: 'custom', name: 'run' },
          { type: 'function', name: 'f', parameters: null, strict: false },
        ],
      })
      .finalResponse()
    assert.deepEqual(
      called.output.map(item => (item.type === 'custom_tool_call' ? item.input : item.type)),
      ['ls', 'function_call'],
    )
    assert.equal((await client.responses.create({ model: 'sim', input: '[[sim: text "x"]]' })).output_text, 'x')
  }))

test('anthropic: messages, created and streamed, with thinking and a call', () =>
  withSimulator(async simulator => {
    const client = new Anthropic({ baseURL: simulator.url, apiKey: 'k', maxRetries: 0 })
    const params = {
      model: 'sim',
      max_tokens: 3000,
      thinking: { type: 'enabled' as const, budget_tokens: 1024 },
      messages: [{ role: 'user' as const, content: '[[sim: call f {"x":"y z"}]]' }],
      tools: [{ name: 'f', input_schema: { type: 'object' as const } }],
    }
    const streamed = await client.messages.stream(params).finalMessage()
    const created = await client.messages.create(params)
    assert.deepEqual(
      streamed.content.map(block => (block.type === 'tool_use' ? block.input : block.type)),
      ['thinking', { x: 'y z' }],
    )
    assert.deepEqual(
      streamed.content.map(block => block.type),
      created.content.map(block => block.type),
    )
    await assert.rejects(
      client.messages.create({ ...params, messages: [{ role: 'user', content: '[[sim: error overloaded]]' }] }),
      (error: unknown) => error instanceof Anthropic.APIError && error.status === 529,
    )
  }))
