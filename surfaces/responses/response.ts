/**
 * The Response object of Responses replies, concatenated as JSON text. Several events of a stream contain it; its
 * items and the members that repeat the request are JSON already, so they are serialised once. Each member is one
 * line here, in the order of the reply.
 */
import type { Usage } from '../../core/canon/events.ts'
import type { EncodeContext } from '../../core/ports/surface.ts'
import { ID, type IncompleteReason, type Status, type Warning } from './reply.ts'
import type { ResponsesBody, WireTool } from './schema.ts'

/** The state of the reply. */
export interface Progress {
  status: Status
  /** Unix seconds; null unless the reply is complete. */
  completedAt: number | null
  error: Record<string, unknown> | null
  incompleteReason: IncompleteReason | null
  usage: Usage | undefined
  warning: Warning | undefined
}

/** The state of a reply before its end. */
export const IN_PROGRESS: Progress = Object.freeze({
  status: 'in_progress',
  completedAt: null,
  error: null,
  incompleteReason: null,
  usage: undefined,
  warning: undefined,
})

/**
 * The Response object as JSON.
 *
 * @param output JSON of the items, without brackets
 * @param echo the result of `echoOf`
 */
export function responseOf(context: EncodeContext, progress: Progress, output: string, echo: string): string {
  const { status, completedAt, error, incompleteReason, usage, warning } = progress
  const incomplete = incompleteReason === null ? 'null' : `{"reason":"${incompleteReason}"}`
  const tail = warning === undefined ? echo : `"warning":${JSON.stringify(warning)},${echo}`
  return (
    `{"id":"${ID}${context.objectId}","object":"response","created_at":${context.created},"status":"${status}"` +
    `,"completed_at":${completedAt},"error":${error === null ? 'null' : JSON.stringify(error)}` +
    `,"incomplete_details":${incomplete},"model":${JSON.stringify(context.model)}` +
    `,"output":[${output}],"usage":${usage ? usageOf(usage) : 'null'},${tail}}`
  )
}

/** The members that repeat the request, as JSON without braces. */
export function echoOf(context: EncodeContext): string {
  const body = context.body as unknown as ResponsesBody
  const { reasoning, tools } = body
  const summary = reasoning?.summary ?? reasoning?.generate_summary
  return (
    '"access_programs":null,"background":false,"frequency_penalty":0' +
    `,"instructions":${json(body.instructions)}` +
    `,"max_output_tokens":${body.max_output_tokens ?? null}` +
    `,"max_tool_calls":${body.max_tool_calls ?? null}` +
    `,"metadata":${body.metadata == null ? '{}' : JSON.stringify(body.metadata)}` +
    `,"parallel_tool_calls":${body.parallel_tool_calls ?? true}` +
    ',"presence_penalty":0' +
    `,"previous_response_id":${json(body.previous_response_id)}` +
    `,"prompt_cache_key":${json(body.prompt_cache_key)}` +
    `,"reasoning":{"effort":${json(reasoning?.effort)},"summary":${json(summary)}}` +
    `,"safety_identifier":${json(body.safety_identifier)}` +
    ',"service_tier":"default"' +
    `,"store":${body.store ?? true}` +
    `,"temperature":${body.temperature ?? 1}` +
    `,"text":{"format":${formatOf(body.text?.format)},"verbosity":"${body.text?.verbosity ?? 'medium'}"}` +
    `,"tool_choice":${JSON.stringify(body.tool_choice ?? 'auto')}` +
    `,"tools":${tools?.length ? toolsOf(tools) : '[]'}` +
    `,"top_logprobs":${body.top_logprobs ?? 0}` +
    `,"top_p":${body.top_p ?? 1}` +
    ',"truncation":"disabled"' +
    (body.user == null ? '' : `,"user":${JSON.stringify(body.user)}`)
  )
}

/**
 * The JSON of tools as replies repeat them. The turns of a conversation share the list where they repeat it
 * (plugins/shared/recent.ts, which counts the bytes of this text, too).
 */
const written = new WeakMap<readonly WireTool[], string>()

function toolsOf(tools: readonly WireTool[]): string {
  let text = written.get(tools)
  if (text === undefined) written.set(tools, (text = JSON.stringify(tools.map(echoed))))
  return text
}

/** A function tool as the Response object shows it: with all members, also those that the request left out. */
function echoed(tool: WireTool): WireTool {
  if (tool.type !== 'function') return tool
  const { description = null, parameters = null, strict } = tool
  return { ...tool, description, parameters, strict: strict ?? false }
}

/** The format with its defaults, as OpenAI repeats it. */
function formatOf(format: NonNullable<ResponsesBody['text']>['format']): string {
  if (format?.type !== 'json_schema') return `{"type":"${format?.type ?? 'text'}"}`
  const { name, description, schema, strict } = format
  return JSON.stringify({
    type: 'json_schema',
    name,
    description: description ?? null,
    schema,
    strict: strict === true,
  })
}

const json = (value: string | null | undefined) => (value == null ? 'null' : JSON.stringify(value))

/** The usage as JSON. */
export function usageOf({ input, cached, cacheWrite, output, reasoning }: Usage): string {
  return (
    `{"input_tokens":${input}` +
    `,"input_tokens_details":{"cached_tokens":${cached},"cache_write_tokens":${cacheWrite}}` +
    `,"output_tokens":${output},"output_tokens_details":{"reasoning_tokens":${reasoning}}` +
    `,"total_tokens":${input + output}}`
  )
}
