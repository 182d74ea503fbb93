/** The Embeddings surface, whose replies are vectors and no text. */
import { compileRequest } from '../check.ts'
import type { DescribedSurface } from '../described.ts'
import { errorBody, errorReply } from '../envelope.ts'
import { EmbeddingsEncoder } from './encode.ts'
import { parse } from './parse.ts'
import { type EmbeddingsBody, reply, requestSchema } from './schema.ts'

export const embeddings: DescribedSurface = {
  name: 'embeddings',
  title: 'Embeddings',
  path: '/v1/embeddings',
  serves: 'embeddings',
  requestSchema,
  reply,
  errorReply,
  samples: { body: (model, prompt) => ({ model, input: prompt }), features: {} },
  validate: compileRequest(requestSchema),
  parse: body => parse(body as EmbeddingsBody),
  encoder: context => new EmbeddingsEncoder(context),
  error: errorBody,
  requestIdHeaders: [],
}
