/** The Chat Completions surface. */
import type { Surface } from '../../core/surface.ts'
import { compileRequest } from '../check.ts'
import { errorBody } from '../envelope.ts'
import { ChatEncoder } from './encode.ts'
import { parse } from './parse.ts'
import type { ChatBody } from './schema.ts'
import { requestSchema } from './schema.ts'

export const chat: Surface = {
  name: 'chat',
  title: 'Chat Completions',
  path: '/v1/chat/completions',
  requestSchema,
  validate: compileRequest(requestSchema),
  parse: body => parse(body as ChatBody),
  encoder: context => new ChatEncoder(context),
  error: errorBody,
  requestIdHeaders: [],
}
