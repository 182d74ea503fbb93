/** Example requests of Cursor: those of its agent mode, which have the shape of Responses. */
import { samples as chat } from '../chat/samples.ts'
import type { Samples } from '../described.ts'
import { samples as responses } from '../responses/samples.ts'

export const samples: Samples = {
  ...responses,
  stream: {
    members: { stream: true, stream_options: { include_usage: true }, max_output_tokens: 1000 },
    cap: 'max_output_tokens',
    read: chat.stream!.read,
  },
}
