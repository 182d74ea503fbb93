/**
 * Compaction as a request of its own: a conversation of Responses goes in, and what its client goes on with comes back.
 * It is an operation on Responses, whose parser and encoder it uses.
 */
import type { ClientForm, Conversation } from '../../core/canon/conversation.ts'
import { type StreamEvent, ZERO_USAGE } from '../../core/canon/events.ts'
import { compileRequest } from '../check.ts'
import type { DescribedSurface } from '../described.ts'
import { errorBody, errorReply } from '../envelope.ts'
import { ResponsesEncoder } from '../responses/encode.ts'
import { form as responsesForm } from '../responses/form.ts'
import { type InputItem, inputItems } from '../responses/input-items.ts'
import { parse } from '../responses/parse.ts'
import { ID } from '../responses/reply.ts'
import { usageOf } from '../responses/response.ts'
import { reply } from './reply.ts'
import { requestSchema } from './schema.ts'

/** That of Responses, but for what is retained. */
const form: ClientForm = { members: responsesForm.members }
/** The user's images are given back as they came. */
const WHOLE = new Set(['message.input_image.image_url'])

class CompactEncoder extends ResponsesEncoder {
  readonly #context: ConstructorParameters<typeof ResponsesEncoder>[0]
  #kept: InputItem[] = []

  constructor(context: ConstructorParameters<typeof ResponsesEncoder>[0]) {
    super(context)
    this.#context = context
  }

  override event(event: StreamEvent): string {
    if (event.type === 'compaction') this.#kept = inputItems(this.#context.objectId, [], event.kept, WHOLE)
    return super.event(event)
  }

  override body(): string {
    const { objectId, created } = this.#context
    const output = [...this.#kept.map(item => JSON.stringify(item)), this.outputItems()].join(',')
    return (
      `{"id":"${ID}${objectId}","object":"response.compaction","created_at":${created}` +
      `,"output":[${output}],"usage":${usageOf(this.usage ?? ZERO_USAGE)}}`
    )
  }
}

export const compact: DescribedSurface = {
  name: 'compact',
  title: 'Compaction of Responses',
  path: '/v1/responses/compact',
  operationOf: 'responses',
  requestSchema,
  argumentsAt: ['input', '*', 'arguments'],
  validate: compileRequest(requestSchema),
  parse: body => compacting(parse(body as Parameters<typeof parse>[0])),
  encoder: context => new CompactEncoder(context),
  error: errorBody,
  requestIdHeaders: [],
  reply,
  errorReply,
  samples: { body: (model, prompt) => ({ model, input: prompt }), features: {} },
}

/** The reply is one object, and nothing of it is retained. */
function compacting({ store: _, ...conversation }: Conversation): Conversation {
  return { ...conversation, surface: 'compact', form, compaction: { only: true, keeps: 'user', path: 'input' } }
}
