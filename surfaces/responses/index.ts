/** The Responses surface. */
import type { Surface } from '../../core/surface.ts'
import { compileRequest } from '../check.ts'
import type { DescribedSurface } from '../described.ts'
import { errorBody, errorReply } from '../envelope.ts'
import { ResponsesEncoder } from './encode.ts'
import { parse } from './parse.ts'
import { reply } from './reply.ts'
import { samples } from './samples.ts'
import type { ResponsesBody } from './schema.ts'
import { requestSchema } from './schema.ts'
import { socketForm } from './socket.ts'

const http: Surface = {
  name: 'responses',
  title: 'Responses',
  path: '/v1/responses',
  requestSchema,
  validate: compileRequest(requestSchema),
  parse: body => parse(body as ResponsesBody),
  encoder: context => new ResponsesEncoder(context),
  error: errorBody,
  requestIdHeaders: [],
}

export const responses: DescribedSurface = { ...http, reply, errorReply, samples, socket: socketForm(http) }
