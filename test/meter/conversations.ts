/** Conversations for the bill's golden files and tests. */
import type { Conversation } from '../../core/canon/conversation.ts'

export function conversation(part: Partial<Conversation> = {}): Conversation {
  return {
    surface: 'chat',
    requestedModel: 'eb1',
    model: 'eb1',
    stream: false,
    system: [],
    turns: [],
    tools: [],
    toolChoice: { type: 'auto' },
    parallelToolCalls: true,
    sampling: { stop: [], logprobs: false },
    reasoning: {},
    ...part,
  }
}

const image = { type: 'image', source: { kind: 'url', url: 'https://example.com/a.png' }, path: 'a' } as const
const weather = {
  type: 'object',
  properties: { city: { type: 'string', description: 'City name, in English' }, unit: { enum: ['c', 'f'] } },
  required: ['city'],
  additionalProperties: false,
}

/** One per golden file. */
export const golden: Record<string, Conversation> = {
  hello: conversation({ turns: [{ role: 'user', parts: [{ type: 'text', text: 'Hello, world!' }] }] }),
  'system-and-turns': conversation({
    system: [
      { type: 'text', text: 'You are a helpful assistant.' },
      { type: 'text', text: 'Answer briefly.' },
    ],
    turns: [
      { role: 'user', parts: [{ type: 'text', text: '北京今天天气怎么样？' }] },
      { role: 'assistant', parts: [{ type: 'text', text: "I can't know. 😀" }] },
      { role: 'system', parts: [{ type: 'text', text: 'The date is 2026-11-21.' }] },
      { role: 'user', parts: [] },
    ],
  }),
  tools: conversation({
    turns: [
      { role: 'user', parts: [{ type: 'text', text: 'Weather in Oslo?' }] },
      {
        role: 'assistant',
        parts: [
          { type: 'text', text: 'Looking.' },
          {
            type: 'call',
            id: 'call_eba1_1',
            kind: 'function',
            name: 'get_weather',
            input: '{"city": "Oslo",\n "unit": "c"}',
            path: 'x',
          },
          {
            type: 'call',
            id: 'call_eba1_2',
            kind: 'custom',
            name: 'run',
            namespace: 'shell',
            input: 'curl  wttr.in',
            path: 'x',
          },
          { type: 'call', id: 'call_eba1_3', kind: 'function', name: 'get_weather', input: '{"city": "Ber', path: 'x' },
        ],
      },
      {
        role: 'tool',
        parts: [
          {
            type: 'result',
            callId: 'call_eba1_1',
            kind: 'function',
            content: [{ type: 'text', text: '{"temperature":-3}' }],
            path: 'x',
          },
          {
            type: 'result',
            callId: 'call_eba1_2',
            kind: 'custom',
            content: [{ type: 'text', text: 'oslo: ❄️' }, image, { type: 'text', text: 'see the picture' }],
            path: 'x',
          },
          { type: 'result', callId: 'call_eba1_3', kind: 'function', content: [], isError: true, path: 'x' },
        ],
      },
    ],
    tools: [
      {
        type: 'function',
        name: 'get_weather',
        description: 'Current weather',
        parameters: weather,
        strict: true,
        path: 'x',
      },
      { type: 'function', name: 'noop', namespace: 'mcp', parameters: { type: 'object', properties: {} }, path: 'x' },
      {
        type: 'custom',
        name: 'run',
        namespace: 'shell',
        description: 'Runs a command',
        grammar: { syntax: 'regex', definition: '[a-z ]+' },
        path: 'x',
      },
      { type: 'custom', name: 'free', path: 'x' },
      {
        type: 'web_search',
        maxUses: 3,
        allowedDomains: ['example.com', 'example.org'],
        userLocation: { type: 'approximate', city: 'Oslo', country: 'NO' },
        path: 'x',
      },
      {
        type: 'native',
        version: 'bash_20250124',
        name: 'bash',
        description: 'Runs a shell command.',
        parameters: { type: 'object', properties: { command: { type: 'string' } } },
        path: 'x',
      },
    ],
  }),
  media: conversation({
    turns: [
      {
        role: 'user',
        parts: [
          image,
          { type: 'image', source: { kind: 'data', mediaType: 'image/png', data: 'AAAA' }, detail: 'high', path: 'x' },
          {
            type: 'document',
            source: { kind: 'data', mediaType: 'application/pdf', data: 'AAAA' },
            title: 'The report',
            path: 'x',
          },
          { type: 'document', source: { kind: 'text', text: 'A short note.' }, context: 'Found on a desk', path: 'x' },
          { type: 'document', source: { kind: 'text', text: 'many words '.repeat(1000) }, path: 'x' },
          { type: 'document', source: { kind: 'text', text: '' }, path: 'x' },
        ],
      },
    ],
  }),
  'reasoning-and-search': conversation({
    turns: [
      { role: 'user', parts: [{ type: 'text', text: 'Who won?' }] },
      {
        role: 'assistant',
        parts: [
          { type: 'reasoning', summary: ['The user asks about a match.', 'I should search.'], handle: 'item_eba1_1' },
          { type: 'reasoning', summary: ['Not replayable.'] },
          {
            type: 'reasoning',
            summary: [],
            handle: 'item_eba1_2',
            continuation: { dialect: 'x', model: 'y', data: 'secret '.repeat(99) },
          },
          {
            type: 'search',
            id: 'hist_eba1_1',
            query: 'match result',
            results: [
              {
                title: 'Result',
                url: 'https://example.com/match',
                text: 'They won 3–1.',
                handle: 'h',
                pageAge: 'today',
              },
              { title: 'More', url: 'https://example.com/more' },
            ],
          },
          { type: 'refusal', text: "I can't say." },
        ],
      },
    ],
  }),
}
