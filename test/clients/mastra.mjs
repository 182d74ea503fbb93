/** Mastra: agents with a tool, by its own settings of a compatible server and by models of the AI SDK. */
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { Agent } from '@mastra/core/agent'
import { createTool } from '@mastra/core/tools'
import { z } from 'zod'
import { assert, CALL, feature, KEY, run, V1 } from './kit.mjs'

const get_weather = createTool({
  id: 'get_weather',
  description: 'Says the weather.',
  inputSchema: z.object({ city: z.string() }),
  execute: async input => ({ weather: `rain in ${(input.context ?? input).city}` }),
})

/** Each way to the gateway: what an agent has for a model, and the options of a run. */
const WAYS = {
  'Chat by URL': [id => ({ id: `sluice/${id}`, url: V1, apiKey: KEY })],
  Responses: [
    id => createOpenAI({ baseURL: V1, apiKey: KEY }).responses(id),
    { providerOptions: { openai: { store: false } } },
  ],
  Messages: [id => createAnthropic({ baseURL: V1, authToken: KEY })(id)],
}

for (const [name, [model, options]] of Object.entries(WAYS)) {
  const agent = id =>
    new Agent({ id: 'guide', name: 'guide', instructions: 'Be brief.', model: model(id), tools: { get_weather } })

  feature(`${name}: agent with a tool`, async id => {
    const { text } = await agent(id).generate(CALL, options)
    assert.match(text, /rain in Oslo/)
  })

  feature(`${name}: streamed`, async id => {
    const { textStream } = await agent(id).stream(CALL, options)
    let text = ''
    for await (const piece of textStream) text += piece
    assert.match(text, /rain in Oslo/)
  })
}

await run()
