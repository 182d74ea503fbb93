/**
 * Makes the canonical conversation from a Messages body (wire.md A.4, B.3–B.5). One reader serves both the endpoint,
 * whose body the schema has accepted, and count_tokens, whose body may be anything (wire.md A.5). A body that the
 * endpoint accepts is counted the same on both (CNT-1).
 */
import {
  type Conversation,
  EFFORTS,
  type Effort,
  type OutputFormat,
  type ReasoningControls,
} from '../../core/canon/conversation.ts'
import { fault } from '../check.ts'
import { schemaFormat, strictIfPossible } from '../output-format.ts'
import { hasTag } from '../schema.ts'
import { isObject, listOf, numberOf, stringOf } from '../unchecked.ts'
import { BlockReader } from './blocks.ts'
import { form } from './form.ts'
import { readManagement } from './management.ts'
import { Reading } from './reading.ts'
import { type MessagesBody, thinkingControl } from './schema.ts'
import { readToolChoice, readTools } from './tools.ts'

/**
 * @throws GatewayError for violations of rules that a schema cannot express: budgets, cache markers, tool names and
 *   choice, strict schemas, media
 */
export function parse(body: unknown): Conversation {
  return read(body as MessagesBody, new Reading(true))
}

/** Never throws, whatever the body is. One message without its list counts as a list of one. */
export function parseLoosely(body: unknown): Conversation {
  const members = body as MessagesBody | undefined
  if (!isObject(members)) return read({ messages: [] } as unknown as MessagesBody, new Reading(false))
  const { messages } = members
  const whole = messages == null || Array.isArray(messages)
  return read(whole ? members : { ...members, messages: [messages] as never }, new Reading(false))
}

/** The body that stands for JSON that is no object: such a value is taken for the messages. */
export const looseBody = (value: unknown): Record<string, unknown> => ({ messages: value })

function read(body: MessagesBody, reading: Reading): Conversation {
  const tools = readTools(body, reading)
  const blocks = new BlockReader(reading)
  blocks.system(body.system)
  const messages = listOf(body.messages)
  for (let i = 0; i < messages.length; i++) blocks.message(messages[i]!, `messages[${i}]`)
  const automatic = reading.cache(body, '')
  if (automatic) blocks.markLast(automatic)

  const model = stringOf(body.model) ?? ''
  const choice = isObject(body.tool_choice) ? body.tool_choice : undefined
  const conversation: Conversation = {
    surface: 'messages',
    form,
    requestedModel: model,
    model,
    stream: body.stream === true,
    system: blocks.turns.system,
    turns: blocks.turns.turns,
    tools,
    toolChoice: readToolChoice(choice, tools, reading),
    parallelToolCalls: choice?.disable_parallel_tool_use !== true,
    sampling: {
      temperature: numberOf(body.temperature),
      topP: numberOf(body.top_p),
      topK: numberOf(body.top_k),
      stop: listOf(body.stop_sequences).filter(s => typeof s === 'string'),
      logprobs: false,
    },
    reasoning: readReasoning(body, reading),
  }
  const output = readFormat(body, reading)
  if (output) conversation.output = output
  if (blocks.sealed) conversation.sealed = true
  if (body.context_management != null || body.compaction != null)
    Object.assign(conversation, readManagement(body, reading))
  const cap = numberOf(body.max_tokens)
  if (cap !== undefined) {
    conversation.maxOutputTokens = cap
    conversation.maxOutputField = 'max_tokens'
  }
  return conversation
}

/** `output_config.format`, or `output_format` of clients from the time of the beta. */
function readFormat(body: MessagesBody, reading: Reading): OutputFormat | undefined {
  const config = isObject(body.output_config) ? body.output_config : undefined
  const path = config?.format == null ? 'output_format' : 'output_config.format'
  const format = config?.format ?? body.output_format
  if (!isObject(format) || format.type !== 'json_schema' || !isObject(format.schema)) return undefined
  const schema = format.schema as Record<string, unknown>
  return reading.strict
    ? strictIfPossible(schemaFormat({ schema }, path, `${path}.schema`))
    : { schema, strict: false, path }
}

function readReasoning(body: MessagesBody, reading: Reading): ReasoningControls {
  const reasoning: ReasoningControls = {}
  const output = body.output_config
  const effort = isObject(output) ? output.effort : undefined
  if (EFFORTS.includes(effort as Effort)) reasoning.effort = effort as Effort
  const thinking = body.thinking
  if (!isObject(thinking)) return reasoning
  const type = thinking.type
  if (!hasTag(thinkingControl, type)) return reasoning
  reasoning.thinking = type
  if (showsThinking(body)) reasoning.summary = 'auto'
  const budget = numberOf(thinking.budget_tokens)
  if (type !== 'enabled' || budget === undefined) return reasoning
  reasoning.budgetTokens = budget
  const cap = body.max_tokens
  if (reading.strict && budget >= (cap as number))
    throw fault(
      'invalid_value',
      'thinking.budget_tokens',
      w => `${w} is ${budget}; it must be below max_tokens (${cap}). Lower it or raise max_tokens.`,
    )
  return reasoning
}

/** Whether the reply shows thinking blocks (wire.md C.3). */
export function showsThinking(body: MessagesBody): boolean {
  const thinking = body.thinking
  if (!isObject(thinking) || thinking.display === 'omitted') return false
  return hasTag(thinkingControl, thinking.type) && thinking.type !== 'disabled'
}
