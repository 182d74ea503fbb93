/** Request schema of POST /v1/responses/compact (wire.md A.8). */
import { model, promptCacheKey, promptCacheOptions, promptCacheRetention, serviceTier } from '../fields.ts'
import { item, requestSchema as responses } from '../responses/schema.ts'
import { array, boolean, forms, noop, object, rejected, type Schema, string, titled } from '../schema.ts'

const members = responses['properties'] as Record<string, Schema>

export const requestSchema = titled(
  'Compaction request',
  object(
    {
      model,
      input: forms([string(), array(item)]),
      instructions: string(),
      previous_response_id: string({ minLength: 1 }),
      prompt_cache_key: promptCacheKey,
      prompt_cache_options: promptCacheOptions,
      prompt_cache_retention: promptCacheRetention,
      service_tier: serviceTier,
      image: rejected(),
      // Not official; Codex sends them.
      tools: members['tools']!,
      parallel_tool_calls: boolean(),
      reasoning: members['reasoning']!,
      text: noop(members['text']!),
    },
    ['model'],
  ),
)
