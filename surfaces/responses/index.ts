/** The Responses surface. */
import type { Surface } from '../../core/surface.ts'
import { compileRequest } from '../check.ts'
import { errorBody } from '../envelope.ts'
import { ResponsesEncoder } from './encode.ts'
import { parse } from './parse.ts'
import { requestSchema } from './schema.ts'
import type { ResponsesBody } from './wire.ts'

export const responses: Surface = {
  name: 'responses',
  requestSchema,
  validate: compileRequest(requestSchema),
  parse: body => parse(body as ResponsesBody),
  encoder: context => new ResponsesEncoder(context),
  error: errorBody,
  requestIdHeaders: [],
}
