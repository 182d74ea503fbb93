/** Request and reply of POST /v1/embeddings (wire.md A.8). */
import type { NamedSchema } from '../described.ts'
import { model, user } from '../fields.ts'
import {
  type Arrives,
  array,
  exactly,
  forms,
  integer,
  object,
  oneOfStrings,
  type Schema,
  shape,
  string,
  titled,
} from '../schema.ts'

const tokenId = integer(0)

export const requestSchema = titled(
  'Embeddings request',
  object(
    {
      model,
      input: forms([string(), array(forms([string(), tokenId, array(tokenId)]), { minItems: 1 })], {
        description: 'A text, a list of token ids, or a list of either: at most 2,048 of them.',
      }),
      encoding_format: oneOfStrings(['float', 'base64']),
      dimensions: integer(1),
      user,
    },
    ['model', 'input'],
  ),
)
export type EmbeddingsBody = Arrives<typeof requestSchema>

const tokens: Schema = integer(0)
export const reply: NamedSchema = {
  name: 'EmbeddingList',
  schema: shape({
    object: exactly('list'),
    data: array(
      shape({
        object: exactly('embedding'),
        index: integer(0),
        embedding: {
          description: 'Numbers, or with `encoding_format: base64` their 32-bit floats, little-endian.',
          anyOf: [{ type: 'array', items: { type: 'number' } }, { type: 'string' }],
        },
      }),
    ),
    model: string(),
    usage: shape({ prompt_tokens: tokens, total_tokens: tokens }),
  }),
}
