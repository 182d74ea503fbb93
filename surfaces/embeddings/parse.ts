/** Reads an Embeddings body that the schema has accepted. */
import type { ClientForm, Conversation } from '../../core/canon/conversation.ts'
import { fault } from '../check.ts'
import type { EmbeddingsBody } from './schema.ts'

/** OpenAI's own bound. */
const MOST_INPUTS = 2048

const form: ClientForm = {
  members: {
    effort: 'input',
    single: 'input',
    stop: 'input',
    logprobs: 'input',
    turns: 'input',
    toolSchema: '',
    toolStrict: '',
  },
}

/** A text, or the ids of its tokens. */
export type EmbeddingInput = string | readonly number[]

/** The inputs of a body that `parse` accepted; each gets one vector. */
export function inputsOf({ input }: Pick<EmbeddingsBody, 'input'>): readonly EmbeddingInput[] {
  if (typeof input === 'string') return [input]
  return typeof input[0] === 'number' ? [input as number[]] : (input as EmbeddingInput[])
}

/**
 * A conversation without turns: it says which model is asked, and that no output is. The plugin `embeddings` reads the
 * inputs from the body.
 * @throws GatewayError for violations of rules that the schema cannot express
 */
export function parse(body: EmbeddingsBody): Conversation {
  const { input, model } = body
  if (Array.isArray(input)) {
    const kind = kindOf(input[0]!)
    const other = input.findIndex(each => kindOf(each) !== kind)
    if (other > 0)
      throw fault(
        'invalid_type',
        `input[${other}]`,
        w => `${w} is ${kindOf(input[other]!)}, and input[0] is ${kind}. All inputs must be of one kind.`,
      )
  }
  const inputs = inputsOf(body)
  if (inputs.length > MOST_INPUTS)
    throw fault(
      'invalid_value',
      'input',
      w => `${w} has ${inputs.length} entries; it must have at most ${MOST_INPUTS}. Send several requests.`,
    )
  const empty = inputs.findIndex(each => each.length === 0)
  if (empty >= 0) {
    const at = Array.isArray(input) ? `input[${empty}]` : 'input'
    throw fault('invalid_value', at, w => `${w} is empty; there is nothing to embed. Leave it out.`)
  }
  return {
    surface: 'embeddings',
    form,
    requestedModel: model,
    model,
    stream: false,
    system: [],
    turns: [],
    tools: [],
    toolChoice: { type: 'none' },
    parallelToolCalls: true,
    maxOutputTokens: 0,
    sampling: { stop: [], logprobs: false },
    reasoning: {},
  }
}

const kindOf = (input: unknown): string =>
  typeof input === 'string' ? 'a text' : typeof input === 'number' ? 'a token id' : 'a list of token ids'
