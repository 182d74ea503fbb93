/** Talks to a simulator in each dialect with the least that a request needs. */
import type { SimDialect } from '../../providers/simulator/dialect.ts'
import { type Simulator, type SimulatorOptions, startSimulator } from '../../providers/simulator/server.ts'

export type Name = SimDialect['name']
export const NAMES: readonly Name[] = ['openai-chat', 'openai-responses', 'anthropic-messages', 'gemini']

/** Starts a simulator, runs, closes it whatever happens. */
export async function withSimulator(
  run: (simulator: Simulator) => Promise<void>,
  options?: SimulatorOptions,
): Promise<void> {
  const simulator = await startSimulator(options)
  try {
    await run(simulator)
  } finally {
    await simulator.close()
  }
}

export function bodyFor(name: Name, prompt: string, stream: boolean): Record<string, unknown> {
  switch (name) {
    case 'openai-chat':
      return { model: 'sim', messages: [{ role: 'user', content: prompt }], ...(stream && { stream: true }) }
    case 'openai-responses':
      return { model: 'sim', input: prompt, ...(stream && { stream: true }) }
    case 'anthropic-messages':
      return {
        model: 'sim',
        max_tokens: 10_000,
        messages: [{ role: 'user', content: prompt }],
        ...(stream && { stream: true }),
      }
    case 'gemini':
      return { contents: [{ role: 'user', parts: [{ text: prompt }] }] }
  }
}

export function pathFor(name: Name, stream: boolean): string {
  switch (name) {
    case 'openai-chat':
      return '/chat/completions'
    case 'openai-responses':
      return '/responses'
    case 'anthropic-messages':
      return '/messages'
    case 'gemini':
      return `/models/sim:${stream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`
  }
}

export function post(
  simulator: Simulator,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
  signal?: AbortSignal,
): Promise<Response> {
  const init: RequestInit = {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  }
  if (signal) init.signal = signal
  return fetch(simulator.url + path, init)
}

export function ask(
  simulator: Simulator,
  name: Name,
  prompt: string,
  stream = false,
  headers: Record<string, string> = {},
): Promise<Response> {
  return post(simulator, pathFor(name, stream), bodyFor(name, prompt, stream), headers)
}

/** All text of a reply, buffered or streamed. */
export function textOf(name: Name, reply: any): string {
  switch (name) {
    case 'openai-chat':
      return reply.choices[0]?.message?.content ?? reply.choices[0]?.delta?.content ?? ''
    case 'openai-responses':
      if (reply.type !== undefined) return reply.type === 'response.output_text.delta' ? reply.delta : ''
      return reply.output
        .flatMap((item: any) => item.content ?? [])
        .map((part: any) => part.text ?? '')
        .join('')
    case 'anthropic-messages':
      if (reply.type !== 'message') return reply.delta?.type === 'text_delta' ? reply.delta.text : ''
      return reply.content.map((block: any) => block.text ?? '').join('')
    case 'gemini':
      return reply.candidates[0].content.parts
        .filter((part: any) => !part.thought)
        .map((part: any) => part.text ?? '')
        .join('')
  }
}

/** The JSON of each event of a stream, in order. */
export function eventsOf(stream: string): any[] {
  return stream
    .split('\n')
    .filter(line => line.startsWith('data: {'))
    .map(line => JSON.parse(line.slice(6)))
}
