/** Example requests of Responses. */
import { GIF, PARAMETERS, PDF, PNG, type Samples, user } from '../described.ts'

const image = (url: string) => ({ input: user([{ type: 'input_image', image_url: url }]) })
const tool = { type: 'function', name: 'f', parameters: PARAMETERS }

const features: Samples['features'] = {
  'Text, system text, history': {},
  Streams: { stream: true },
  'Image, base64': image(`data:image/png;base64,${PNG}`),
  'GIF images': image(`data:image/gif;base64,${GIF}`),
  'Image, URL': image('https://example.com/a.png'),
  'PDF, base64': {
    input: user([{ type: 'input_file', filename: 'a.pdf', file_data: `data:application/pdf;base64,${PDF}` }]),
  },
  'PDF, URL': { input: user([{ type: 'input_file', file_url: 'https://example.com/a.pdf' }]) },
  'Function tools': { tools: [tool] },
  'Strict tools': { tools: [{ ...tool, strict: true }] },
  'Forced tool': { tools: [tool], tool_choice: 'required' },
  'One call a turn': { tools: [tool], parallel_tool_calls: false },
  allowed_tools: {
    tools: [tool],
    tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'f' }] },
  },
  'Custom tools': {
    tools: [{ type: 'custom', name: 'c', format: { type: 'grammar', syntax: 'lark', definition: 'start: "x"' } }],
  },
  'Namespaces, client tool search': {
    tools: [
      { type: 'namespace', name: 'n', tools: [tool] },
      { type: 'tool_search', execution: 'client' },
    ],
  },
  'Web search': { tools: [{ type: 'web_search' }] },
  'Web search, allowed domains': {
    tools: [{ type: 'web_search', filters: { allowed_domains: ['example.com'] } }],
  },
  'Web search, limited in number': { tools: [{ type: 'web_search' }], max_tool_calls: 2 },
  'Reasoning effort': { reasoning: { effort: 'high' } },
  'Thinking, reasoning summaries': { reasoning: { summary: 'auto' } },
  'temperature, top_p': { temperature: 0.5, top_p: 0.5 },
  'Log probabilities': { include: ['message.output_text.logprobs'] },
  previous_response_id: { previous_response_id: 'resp_1' },
  'JSON output, any object': { text: { format: { type: 'json_object' } } },
  'JSON output, a schema': {
    text: { format: { type: 'json_schema', name: 'answer', schema: PARAMETERS, strict: true } },
  },
}

export const samples: Samples = {
  body: (model, prompt) => ({ model, input: prompt }),
  features,
  stream: {
    members: { stream: true, store: false, max_output_tokens: 1000 },
    cap: 'max_output_tokens',
    read(data, reply) {
      if (data.type === 'response.output_text.delta') reply.text += data.delta
      const usage = data.response?.usage
      if (usage) {
        reply.input = usage.input_tokens
        reply.cached = usage.input_tokens_details?.cached_tokens ?? 0
        reply.output = usage.output_tokens
      }
      return data.type === 'response.completed' || data.type === 'response.incomplete'
    },
  },
}
