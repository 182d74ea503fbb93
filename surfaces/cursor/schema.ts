/**
 * Request schemas of POST /v1/cursor/chat/completions (wire.md A.7). Cursor sends two shapes to one path: a Responses
 * body in agent mode, and else a Chat Completions body whose tools may be declared as Responses declares them.
 */
import { type ChatMembers, requestSchema as chatSchema, messagesOfAllCalls } from '../chat/schema.ts'
import { allowedMode, toolMode, toolName } from '../fields.ts'
import { customTool, functionTool, requestSchema as responsesSchema } from '../responses/schema.ts'
import {
  type Arrives,
  array,
  boolean,
  forms,
  noop,
  type Optional,
  object,
  oneOfStrings,
  opaqueObject,
  rejected,
  type Schema,
  string,
  tagged,
  variant,
} from '../schema.ts'

const membersOf = (schema: Schema) => schema['properties'] as Record<string, Schema>

// ---- the shape of Responses -----------------------------------------------------------------------------------------

export const inputShape: Schema = {
  ...responsesSchema,
  title: 'Cursor request, as Responses',
  properties: {
    ...membersOf(responsesSchema),
    // A namespace, a search and what it finds have no form in a chat completion.
    tools: array(tagged('type', [functionTool, customTool]), { maxItems: 512 }),
    stream_options: membersOf(chatSchema)['stream_options']!,
    store: noop(boolean(), 'Chat completions are never stored.'),
    previous_response_id: rejected('Send the whole conversation in input.'),
  },
  required: ['model', 'input'],
}

// ---- the shape of Chat Completions ----------------------------------------------------------------------------------

const grammar = { syntax: oneOfStrings(['lark', 'regex']), definition: string() }
const customMembers = {
  name: toolName,
  description: string(),
  format: tagged('type', [
    variant('type', 'text', {}),
    variant('type', 'grammar', { grammar: object(grammar, ['syntax', 'definition']), ...grammar }),
  ]),
}
const functionMembers = { name: toolName, description: string(), parameters: opaqueObject(), strict: boolean() }
/** Each level may be nested as in Chat Completions, or flat as in Responses; `parse` wants exactly one of the two. */
const tool = tagged('type', [
  variant('type', 'function', { function: object(functionMembers, ['name']), ...functionMembers }),
  variant('type', 'custom', { custom: object(customMembers, ['name']), ...customMembers }),
])
const named = [
  variant('type', 'function', { function: object({ name: toolName }, ['name']), name: toolName }),
  variant('type', 'custom', { custom: object({ name: toolName }, ['name']), name: toolName }),
] as const
const allowed = { mode: allowedMode, tools: array(tagged('type', named), { minItems: 1 }) }
const tools = array(tool, { maxItems: 128 })
const toolChoice = forms([
  toolMode,
  tagged('type', [
    ...named,
    variant('type', 'allowed_tools', { allowed_tools: object(allowed, ['mode', 'tools']), ...allowed }),
  ]),
])

export const messagesShape: Schema = {
  ...chatSchema,
  title: 'Cursor request, as Chat Completions',
  properties: { ...membersOf(chatSchema), messages: messagesOfAllCalls, tools, tool_choice: toolChoice },
}

// ---- the body for `parse` ---------------------------------------------------------------------------------------------

export type CursorMessagesBody = ChatMembers & {
  tools?: Optional<Arrives<typeof tools>>
  tool_choice?: Optional<Arrives<typeof toolChoice>>
}
export type DeclaredTool = Arrives<typeof tool>
export type WireChoice = Arrives<typeof toolChoice>
export type NamedTool = Arrives<(typeof named)[number]>
