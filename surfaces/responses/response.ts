/** The Response object of Responses replies (wire.md C.2), written as JSON text: the echo of the request is made once for a reply. */
import type { Usage } from '../../core/events.ts'
import type { EncodeContext } from '../../core/surface.ts'
import type { ResponsesBody } from './wire.ts'

export type Status = 'in_progress' | 'completed' | 'incomplete' | 'failed'

/** How far the reply has come. */
export interface Progress {
  status: Status
  /** Unix seconds; completed replies only. */
  completedAt: number | null
  error: Record<string, unknown> | null
  incompleteReason: string | null
  usage: Usage | undefined
  warning: { code: string; message: string } | undefined
}

export const IN_PROGRESS: Progress = Object.freeze({
  status: 'in_progress',
  completedAt: null,
  error: null,
  incompleteReason: null,
  usage: undefined,
  warning: undefined,
})

/** Members that say how the reply stands; `output` and the echo go beside them. */
export function stateMembers(context: EncodeContext, progress: Progress): Record<string, unknown> {
  const { status, completedAt, error, incompleteReason, usage, warning } = progress
  return {
    id: `resp_${context.objectId}`,
    object: 'response',
    created_at: context.created,
    status,
    completed_at: completedAt,
    error,
    incomplete_details: incompleteReason === null ? null : { reason: incompleteReason },
    model: context.model,
    usage: usage ? usageOf(usage) : null,
    ...(warning && { warning }),
  }
}

export function echoMembers(context: EncodeContext): Record<string, unknown> {
  const body = context.body as unknown as ResponsesBody
  const tools = body.tools ?? []
  return {
    access_programs: null,
    background: false,
    instructions: body.instructions ?? null,
    max_output_tokens: body.max_output_tokens ?? null,
    max_tool_calls: body.max_tool_calls ?? null,
    metadata: body.metadata ?? {},
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    previous_response_id: body.previous_response_id ?? null,
    prompt_cache_key: body.prompt_cache_key ?? null,
    reasoning: {
      effort: body.reasoning?.effort ?? null,
      summary: body.reasoning?.summary ?? body.reasoning?.generate_summary ?? null,
    },
    safety_identifier: body.safety_identifier ?? null,
    service_tier: 'default',
    store: body.store ?? true,
    temperature: body.temperature ?? 1,
    text: { format: { type: 'text' }, verbosity: body.text?.verbosity ?? 'medium' },
    tool_choice: body.tool_choice ?? (tools.length > 0 ? 'auto' : 'none'),
    tools,
    top_logprobs: body.top_logprobs ?? 0,
    top_p: body.top_p ?? 1,
    truncation: 'disabled',
    ...(body.user != null && { user: body.user }),
  }
}

function usageOf(usage: Usage): Record<string, unknown> {
  return {
    input_tokens: usage.input,
    input_tokens_details: { cached_tokens: usage.cached, cache_write_tokens: usage.cacheWrite },
    output_tokens: usage.output,
    output_tokens_details: { reasoning_tokens: usage.reasoning },
    total_tokens: usage.input + usage.output,
  }
}
