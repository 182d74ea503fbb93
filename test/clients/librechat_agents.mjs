/** The loop of LibreChat's agents, without its server, with the models of its OpenAI and Anthropic endpoints. */
import { GraphEvents, Run } from '@librechat/agents'
import { HumanMessage } from '@librechat/agents/langchain/messages'
import { tool } from '@librechat/agents/langchain/tools'
import { assert, CALL, CITY, feature, KEY, run, URL, V1 } from './kit.mjs'

const get_weather = tool(async ({ city }) => `rain in ${city}`, {
  name: 'get_weather',
  description: 'Says the weather.',
  schema: CITY,
})

/** Each way to the gateway: what a run has for a model. */
const WAYS = {
  Chat: model => ({ provider: 'openAI', model, apiKey: KEY, configuration: { baseURL: V1 } }),
  Responses: model => ({ ...WAYS.Chat(model), useResponsesApi: true }),
  Messages: model => ({ provider: 'anthropic', model, apiKey: KEY, anthropicApiUrl: URL }),
}

/** @returns the last text of a run, and how many pieces of text came before it */
async function said(llmConfig, question, tools = []) {
  let pieces = 0
  const agent = await Run.create({
    runId: 'run',
    graphConfig: { type: 'standard', instructions: 'Be brief.', llmConfig, tools },
    customHandlers: { [GraphEvents.ON_MESSAGE_DELTA]: { handle: () => void pieces++ } },
    returnContent: true,
  })
  const content = await agent.processStream(
    { messages: [new HumanMessage(question)] },
    { version: 'v2', configurable: { thread_id: 'thread' } },
  )
  return { text: content.findLast(({ type }) => type === 'text').text, pieces }
}

for (const [name, way] of Object.entries(WAYS)) {
  // Its model of Messages streams always.
  if (name !== 'Messages')
    feature(`${name}: plain`, async model => {
      const { text, pieces } = await said({ ...way(model), disableStreaming: true }, 'Hello')
      assert.match(text, /Hello/)
      assert.equal(pieces, 1)
    })

  feature(`${name}: streamed`, async model => {
    const { text, pieces } = await said(way(model), 'Hello')
    assert.match(text, /Hello/)
    assert.ok(pieces > 1)
  })

  feature(`${name}: agent with a tool`, async model => {
    const { text } = await said(way(model), CALL, [get_weather])
    assert.match(text, /rain in Oslo/)
  })
}

await run()
