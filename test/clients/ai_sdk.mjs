/** The Vercel AI SDK on Responses, Chat Completions and Messages, and by its provider for compatible servers. */
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, jsonSchema, Output, stepCountIs, streamText, tool } from 'ai'
import { assert, CALL, CITY, feature, KEY, OBJECTS_V1, run, SPENT_KEY, V1 } from './kit.mjs'

globalThis.AI_SDK_LOG_WARNINGS = false

/** Each way to the gateway: a model of it, with the options that it needs. */
const WAYS = {
  Responses: (id, baseURL = V1) => ({
    model: createOpenAI({ baseURL, apiKey: KEY }).responses(id),
    providerOptions: { openai: { store: false } },
  }),
  Chat: (id, baseURL = V1) => ({ model: createOpenAI({ baseURL, apiKey: KEY }).chat(id) }),
  Messages: (id, baseURL = V1) => ({ model: createAnthropic({ baseURL, authToken: KEY })(id) }),
  compatible: (id, baseURL = V1) => ({
    model: createOpenAICompatible({
      name: 'sluice',
      baseURL,
      apiKey: KEY,
      includeUsage: true,
      supportsStructuredOutputs: true,
    })(id),
  }),
}

const get_weather = tool({
  description: 'Says the weather.',
  inputSchema: jsonSchema(CITY),
  execute: async ({ city }) => `rain in ${city}`,
})
const loop = { tools: { get_weather }, stopWhen: stepCountIs(3), prompt: CALL }

for (const [name, way] of Object.entries(WAYS)) {
  feature(`${name}: tool loop, buffered`, async id => {
    const { text, steps, totalUsage } = await generateText({ ...way(id), ...loop })
    assert.match(text, /rain in Oslo/)
    assert.equal(steps.length, 2)
    assert.ok(totalUsage.inputTokens > 0 && totalUsage.outputTokens > 0)
  })

  feature(`${name}: tool loop, streamed`, async id => {
    const result = streamText({ ...way(id), ...loop, onError: ({ error }) => Promise.reject(error) })
    let text = ''
    for await (const piece of result.textStream) text += piece
    assert.match(text, /rain in Oslo/)
    assert.ok((await result.totalUsage).outputTokens > 0)
  })

  feature(`${name}: Output.object, translate`, async id => {
    // On Messages it asks for objects only of models that it knows by name.
    const known = name === 'Messages' ? `claude-sonnet-4-5-${id}` : id
    const { output } = await generateText({
      ...way(known, OBJECTS_V1),
      prompt: 'Hello',
      output: Output.object({ schema: jsonSchema(CITY) }),
    })
    assert.equal(typeof output.city, 'string')
  })
}

feature('Output.object (JSON schema)', async id => {
  await generateText({
    ...WAYS.Chat(id),
    prompt: 'Hello',
    output: Output.object({ schema: jsonSchema(CITY) }),
    maxRetries: 0,
  })
})

feature('errors: 401, 404, 429', async id => {
  const chat = (key, model) => createOpenAI({ baseURL: V1, apiKey: key }).chat(model)
  for (const [status, model] of [
    [401, chat('sk-wrong', id)],
    [404, chat(KEY, 'no-such-model')],
    [429, chat(SPENT_KEY, id)],
  ])
    await assert.rejects(generateText({ model, prompt: 'Hello', maxRetries: 0 }), { statusCode: status })
})

await run()
