/**
 * Checks that an answer has all of the text that the upstream sent, in the format of the surface. The same checks apply
 * to every contender.
 */
import type { Route, SurfaceName } from './requests.ts'
import { eventsOf, streamText, TEXT } from './upstream-replies.ts'

/** The text that ends a good stream; it is searched in the last bytes. */
export const TERMINAL: Record<SurfaceName, string> = {
  chat: 'data: [DONE]\n\n',
  messages: 'event: message_stop\n',
  responses: 'event: response.completed\n',
}

/** The last event of a response repeats the request's tools, so its name is not among the last bytes. */
export const terminalOf = ({ surface, agents }: Route): string =>
  agents && surface === 'responses' ? '}\n\n' : TERMINAL[surface]

class Wrong extends Error {}

function equal(what: string, actual: unknown, expected: unknown): void {
  if (actual === expected) return
  const show = (value: unknown) => String(JSON.stringify(value)).slice(0, 120)
  throw new Wrong(`${what} is ${show(actual)} instead of ${show(expected)}`)
}

/**
 * Checks that a token count is there. A gateway may count differently from the upstream, so any positive number is
 * right.
 */
function counted(what: string, tokens: unknown): void {
  if (!Number.isInteger(tokens) || (tokens as number) < 1) throw new Wrong(`${what} is ${JSON.stringify(tokens)}`)
}

const buffered: Record<SurfaceName, (body: any) => void> = {
  chat(body) {
    equal('object', body.object, 'chat.completion')
    equal('choices', body.choices.length, 1)
    equal('content', body.choices[0].message.content, TEXT)
    equal('finish_reason', body.choices[0].finish_reason, 'stop')
    counted('prompt_tokens', body.usage.prompt_tokens)
    counted('completion_tokens', body.usage.completion_tokens)
  },
  messages(body) {
    equal('type', body.type, 'message')
    equal('content blocks', body.content.length, 1)
    equal('text', body.content[0].text, TEXT)
    equal('stop_reason', body.stop_reason, 'end_turn')
    counted('input_tokens', body.usage.input_tokens)
    counted('output_tokens', body.usage.output_tokens)
  },
  responses(body) {
    equal('object', body.object, 'response')
    equal('status', body.status, 'completed')
    equal('output items', body.output.length, 1)
    equal('text', body.output[0].content[0].text, TEXT)
    counted('input_tokens', body.usage.input_tokens)
    counted('output_tokens', body.usage.output_tokens)
  },
}

interface Frame {
  event: string | undefined
  data: any
}

function framesOf(text: string): Frame[] {
  if (!text.endsWith('\n\n')) throw new Wrong('the stream ends within a frame')
  return text
    .slice(0, -2)
    .split('\n\n')
    .flatMap(block => {
      const lines = block.split('\n').filter(line => !line.startsWith(':'))
      if (lines.length === 0) return []
      const field = (name: string) => lines.find(line => line.startsWith(`${name}: `))?.slice(name.length + 2)
      const data = field('data')
      if (data === undefined) throw new Wrong(`a frame without data: ${block.slice(0, 80)}`)
      return [{ event: field('event'), data: data === '[DONE]' ? data : JSON.parse(data) }]
    })
}

/**
 * Checks the texts of the content events. Each content event of the upstream must arrive as one event; otherwise the
 * events per second of contenders could not be compared.
 */
function content(pieces: string[], events: number): void {
  const filled = pieces.filter(piece => piece !== '')
  equal('content events', filled.length, events)
  equal('text', filled.join(''), streamText(events))
}

const streamed: Record<SurfaceName, (frames: Frame[], events: number) => void> = {
  chat(frames, events) {
    equal('last frame', frames.pop()?.data, '[DONE]')
    const choices = frames.flatMap(frame => frame.data.choices)
    content(
      choices.map(choice => choice.delta.content ?? ''),
      events,
    )
    equal('finishes', choices.map(choice => choice.finish_reason ?? '').join(''), 'stop')
    const usages = frames.flatMap(frame => (frame.data.usage ? [frame.data.usage] : []))
    equal('usages', usages.length, 1)
    counted('completion_tokens', usages[0].completion_tokens)
  },
  messages(frames, events) {
    for (const frame of frames) equal('event', frame.event, frame.data.type)
    equal('first event', frames[0]!.event, 'message_start')
    equal('last event', frames.at(-1)!.event, 'message_stop')
    const deltas = frames.filter(frame => frame.event === 'content_block_delta')
    content(
      deltas.map(frame => frame.data.delta.text),
      events,
    )
    const [end, ...more] = frames.filter(frame => frame.event === 'message_delta')
    equal('further message_delta', more.length, 0)
    equal('stop_reason', end!.data.delta.stop_reason, 'end_turn')
    counted('output_tokens', end!.data.usage.output_tokens)
  },
  responses(frames, events) {
    for (const frame of frames) equal('event', frame.event, frame.data.type)
    for (const [i, frame] of frames.entries()) equal('sequence_number', frame.data.sequence_number, i)
    equal('first event', frames[0]!.event, 'response.created')
    equal('last event', frames.at(-1)!.event, 'response.completed')
    content(
      frames.filter(frame => frame.event === 'response.output_text.delta').map(frame => frame.data.delta),
      events,
    )
    const { response } = frames.at(-1)!.data
    equal('status', response.status, 'completed')
    equal('whole text', response.output[0].content[0].text, streamText(events))
    counted('output_tokens', response.usage.output_tokens)
  },
}

/** Checks one answer. @returns what is wrong with it, or undefined */
export function wrong(route: Route, stream: boolean, status: number, body: string): string | undefined {
  const { surface } = route
  if (status !== 200) return `status ${status}: ${body.slice(0, 200)}`
  try {
    if (stream) streamed[surface](framesOf(body), eventsOf(route))
    else buffered[surface](JSON.parse(body))
    return undefined
  } catch (error) {
    return `${(error as Error).message} in ${body.length} bytes: ${body.slice(0, 200)}`
  }
}
