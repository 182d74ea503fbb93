/** What `sluice plugin new --dialect` writes. */

export function dialectTemplate(name: string): string {
  return `/**
 * Chat Completions as another server speaks it. Replace it with what you need: docs/dialects.md says more, and has a
 * dialect that writes requests and reads replies of its own.
 */
import { defineDialect, openaiChat, varied } from 'sluice/dialect'

export default defineDialect(
  varied(
    openaiChat,
    {
      // The path below base_url, with the query.
      path: ({ model }) => \`/models/\${encodeURIComponent(model)}/chat\`,
      // The members that openai-chat writes, and yours. One that is undefined is not sent.
      body: body => ({ ...body, model: undefined }),
      headers: headers => ({ ...headers, 'x-from': '${name}' }),
    },
    // What else differs: fewer capabilities, fault or decoder.
    { name: '${name}', vendor: '${name}' },
  ),
)
`
}

export function dialectTest(name: string): string {
  return `import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runDialect } from 'sluice/testing'
import dialect from './${name}.ts'

test('${name} names the model in the path, and reads the reply', () => {
  const { request, events } = runDialect(dialect, {
    frames: ['{"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}', '[DONE]'],
  })
  assert.equal(request?.path, '/models/small/chat')
  assert.equal(request?.body.model, undefined)
  assert.deepEqual(events, [
    { type: 'text', text: 'Hello' },
    { type: 'finish', reason: 'stop' },
  ])
})
`
}
