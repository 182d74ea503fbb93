/** The Responses surface. */
import type { Surface } from '../../core/ports/surface.ts'
import { compileRequest, describe, fault } from '../check.ts'
import type { DescribedSurface } from '../described.ts'
import { errorBody, errorReply } from '../envelope.ts'
import { ResponsesEncoder } from './encode.ts'
import { parse } from './parse.ts'
import { reply } from './reply.ts'
import { samples } from './samples.ts'
import type { ResponsesBody } from './schema.ts'
import { requestSchema } from './schema.ts'
import { socketForm } from './socket.ts'

const check = compileRequest(requestSchema)

const http: Surface = {
  name: 'responses',
  title: 'Responses',
  path: '/v1/responses',
  requestSchema,
  // Of the calls that search for tools. All other arguments are strings.
  argumentsAt: ['input', '*', 'arguments'],
  validate: check,
  refuseStructured({ text }) {
    const type = (text as ResponsesBody['text'])?.format?.type
    if (typeof type === 'string' && type !== 'text')
      throw fault(
        'unsupported_parameter',
        'text.format',
        w =>
          `${w} does not support ${describe(type)}. Only {"type":"text"} is offered: describe the shape you want in the prompt, or use a strict tool.`,
      )
  },
  parse: body => parse(body as ResponsesBody),
  // A count needs no model, and unknown members count nothing. What else the surface would refuse is refused here too,
  // as OpenAI does.
  parseLoosely(body) {
    const counted = body as ResponsesBody
    const named = { ...counted, model: counted.model ?? 'any' }
    check(named, 'strip')
    return parse(named)
  },
  judgesCounts: true,
  countReply: tokens => ({ object: 'response.input_tokens', input_tokens: tokens }),
  encoder: context => new ResponsesEncoder(context),
  error: errorBody,
  requestIdHeaders: [],
}

export const responses: DescribedSurface = { ...http, reply, errorReply, samples, socket: socketForm(http) }
