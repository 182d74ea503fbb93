/** Google's generateContent API as an upstream dialect (wire.md F, column GG). */
import { type Conversation, workOf } from '../../core/canon/conversation.ts'
import type { GatewayError } from '../../core/canon/errors.ts'
import type { Backend, DecodeContext, Decoder, Dialect, FaultHeaders, Unfit } from '../../core/ports/dialect.ts'
import { googleBlames } from '../blame.ts'
import { faultOf } from '../faults.ts'
import { allBut, commonUnfit, requirementsOf, schemaPath } from '../requirements.ts'
import { StopDecoder } from '../stop-matcher.ts'
import { toldInBody } from '../told.ts'
import { GeminiDecoder } from './decoder.ts'
import { errorOf, horizonOf, kindOfGoogleError } from './faults.ts'
import { traitsOf } from './models.ts'
import { convertAll } from './openapi-schema.ts'
import { NAME, nativeStops, request } from './request.ts'
import { settings, takesOpenApi } from './settings.ts'

export const gemini: Dialect = {
  name: NAME,
  vendor: 'gcp.gemini',
  capabilities: allBut('single_tool_call'),
  settings,
  seeds: () => true,
  rewritesSchemas: takesOpenApi,
  nativeTools: new Set(),
  bytesOnly: new Set(['image', 'document'] as const),
  unfit,
  structures,
  request,
  decoder(context: DecodeContext): Decoder {
    const decoder = new GeminiDecoder(context)
    const { stop } = context.conversation.sampling
    return nativeStops(context.conversation).length === stop.length ? decoder : new StopDecoder(decoder, stop)
  },
  fault(status: number, headers: FaultHeaders, body: string): GatewayError {
    const error = errorOf(body)
    return faultOf(kindOfGoogleError(error, status), horizonOf(error, headers), toldInBody(body))
  },
  blames: googleBlames,
}

/** Servers with `tool_schema: openapi` know only the older schema member, too. */
function structures({ output, tools }: Conversation, backend: Backend): boolean {
  const traits = traitsOf(backend.model)
  if (output!.schema && (takesOpenApi(backend) || !traits.replySchema)) return false
  return tools.length === 0 || traits.structuredWithTools
}

function unfit(conversation: Conversation, backend: Backend): Unfit | null {
  const lacking = commonUnfit(conversation, backend)
  if (lacking) return lacking
  const required = requirementsOf(conversation)
  const traits = traitsOf(backend.model)
  // The API takes only bytes, and a dialect does no I/O. A plugin that may fetch URLs puts their data into the
  // conversation before this check.
  if (required.imageUrl !== undefined) return { param: required.imageUrl, requirement: 'an image by URL' }
  if (required.documentUrl !== undefined) return { param: required.documentUrl, requirement: 'a document by URL' }
  if (required.gif !== undefined && !traits.gif) return { param: required.gif, requirement: 'a GIF image' }
  const strict = required.needs.get('strict_tools')
  if (strict !== undefined && !traits.validated) return { param: strict, requirement: 'strict tool schemas' }
  const reasoning = required.needs.get('reasoning')
  if (reasoning !== undefined && traits.thinking.by === 'none') {
    return { param: reasoning, requirement: 'reasoning controls' }
  }
  return schemaUnfit(conversation, backend) ?? searchUnfit(conversation, traits.searchWithFunctions)
}

function schemaUnfit(conversation: Conversation, backend: Backend): Unfit | null {
  if (!takesOpenApi(backend)) return null
  const functions = conversation.tools.filter(tool => tool.type === 'function' || tool.type === 'native')
  if (functions.length === 0) return null
  const lacking = convertAll(
    functions.map(tool => tool.parameters),
    workOf(conversation),
  )
  if (!lacking) return null
  const param = schemaPath(conversation, functions[lacking.at]!)
  return { param, requirement: `a tool schema with ${lacking.lacks}` }
}

function searchUnfit(conversation: Conversation, withFunctions: boolean): Unfit | null {
  const { search, clientTool, allowedDomains, blockedDomains } = requirementsOf(conversation)
  if (search === undefined) return null
  if (clientTool !== undefined && !withFunctions) {
    return { param: search, requirement: 'web search together with other tools' }
  }
  const domains = allowedDomains ?? blockedDomains
  if (domains !== undefined) return { param: domains, requirement: 'web search limited to domains' }
  const { toolChoice: choice } = conversation
  const forced =
    (choice.type === 'tool' && choice.kind === 'web_search') ||
    (choice.type === 'required' && clientTool === undefined) ||
    (choice.type === 'allowed' && choice.mode === 'required' && choice.tools.some(tool => tool.kind === 'web_search'))
  return forced ? { param: 'tool_choice', requirement: 'a forced web search' } : null
}
