/** The Chat Completions surface. */
import { compileRequest, describe, fault } from '../check.ts'
import type { DescribedSurface } from '../described.ts'
import { errorBody, errorReply } from '../envelope.ts'
import { ChatEncoder } from './encode.ts'
import { parse } from './parse.ts'
import { reply } from './reply.ts'
import { samples } from './samples.ts'
import type { ChatBody } from './schema.ts'
import { requestSchema } from './schema.ts'

export const chat: DescribedSurface = {
  name: 'chat',
  title: 'Chat Completions',
  path: '/v1/chat/completions',
  structuredOutput: 'reject',
  requestSchema,
  reply,
  errorReply,
  samples,
  validate: compileRequest(requestSchema),
  refuseStructured({ response_format: format }) {
    const type = (format as ChatBody['response_format'])?.type
    if (typeof type === 'string' && type !== 'text')
      throw fault(
        'unsupported_parameter',
        'response_format',
        w =>
          `${w} does not support ${describe(type)}. Only {"type":"text"} is offered: describe the shape you want in the prompt, or use a strict tool.`,
      )
  },
  parse: body => parse(body as ChatBody),
  encoder: context => new ChatEncoder(context),
  error: errorBody,
  requestIdHeaders: [],
}
