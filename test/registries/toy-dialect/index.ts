/**
 * An invented wire format. The request is `POST /ask { model, system?, prompt, most?, stream }`. The reply is
 * `{ said, tokens: [prompt, output], full? }`, or the same in pieces, each a line of JSON. It keeps every rule of
 * docs/dialects.md.
 */
import type { Conversation, Part } from '../../../core/canon/conversation.ts'
import type { FinishReason, StreamEvent } from '../../../core/canon/events.ts'
import type { Decoder, Dialect, Unfit } from '../../../core/ports/dialect.ts'
import { choice } from '../../../core/tools/vocabulary.ts'
import { settingsOf } from '../../../providers/dialect-settings.ts'
import { documentText, searchText } from '../../../providers/document-text.ts'
import { cutShort, faultOf, kindOfStatus, retryAfterMs, unreadable } from '../../../providers/faults.ts'
import { JsonLines } from '../../../providers/json-lines.ts'
import { adjustments } from '../../../providers/left-out.ts'
import { count, list, parseObject } from '../../../providers/loose-json.ts'
import { OutboundHeaders } from '../../../providers/outbound-headers.ts'
import { commonUnfit } from '../../../providers/requirements.ts'
import { StopDecoder } from '../../../providers/stop-matcher.ts'

const HEADERS = new OutboundHeaders(apiKey => ({ authorization: `Bearer ${apiKey}` }))

const settings = { backend: { voice: choice(['plain', 'loud'], 'How the toy is asked.', 'plain') } }

export const toy: Dialect = {
  name: 'toy',
  vendor: 'toys',
  keyless: true,
  capabilities: new Set(),
  nativeTools: new Set(),
  settings,
  unfit: (conversation, backend) => commonUnfit(conversation, backend) ?? ownUnfit(conversation),
  request(conversation, backend, context) {
    const system = conversation.system.filter(part => !part.meteredOnly).map(part => part.text)
    return {
      method: 'POST',
      path: '/ask',
      headers: HEADERS.of(backend, context.stream),
      body: (context.json ?? JSON.stringify)({
        model: backend.model,
        system: system.length > 0 ? system.join('\n') : undefined,
        prompt: conversation.turns.flatMap(turn => turn.parts.flatMap(textOf)).join('\n'),
        most: conversation.maxOutputTokens,
        stream: context.stream,
        loud: settingsOf<typeof settings>(backend).backend.voice === 'loud' || undefined,
      }),
      state: undefined,
      adjusted: adjustments(conversation, {}),
    }
  },
  decoder({ conversation }) {
    const { stop } = conversation.sampling
    return stop.length > 0 ? new StopDecoder(new ToyDecoder(), stop) : new ToyDecoder()
  },
  frames: contentType => (contentType.startsWith('application/x-ndjson') ? new JsonLines() : null),
  fault: (status, headers) => faultOf(kindOfStatus(status), retryAfterMs(headers)),
}

/**
 * What no capability says: a control that may not be left out, and calls in the history of a request that declares no
 * tool.
 */
function ownUnfit({ sampling, turns }: Conversation): Unfit | null {
  if (sampling.topK !== undefined) return { param: 'top_k', requirement: 'top-k sampling' }
  for (const { parts } of turns)
    for (const part of parts)
      if (part.type === 'call' || part.type === 'result') return { param: part.path, requirement: 'tool calls' }
  return null
}

/** The lines of a prompt. Images and PDF documents are not here: `unfit` has refused them. */
function textOf(part: Part): string[] {
  if (part.type === 'text') return part.meteredOnly ? [] : [part.text]
  if (part.type === 'refusal') return [part.text]
  if (part.type === 'search') return [searchText(part)]
  return part.type === 'document' && part.source.kind === 'text' ? [documentText(part, part.source.text)] : []
}

class ToyDecoder implements Decoder {
  #reason: FinishReason | null = null
  #failed = false

  get done(): boolean {
    return this.#reason !== null || this.#failed
  }

  frame(_event: string, data: string, push: (event: StreamEvent) => void): void {
    if (this.done) return
    const reply = parseObject(data)
    if (!reply) {
      this.#failed = true
      return push({ type: 'error', error: unreadable('no JSON object') })
    }
    if (typeof reply['said'] === 'string') push({ type: 'text', text: reply['said'] })
    const [prompt, output] = list(reply['tokens']).map(count)
    if (prompt === undefined || output === undefined) return
    push({ type: 'usage', usage: { prompt, output } })
    this.#reason = reply['full'] === true ? 'length' : 'stop'
  }
  body(text: string, push: (event: StreamEvent) => void): void {
    this.frame('', text, push)
  }
  end(push: (event: StreamEvent) => void): void {
    if (this.#reason) push({ type: 'finish', reason: this.#reason })
    else if (!this.#failed) push({ type: 'error', error: cutShort() })
  }
}
