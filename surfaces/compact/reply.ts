/** Schema of the reply to a compaction. */
import type { NamedSchema } from '../described.ts'
import { unixSeconds } from '../envelope.ts'
import { ID, usage } from '../responses/reply.ts'
import { array, exactly, shape, string } from '../schema.ts'

export const reply: NamedSchema = {
  name: 'Compaction',
  schema: shape({
    id: string({ pattern: `^${ID}` }),
    object: exactly('response.compaction'),
    created_at: unixSeconds,
    output: array(shape({ id: string(), type: string() })),
    usage,
  }),
}
