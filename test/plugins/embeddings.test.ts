/** `embeddings`: what it fills for the plugins below, and which routes may lead to it. Its way is test/e2e/embeddings.test.ts. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { GatewayConfig } from '../../config/types.ts'
import { conversation, estimate, request } from '../../core/plugin.ts'
import { embeddings } from '../../plugins/embeddings.ts'
import { strayRoutes } from '../../plugins/model-access/stray-routes.ts'
import { candidates, identity, model, parsedConversation } from '../../plugins/shared/slots.ts'
import { joined } from '../../plugins/shared/verbatim.ts'
import { runPlugin } from '../../plugins/testing.ts'
import { embeddings as surface } from '../../surfaces/embeddings/index.ts'
import { backend, caller, modelOf } from './kit.ts'

const asked = (body: Record<string, unknown>, who = caller()) =>
  runPlugin(embeddings, {
    reply: () => ({ body: '{"data":[{"embedding":[1]},{"embedding":[2]}]}' }),
    slots: [
      [identity, who],
      [request, body],
      [parsedConversation, surface.parse(body)],
      [model, modelOf({ serves: 'embeddings', context_window: 3 })],
    ],
  })

test('the slots of a conversation, with no output to reserve, and a body without the name of the user', async () => {
  const { exchange, requests } = await asked({
    model: 'm',
    input: [[1, 2], [3]],
    dimensions: 4,
    user: 'u',
    encoding_format: null,
  })
  assert.deepEqual(exchange.get(estimate), { input: 3 })
  assert.deepEqual([exchange.get(conversation).maxOutputTokens, exchange.get(conversation).turns], [0, []])
  assert.deepEqual(exchange.get(candidates), [backend()])
  assert.equal(requests[0]!.path, '/embeddings')
  const body = JSON.parse(joined(requests[0]!.body).toString())
  assert.deepEqual(body, { model: 'small', input: [[1, 2], [3]], dimensions: 4 })
})

test('the window holds for each input, the limit of the account for all together', async () => {
  const inputs = { model: 'm', input: [[1, 2, 3], [1]] }
  assert.equal((await asked(inputs)).exchange.get(estimate).input, 4)
  const { json } = await asked(inputs, caller({ limits: { max_input_tokens: 3 } }))
  assert.deepEqual([json.error.code, json.error.param], ['context_length_exceeded', 'input'])
  assert.match(json.error.message, /4 tokens > 3 maximum/)
})

test('a route whose pipeline makes something else than its surface asks for is a fault, with the cure', () => {
  const entry = (plugin: string) => ({ plugin, id: plugin, config: {} })
  const [embed, text] = [entry('model-access'), entry('model-access')]
  const config = (surface: string | undefined, pipeline: string) =>
    ({
      pipelines: { embed: [embed, entry('embeddings')], text: [text, entry('routing')] },
      routes: [{ method: 'POST', path: '/x', surface, pipeline }],
    }) as unknown as GatewayConfig
  const faults = (surface: string | undefined, pipeline: string) => [
    ...strayRoutes(config(surface, pipeline), embed.config),
    ...strayRoutes(config(surface, pipeline), text.config),
  ]
  assert.deepEqual(faults('embeddings', 'embed'), [])
  assert.deepEqual(faults('chat', 'text'), [])
  assert.deepEqual(faults(undefined, 'text'), [])
  assert.match(faults('chat', 'embed').join('\n'), /^POST \/x has surface: chat, and .* write surface: embeddings.*$/)
  assert.match(faults('embeddings', 'text').join('\n'), /^POST \/x .* name a pipeline with the plugin embeddings$/)
})
