/** Example requests of Messages. */
import { GIF, PARAMETERS, PDF, PNG, type Samples, user } from '../described.ts'

const image = (source: object) => ({ messages: user([{ type: 'image', source }]) })
const document = (source: object) => ({ messages: user([{ type: 'document', source }]) })
const tool = { name: 'f', input_schema: PARAMETERS }
const search = { type: 'web_search_20250305', name: 'web_search' }

const features: Samples['features'] = {
  'Text, system text, history': {},
  Streams: { stream: true },
  'Image, base64': image({ type: 'base64', media_type: 'image/png', data: PNG }),
  'GIF images': image({ type: 'base64', media_type: 'image/gif', data: GIF }),
  'Image, URL': image({ type: 'url', url: 'https://example.com/a.png' }),
  'PDF, base64': document({ type: 'base64', media_type: 'application/pdf', data: PDF }),
  'PDF, URL': document({ type: 'url', url: 'https://example.com/a.pdf' }),
  'Text document': document({ type: 'text', media_type: 'text/plain', data: 'x' }),
  'Function tools': { tools: [tool] },
  'Strict tools': { tools: [{ ...tool, strict: true }] },
  'Forced tool': { tools: [tool], tool_choice: { type: 'any' } },
  'One call a turn': { tools: [tool], tool_choice: { type: 'auto', disable_parallel_tool_use: true } },
  'bash, text editor, memory': {
    tools: [
      { type: 'bash_20250124', name: 'bash' },
      { type: 'memory_20250818', name: 'memory' },
    ],
  },
  'Web search': { tools: [search] },
  'Web search, allowed domains': { tools: [{ ...search, allowed_domains: ['example.com'] }] },
  'Web search, blocked domains': { tools: [{ ...search, blocked_domains: ['example.com'] }] },
  'Web search, limited in number': { tools: [{ ...search, max_uses: 2 }] },
  'Reasoning effort': { output_config: { effort: 'high' } },
  'Thinking, reasoning summaries': { thinking: { type: 'adaptive' } },
  'Forced tool while thinking': { tools: [tool], tool_choice: { type: 'any' }, thinking: { type: 'adaptive' } },
  'temperature, top_p': { temperature: 0.5, top_p: 0.5 },
  top_k: { top_k: 5 },
  'Stop strings': { stop_sequences: ['a'] },
  'An assistant message to continue': { messages: [...user('x'), { role: 'assistant', content: 'It is' }] },
  'JSON output, a schema': { output_config: { format: { type: 'json_schema', schema: PARAMETERS } } },
}

export const samples: Samples = {
  body: (model, prompt) => ({ model, max_tokens: 1000, messages: user(prompt) }),
  features,
  stream: {
    headers: { 'anthropic-version': '2023-06-01' },
    members: { stream: true },
    cap: 'max_tokens',
    read(data, reply) {
      if (data.delta?.type === 'text_delta') reply.text += data.delta.text
      const usage = { ...data.message?.usage, ...data.usage }
      // On this surface `input_tokens` does not include cached tokens.
      if (usage.input_tokens !== undefined) {
        reply.cached = usage.cache_read_input_tokens ?? 0
        reply.input = usage.input_tokens + reply.cached + (usage.cache_creation_input_tokens ?? 0)
      }
      if (usage.output_tokens !== undefined) reply.output = usage.output_tokens
      return data.type === 'message_stop'
    },
  },
}
