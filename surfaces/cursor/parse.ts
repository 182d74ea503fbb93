/** Makes the canonical conversation from a body of Cursor's that the schema of its shape has accepted. */
import type { ClientForm, Conversation, CustomTool, Tool, ToolChoice } from '../../core/canon/conversation.ts'
import { form as chatForm } from '../chat/form.ts'
import { functionTool, read as readChat } from '../chat/parse.ts'
import { fault } from '../check.ts'
import { form as responsesForm } from '../responses/form.ts'
import { parse as parseResponses } from '../responses/parse.ts'
import type { ResponsesBody } from '../responses/schema.ts'
import { checkUniqueNames } from '../tools.ts'
import type { CursorMessagesBody, DeclaredTool, NamedTool, WireChoice } from './schema.ts'

/** Whether a body has the shape of Chat Completions. One without `messages` has that of Responses. */
export const hasMessages = (body: Record<string, unknown>): boolean => body['messages'] != null

/** That of Responses, but for what is retained: a reply in the form of a chat completion has no id to continue. */
const inputForm: ClientForm = { members: responsesForm.members }

/** @throws GatewayError for violations of rules that the schemas cannot express */
export function parse(body: Record<string, unknown>): Conversation {
  if (!hasMessages(body)) {
    const { store: _, ...conversation } = parseResponses(body as ResponsesBody)
    const { compaction } = conversation
    if (compaction)
      throw fault(
        'unsupported_parameter',
        compaction.path,
        w => `${w} asks for a compaction, which has no form in a chat completion. Leave it out.`,
      )
    return { ...conversation, surface: 'cursor', form: inputForm }
  }
  const { tools: declared, tool_choice: choice, ...members } = body as CursorMessagesBody
  const conversation = readChat(members, () => {
    const tools = (declared ?? []).map(toolOf)
    checkUniqueNames(tools, '.name')
    return { tools, toolChoice: choiceOf(choice, tools.length) }
  })
  return { ...conversation, surface: 'cursor', form: chatForm }
}

function toolOf(declared: DeclaredTool, i: number): Tool {
  const path = `tools[${i}]`
  if (declared.type === 'function') {
    const nested = declared.function != null
    return functionTool(membersOf(declared, declared.function, path), path, nested ? '.function' : '')
  }
  const { name, description, format } = membersOf(declared, declared.custom, path)
  const tool: CustomTool = { type: 'custom', name, path }
  if (description != null) tool.description = description
  if (format?.type === 'grammar') {
    const { syntax, definition } = format.grammar ?? format
    if (syntax == null || definition == null)
      throw fault(
        'missing_required_parameter',
        `${path}.format.definition`,
        w => `Missing required parameter: ${w}. A grammar has a syntax and a definition.`,
      )
    tool.grammar = { syntax, definition }
  }
  return tool
}

/** The members of what may be nested as in Chat Completions or flat as in Responses. */
function membersOf<F extends { type: string; name?: string | null }, N extends { name: string }>(
  flat: F,
  nested: N | null | undefined,
  path: string,
): N | (F & { name: string }) {
  const { type, name } = flat
  if (nested == null) {
    if (name != null) return { ...flat, name }
    throw fault(
      'missing_required_parameter',
      `${path}.name`,
      w => `Missing required parameter: ${w}, or '${path}.${type}' that has it.`,
    )
  }
  if (name == null) return nested
  throw fault('invalid_value', `${path}.name`, w => `${w} is given here and in '${type}'. Keep one of them.`)
}

function choiceOf(choice: WireChoice | null | undefined, tools: number): ToolChoice {
  if (choice == null) return { type: tools > 0 ? 'auto' : 'none' }
  if (typeof choice === 'string') return { type: choice }
  if (choice.type !== 'allowed_tools') return { type: 'tool', ...namedOf(choice, 'tool_choice') }
  const { mode, tools: allowed } = choice.allowed_tools ?? choice
  if (mode == null || allowed == null)
    throw fault(
      'missing_required_parameter',
      'tool_choice.tools',
      w => `Missing required parameter: ${w}, with 'mode'.`,
    )
  return { type: 'allowed', mode, tools: allowed.map((tool, i) => namedOf(tool, `tool_choice.tools[${i}]`)) }
}

function namedOf(choice: NamedTool, path: string) {
  const nested = choice.type === 'function' ? choice.function : choice.custom
  return { name: membersOf(choice, nested, path).name, kind: choice.type }
}
