/**
 * Chat Completions as Cursor speaks it. One path gets bodies of two shapes, and the reply is a chat completion to both.
 * Chat Completions itself stays strict.
 */
import { ChatEncoder } from '../chat/encode.ts'
import { chat } from '../chat/index.ts'
import { replyOfAllCalls } from '../chat/reply.ts'
import { compileRequest, fault, type Validate } from '../check.ts'
import type { DescribedSurface } from '../described.ts'
import { responses } from '../responses/index.ts'
import { hasMessages, parse } from './parse.ts'
import { samples } from './samples.ts'
import { inputShape, messagesShape } from './schema.ts'

const checkInput = compileRequest(inputShape)
const checkMessages = compileRequest(messagesShape)

export const cursor: DescribedSurface = {
  ...chat,
  name: 'cursor',
  title: 'Chat Completions of Cursor',
  path: '/v1/cursor/chat/completions',
  client: 'Cursor',
  requestSchema: { anyOf: [inputShape, messagesShape] },
  shapes: [inputShape, messagesShape],
  reply: replyOfAllCalls('CursorChatCompletion'),
  samples,
  validate(body, unknownFields) {
    const members = body as Record<string, unknown>
    if (hasMessages(members)) return checkMessages(body, unknownFields)
    if (members['input'] != null) return checkInput(body, unknownFields)
    // A chain compiles its validators at start by an empty body, which has neither shape.
    for (const check of [checkInput, checkMessages]) attempt(check, body)
    throw fault('missing_required_parameter', 'messages', w => `Missing required parameter: ${w}, or 'input'.`)
  },
  refuseStructured: body => (hasMessages(body) ? chat : responses).refuseStructured!(body),
  parse: body => parse(body as Record<string, unknown>),
  encoder: context => new ChatEncoder(context, true),
}

function attempt(check: Validate, body: unknown): void {
  try {
    check(body, 'reject')
  } catch {
    // It is refused below.
  }
}
