/** The Responses surface. */
import type { Surface } from '../../core/surface.ts'
import { compileRequest } from '../check.ts'
import { errorBody } from '../envelope.ts'
import { ResponsesEncoder } from './encode.ts'
import { parse } from './parse.ts'
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

export const responses: Surface = { ...http, socket: socketForm(http) }
