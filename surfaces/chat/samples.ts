/** Example requests of Chat Completions. */
import { GIF, PARAMETERS, PDF, PNG, type Samples, user } from '../described.ts'

const image = (url: string) => ({ messages: user([{ type: 'image_url', image_url: { url } }]) })
const tool = { type: 'function', function: { name: 'f', parameters: PARAMETERS } }

const features: Samples['features'] = {
  'Text, system text, history': {},
  Streams: { stream: true },
  'Image, base64': image(`data:image/png;base64,${PNG}`),
  'GIF images': image(`data:image/gif;base64,${GIF}`),
  'Image, URL': image('https://example.com/a.png'),
  'PDF, base64': {
    messages: user([{ type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${PDF}` } }]),
  },
  'Function tools': { tools: [tool] },
  'Strict tools': { tools: [{ ...tool, function: { ...tool.function, strict: true } }] },
  'Forced tool': { tools: [tool], tool_choice: 'required' },
  'One call a turn': { tools: [tool], parallel_tool_calls: false },
  allowed_tools: {
    tools: [tool],
    tool_choice: {
      type: 'allowed_tools',
      allowed_tools: { mode: 'auto', tools: [{ type: 'function', function: { name: 'f' } }] },
    },
  },
  'Custom tools': { tools: [{ type: 'custom', custom: { name: 'c' } }] },
  'Web search': { web_search_options: {} },
  'Reasoning effort': { reasoning_effort: 'high' },
  'temperature, top_p': { temperature: 0.5, top_p: 0.5 },
  top_k: { top_k: 5 },
  seed: { seed: 1 },
  'Stop strings': { stop: ['a'] },
  'Log probabilities': { logprobs: true },
  'n > 1': { n: 2 },
  'JSON output, any object': { response_format: { type: 'json_object' } },
  'JSON output, a schema': {
    response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: PARAMETERS, strict: true } },
  },
  Audio: { modalities: ['text', 'audio'] },
}

export const samples: Samples = {
  body: (model, prompt) => ({ model, messages: user(prompt) }),
  features,
  stream: {
    members: { stream: true, stream_options: { include_usage: true }, max_completion_tokens: 1000 },
    cap: 'max_completion_tokens',
    read(data, reply) {
      if (data === '[DONE]') return true
      reply.text += data.choices?.[0]?.delta?.content ?? ''
      if (data.usage) {
        reply.input = data.usage.prompt_tokens
        reply.cached = data.usage.prompt_tokens_details?.cached_tokens ?? 0
        reply.output = data.usage.completion_tokens
      }
      return false
    },
  },
}
