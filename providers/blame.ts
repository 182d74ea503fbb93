/**
 * Which part of a request a provider faults (decision 63). Only codes that mean a fault of the request count, not those
 * of an account, a model, a credential or a version. And only a part that the client asked for: what the gateway added
 * is the gateway's fault.
 */
import type { Conversation } from '../core/canon/conversation.ts'
import { GatewayError } from '../core/canon/errors.ts'
import { UpstreamFault } from '../core/canon/upstream-fault.ts'
import type { Blamed, Dialect } from '../core/ports/dialect.ts'
import { list, object, string } from './loose-json.ts'
import { memberOf } from './requirements.ts'

/** Names of members in the dialects, in snake case, and the part of the request that they stand for. */
const PARTS: ReadonlyMap<string, Blamed> = new Map<string, Blamed>([
  ...['messages', 'input', 'contents', 'system', 'instructions', 'system_instruction'].map(as('content')),
  ...['tools', 'functions'].map(as('tools')),
  ...['tool_choice', 'tool_config', 'parallel_tool_calls'].map(as('tool_choice')),
  ...['max_tokens', 'max_completion_tokens', 'max_output_tokens'].map(as('max_tokens')),
  ...['stop', 'stop_sequences'].map(as('stop')),
  ...['reasoning', 'reasoning_effort', 'thinking', 'thinking_config', 'output_config'].map(as('effort')),
  ...['logprobs', 'top_logprobs', 'response_logprobs'].map(as('logprobs')),
  ...(['temperature', 'top_p', 'top_k', 'seed'] as const).map(name => [name, name] as const),
])
function as(part: Blamed) {
  return (name: string) => [name, part] as const
}

/** The part that a path names, e.g. `messages[0].content`, `tools.0.custom` or `generation_config.topP`. */
function partAt(path: string): Blamed | null {
  const names = path
    .replace(/([a-z])([A-Z])/g, '$1_$2')
    .toLowerCase()
    .split(/[^a-z_]+/)
    .filter(name => name !== '' && name !== 'generation_config')
  return PARTS.get(names[0] ?? '') ?? null
}

// ---- the dialects ---------------------------------------------------------------------------------------------------

/** Codes by which the OpenAI family faults a value, together with the `param` that has it. */
export const OPENAI_VALUES: ReadonlySet<string> = new Set([
  'invalid_value',
  'invalid_type',
  'unsupported_value',
  'invalid_request_error',
  'integer_above_max_value',
  'integer_below_min_value',
  'decimal_above_max_value',
  'decimal_below_min_value',
  'string_below_min_length',
  'array_above_max_length',
  'array_below_min_length',
  'invalid_function_parameters',
  'invalid_json_schema',
])
/** Codes that fault an image or a file, whatever `param` says. */
export const OPENAI_MEDIA: ReadonlySet<string> = new Set([
  'invalid_image',
  'invalid_image_format',
  'invalid_image_url',
  'invalid_base64_image',
  'image_too_large',
  'image_too_small',
  'image_parse_error',
  'image_file_too_large',
  'unsupported_image_media_type',
  'empty_image_file',
  'failed_to_download_image',
  'invalid_file',
  'unsupported_file',
])

export function openAiBlames(error: unknown): Blamed | null {
  const { type, code, param } = object(error)
  // Compatible servers write the status that the error would have had in a reply of its own.
  if (typeof code === 'number' && code !== 400) return null
  const word = string(typeof code === 'string' ? code : type)
  if (OPENAI_MEDIA.has(word)) return 'content'
  const part = partAt(string(param))
  if (OPENAI_VALUES.has(word)) return part
  // The model lacks a control that the client set. For the cap it is the name of the member, which the operator chose.
  return word === 'unsupported_parameter' && part !== 'max_tokens' && part !== 'content' ? part : null
}

/** Anthropic has one type for all; its sentences begin with the path of a faulty member. */
export function anthropicBlames(error: unknown): Blamed | null {
  const { type, message } = object(error)
  const sentence = string(message).slice(0, 2000)
  // A member that the API does not know, or lacks, is one of a version that the gateway spoke.
  if (string(type) !== 'invalid_request_error' || /extra inputs|field required/i.test(sentence)) return null
  return partAt(/^`?([a-z_]+)(?=[`.:])/.exec(sentence)?.[1] ?? '')
}

export function googleBlames(error: unknown): Blamed | null {
  const { status, message, details } = object(error)
  const sentence = string(message).slice(0, 2000)
  // An unknown name is one that the gateway wrote.
  if (status !== 'INVALID_ARGUMENT' || /unknown name/i.test(sentence)) return null
  for (const detail of list(details)) {
    const part = partAt(string(object(list(object(detail)['fieldViolations'])[0])['field']))
    if (part) return part
  }
  if (/unable to process input image|image is not valid|unsupported mime type|document has no pages/i.test(sentence))
    return 'content'
  return partAt(/GenerateContentRequest\.([\w.]+)/.exec(sentence)?.[1] ?? '')
}

// ---- the client's error ---------------------------------------------------------------------------------------------

/** The client's member for a part; undefined when the client did not ask for it. */
function memberFor(conversation: Conversation, part: Blamed): string | undefined {
  const { sampling, tools, toolChoice, parallelToolCalls, reasoning } = conversation
  switch (part) {
    case 'content':
      return memberOf(conversation, 'turns')
    case 'tools':
      return tools.length > 0 ? 'tools' : undefined
    case 'tool_choice':
      return tools.length > 0 && (toolChoice.type !== 'auto' || !parallelToolCalls) ? 'tool_choice' : undefined
    case 'max_tokens':
      return conversation.maxOutputField
    case 'temperature':
      return sampling.temperature === undefined ? undefined : 'temperature'
    case 'top_p':
      return sampling.topP === undefined ? undefined : 'top_p'
    case 'top_k':
      return sampling.topK === undefined ? undefined : 'top_k'
    case 'seed':
      return sampling.seed === undefined ? undefined : 'seed'
    case 'stop':
      return sampling.stop.length > 0 ? memberOf(conversation, 'stop') : undefined
    case 'logprobs':
      return sampling.logprobs ? memberOf(conversation, 'logprobs') : undefined
    case 'effort':
      return Object.values(reasoning).some(value => value !== undefined) ? memberOf(conversation, 'effort') : undefined
  }
}

/**
 * The error for a request that the provider faults, in the gateway's words; null when the client did not ask for the
 * faulty part.
 * @param cause what the provider said, for the log
 */
function blamedError(conversation: Conversation, part: Blamed, cause: unknown): GatewayError | null {
  const param = memberFor(conversation, part)
  if (param === undefined) return null
  const what =
    part === 'content'
      ? `something in '${param}', such as a damaged or unsupported image or file, or an empty part`
      : `the value of '${param}', by itself or together with the rest`
  return new GatewayError('invalid_value', {
    message: `The model ${conversation.model} does not take ${what}. Change or remove it; an unchanged retry is refused again.`,
    param,
    details: { reason: REFUSED },
    cause,
  })
}

/**
 * The client's fault in place of the provider's, when the provider faults something that the client asked for; any other
 * error as it is.
 * @param mayBlame whether the provider can be taken at its word; if not, only that it faults the request is noted
 */
export function blaming(
  conversation: Conversation,
  dialect: Pick<Dialect, 'blames'>,
  error: GatewayError,
  mayBlame: boolean,
): GatewayError {
  const { cause } = error
  if (error.code !== 'upstream_server_error' || error.retriable || !(cause instanceof UpstreamFault)) return error
  cause.ofRequest = true
  const part = mayBlame ? dialect.blames?.(cause.error) : undefined
  return (part && blamedError(conversation, part, cause)) || error
}

/** The same error, with the client's member for a prompt that the provider finds too long. */
export function namingTurns(conversation: Conversation, error: GatewayError): GatewayError {
  if (error.code !== 'context_length_exceeded') return error
  const { message, details, cause } = error
  return new GatewayError(error.code, { message, details, cause, param: memberOf(conversation, 'turns') })
}

const REFUSED = 'refused_by_model'
/** Whether an error is one of `blamedError`: another backend may take the request. */
export const isBlamed = (error: GatewayError): boolean => error.details?.['reason'] === REFUSED
