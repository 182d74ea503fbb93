/** The Messages surface: POST /v1/messages. Its parser also serves POST /v1/messages/count_tokens. */
import { GatewayError } from '../../core/canon/errors.ts'
import { compileRequest, fault } from '../check.ts'
import type { DescribedSurface } from '../described.ts'
import { encoder } from './encode.ts'
import { errorBody, errorReply } from './errors.ts'
import { page } from './page.ts'
import { looseBody, parse, parseLoosely } from './parse.ts'
import { PREVIEWS } from './previews.ts'
import { reply } from './reply.ts'
import { samples } from './samples.ts'
import { requestSchema } from './schema.ts'

const check = compileRequest(requestSchema)

export const messages: DescribedSurface = {
  name: 'messages',
  title: 'Messages',
  path: '/v1/messages',
  keyHeader: 'x-api-key',
  ownHeaders: ['anthropic-version', 'x-api-key'],
  previewHeader: 'anthropic-beta',
  previews: PREVIEWS,
  requestSchema,
  argumentsAt: ['messages', '*', 'content', '*', 'input'],
  reply,
  errorReply,
  samples,
  validate(body, unknownFields) {
    try {
      return check(body, unknownFields)
    } catch (error) {
      throw error instanceof GatewayError && error.param === 'thread' ? withoutThreads(error) : error
    }
  },
  refuseStructured({ output_config: config, output_format: format }) {
    if ((config as { format?: unknown } | null | undefined)?.format != null) throw noFormat('output_config.format')
    if (format != null) throw noFormat('output_format')
  },
  parse,
  parseLoosely,
  looseBody,
  countReply: (tokens, counted) => ({
    input_tokens: tokens,
    ...(counted?.edited && { context_management: { original_input_tokens: counted.edited.before } }),
  }),
  page,
  encoder,
  error: (error, requestId) => errorBody(error, requestId),
  requestIdHeaders: ['request-id'],
}

function noFormat(path: string): GatewayError {
  return fault(
    'unsupported_parameter',
    path,
    w =>
      `${w} is not offered by this service. Ask for the format in the prompt, or declare a tool with that schema and choose it with tool_choice.`,
  )
}

/**
 * Adds the details by which the official SDK's tool runner recognises that it must continue without threads
 * (decision 46).
 */
function withoutThreads(error: GatewayError): GatewayError {
  return new GatewayError('unsupported_parameter', {
    message: error.message,
    param: error.param,
    details: { error_code: 'thread_unsupported_request', unsupported: ['thread'] },
  })
}
