/**
 * generateContent and streamGenerateContent?alt=sse, as Google documents them (ai.google.dev: Generating content,
 * Function calling, Thought signatures).
 */
import { appendAll } from '../../core/tools/append.ts'
import { type Body, bodyOf, listOf, type SimDialect, type SimEvent, seal, stringOf } from './dialect.ts'
import type { ErrorKind } from './directives.ts'
import { type SimPrompt, SimRefusal, type SimReply } from './model.ts'
import { ATTACHED } from './openai-chat.ts'
import type { Found } from './search.ts'

const NAME = /^[A-Za-z_][A-Za-z0-9_.:-]{0,63}$/
/** The documented replacements for a signature that the caller does not have. */
const SENTINELS = new Set(['skip_thought_signature_validator', 'context_engineering_is_the_way_to_go'])

export const geminiSimulator: SimDialect = {
  name: 'gemini',
  status: { auth: 400 },

  read(body, path) {
    const config = bodyOf(body['generationConfig'])
    const thinking = bodyOf(config['thinkingConfig'])
    const calling = bodyOf(bodyOf(body['toolConfig'])['functionCallingConfig'])
    const allowed = calling['allowedFunctionNames'] as string[] | undefined
    const prompt: SimPrompt = {
      model: /\/models\/([^:]+):/.exec(path)?.[1] ?? '',
      // The server sets it, from the path.
      stream: false,
      userText: '',
      rounds: 0,
      results: [],
      images: [],
      documents: [],
      tools: [],
      search: false,
      choice: choiceOf(stringOf(calling['mode']), allowed),
      allowed,
      parallel: true,
      stop: (config['stopSequences'] as string[] | undefined) ?? [],
      maxTokens: config['maxOutputTokens'] as number | undefined,
      reason: thinks(thinking),
      reasonTokens:
        typeof thinking['thinkingBudget'] === 'number' && thinking['thinkingBudget'] > 0
          ? Math.min(thinking['thinkingBudget'], 256)
          : 64,
      summary: thinking['includeThoughts'] === true,
      topLogprobs: config['responseLogprobs'] === true ? ((config['logprobs'] as number | undefined) ?? 0) : undefined,
      messages: [],
    }
    if (config['responseMimeType'] === 'application/json') {
      prompt.format = config['responseJsonSchema'] ? { schema: config['responseJsonSchema'] } : {}
      if (body['tools'] !== undefined && /gemini-[12]/.test(path))
        throw invalid("Function calling with a response mime type: 'application/json' is unsupported")
    } else if (config['responseJsonSchema'] !== undefined)
      throw invalid('response_mime_type must be application/json when response_json_schema is set.')
    if (prompt.stop.length > 5) throw invalid('The number of stop sequences must be at most 5.')
    if (allowed && calling['mode'] !== 'ANY' && calling['mode'] !== 'VALIDATED')
      throw invalid('allowed_function_names should only be set when mode is ANY or VALIDATED.')
    if (body['systemInstruction'] !== undefined) prompt.messages.push(JSON.stringify(body['systemInstruction']))
    readTools(listOf(body['tools']), prompt)
    readContents(listOf(body['contents']), prompt)
    return prompt
  },

  buffered(reply) {
    if (reply.finish === 'refusal') return { promptFeedback: { blockReason: 'SAFETY' }, ...tail(reply) }
    const parts: Body[] = []
    const tokens: string[] = []
    for (const { parts: more, pieces } of partsOf(reply)) {
      appendAll(parts, more)
      appendAll(tokens, pieces)
    }
    return {
      candidates: [
        {
          ...candidate(merged(parts)),
          finishReason: finishOf(reply),
          ...groundingOf(reply),
          ...logprobsOf(tokens, reply),
        },
      ],
      ...tail(reply),
    }
  },

  stream(reply) {
    const events: SimEvent[] = []
    const { usage, ...rest } = reply
    // The complete usage comes in the last chunk. Earlier chunks report only the prompt, or nothing with
    // `usage late`.
    const early = usage && reply.directives.usage !== 'late' ? { ...usage, output: 0, reasoning: 0 } : null
    const between = tail({ ...rest, usage: early })
    if (reply.finish === 'refusal')
      return [{ data: JSON.stringify({ promptFeedback: { blockReason: 'SAFETY' }, ...tail(reply) }) }]
    for (const { parts, pieces } of partsOf(reply)) {
      const chunk = { ...candidate(parts), ...logprobsOf(pieces, reply) }
      events.push({ data: JSON.stringify({ candidates: [chunk], ...between }) })
    }
    const last = { ...candidate([{ text: '' }]), finishReason: finishOf(reply), ...groundingOf(reply) }
    events.push({ data: JSON.stringify({ candidates: [last], ...tail(reply) }) })
    return events
  },

  error(kind, status, message) {
    return errorBody(kind, status, message)
  },

  errorEvent(kind) {
    const status = kind === 'rate' || kind === 'quota' ? 429 : kind === 'overloaded' ? 503 : 500
    return { data: JSON.stringify(errorBody(kind, status, `The simulated provider had a fault: ${kind}`)) }
  },
}

const CODES: Readonly<Record<ErrorKind, string>> = {
  server: 'INTERNAL',
  overloaded: 'UNAVAILABLE',
  rate: 'RESOURCE_EXHAUSTED',
  quota: 'RESOURCE_EXHAUSTED',
  context: 'INVALID_ARGUMENT',
  policy: 'INVALID_ARGUMENT',
  auth: 'INVALID_ARGUMENT',
  timeout: 'DEADLINE_EXCEEDED',
  invalid: 'INVALID_ARGUMENT',
}
const TYPE = 'type.googleapis.com/google.rpc.'

function errorBody(kind: ErrorKind, status: number, message: string): Body {
  const error: Body = { code: status, message, status: CODES[kind] }
  switch (kind) {
    case 'rate':
      error['details'] = [{ '@type': `${TYPE}RetryInfo`, retryDelay: '7s' }]
      break
    case 'quota':
      error['message'] = 'You exceeded your current quota, please check your plan and billing details.'
      error['details'] = [
        { '@type': `${TYPE}QuotaFailure`, violations: [{ quotaId: 'GenerateRequestsPerDayPerProjectPerModel' }] },
      ]
      break
    case 'auth':
      error['message'] = 'API key not valid. Please pass a valid API key.'
      error['details'] = [{ '@type': `${TYPE}ErrorInfo`, reason: 'API_KEY_INVALID', domain: 'googleapis.com' }]
      break
    case 'context':
      error['message'] = 'The input token count (1048580) exceeds the maximum number of tokens allowed (1048575).'
      break
  }
  return { error }
}

function invalid(message: string): SimRefusal {
  return new SimRefusal(400, 'invalid', message)
}

/** Groups of parts, one group for each chunk of a stream. */
function partsOf(reply: SimReply): { parts: Body[]; pieces: string[] }[] {
  const groups: { parts: Body[]; pieces: string[] }[] = []
  let calls = 0
  for (const item of reply.items) {
    if (item.type === 'reasoning' && reply.prompt.summary)
      for (const text of item.summary) groups.push({ parts: [{ thought: true, text }], pieces: [] })
    else if (item.type === 'text') for (const text of item.pieces) groups.push({ parts: [{ text }], pieces: [text] })
    else if (item.type === 'call' && item.whole) {
      const args = parsed(item.text)
      const part: Body = { functionCall: { name: item.name, args } }
      // Only the first of several parallel calls has the signature.
      if (calls++ === 0) part['thoughtSignature'] = seal('thought', item.name + JSON.stringify(args))
      groups.push({ parts: [part], pieces: [] })
    }
  }
  return groups
}

/** In a buffered reply neighbouring texts are in one part. */
function merged(parts: readonly Body[]): Body[] {
  const out: Body[] = []
  for (const part of parts) {
    const last = out.at(-1)
    if (
      last &&
      typeof part['text'] === 'string' &&
      typeof last['text'] === 'string' &&
      part['thought'] === last['thought']
    )
      last['text'] += part['text']
    else out.push({ ...part })
  }
  return out
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return {}
  }
}

function candidate(parts: Body[]): Body {
  return { content: { role: 'model', parts }, index: 0 }
}

function finishOf({ finish, finishWord }: SimReply): string {
  if (finishWord !== undefined) return finishWord
  return finish === 'length' ? 'MAX_TOKENS' : finish === 'content_filter' ? 'SAFETY' : 'STOP'
}

/** The grounding metadata, which comes in the last chunk. */
function groundingOf(reply: SimReply): Body {
  const search = reply.items.find(item => item.type === 'search')
  const text = reply.items.find(item => item.type === 'text')
  return search ? { groundingMetadata: grounding(search.query, search.results, text?.text ?? '') } : {}
}

/** The logprobs of these pieces of text. In a stream they come in the chunk of their text. */
function logprobsOf(pieces: readonly string[], reply: SimReply): Body {
  const top = reply.prompt.topLogprobs
  if (top === undefined || pieces.length === 0) return {}
  const entry = (token: string, logProbability: number) => ({ token, tokenId: token.length, logProbability })
  const alternatives = (piece: string) =>
    Array.from({ length: top }, (_, i) => entry(i === 0 ? piece : `${piece}${i}`, -0.125 * (i + 1)))
  return {
    logprobsResult: {
      chosenCandidates: pieces.map(piece => entry(piece, -0.125)),
      topCandidates: pieces.map(piece => ({ candidates: alternatives(piece) })),
    },
  }
}

/** The grounding metadata. Segment offsets count UTF-8 bytes. */
function grounding(query: string, results: readonly Found[], text: string): Body {
  const segment = { startIndex: 0, endIndex: Buffer.byteLength(text, 'utf8'), text }
  return {
    webSearchQueries: [query],
    searchEntryPoint: { renderedContent: '<div>simulated</div>' },
    // The API does not give the URL of a page: it gives a link through a host of the provider, and the site as the
    // title.
    groundingChunks: results.map(({ url }, i) => ({
      web: {
        uri: `https://vertexaisearch.cloud.google.com/grounding-api-redirect/AUZIYQ${i}`,
        title: new URL(url).hostname,
      },
    })),
    groundingSupports: [{ segment, groundingChunkIndices: [0] }],
  }
}

function tail({ usage, model, seed }: Pick<SimReply, 'usage' | 'model' | 'seed'>): Body {
  return {
    ...(usage && {
      usageMetadata: {
        promptTokenCount: usage.prompt,
        candidatesTokenCount: usage.output - usage.reasoning,
        totalTokenCount: usage.prompt + usage.output,
        thoughtsTokenCount: usage.reasoning,
        cachedContentTokenCount: usage.cached,
      },
    }),
    modelVersion: model,
    responseId: `sim${seed.slice(0, 20)}`,
  }
}

function choiceOf(mode: string, allowed: readonly string[] | undefined): SimPrompt['choice'] {
  if (mode === 'NONE') return { type: 'none' }
  if (mode !== 'ANY') return { type: 'auto' }
  return allowed?.length === 1 ? { type: 'tool', name: allowed[0]! } : { type: 'required' }
}

function thinks(thinking: Body): boolean {
  if (typeof thinking['thinkingBudget'] === 'number') return thinking['thinkingBudget'] !== 0
  return thinking['includeThoughts'] === true || typeof thinking['thinkingLevel'] === 'string'
}

function readTools(tools: readonly Body[], prompt: SimPrompt): void {
  if (tools.length > 0) prompt.messages.push(JSON.stringify(tools))
  for (const tool of tools) {
    if (tool['googleSearch'] !== undefined) prompt.search = true
    for (const declared of listOf(tool['functionDeclarations'])) {
      const name = stringOf(declared['name'])
      if (!NAME.test(name))
        throw invalid(
          `Invalid function name '${name}'. Must start with a letter or an underscore, and hold only a-z, A-Z, 0-9, underscores, dots, colons or dashes, with a maximum length of 64.`,
        )
      prompt.tools.push({
        name,
        kind: 'function',
        description: stringOf(declared['description']),
        schema: declared['parametersJsonSchema'] ?? declared['parameters'],
      })
    }
  }
}

function readContents(contents: readonly Body[], prompt: SimPrompt): void {
  if (contents.length === 0) throw invalid('contents is not specified')
  if (contents[0]!['role'] === 'model') throw invalid('Please ensure that the conversation starts with a user turn.')
  /** The names of the calls in the last model turn. */
  let open: string[] = []
  const current = currentTurn(contents)
  for (const [i, content] of contents.entries()) {
    prompt.messages.push(JSON.stringify(content))
    const parts = listOf(content['parts'])
    if (parts.length === 0) throw invalid(`contents[${i}].parts must not be empty.`)
    if (content['role'] === 'model') {
      if (open.length > 0) throw unequal()
      open = readModel(parts, i >= current, prompt)
    } else if (content['role'] === 'user' || content['role'] === undefined) {
      readUser(parts, open, prompt)
      open = []
    } else throw invalid('Please use a valid role: user, model.')
  }
  if (open.length > 0) throw unequal()
}

function unequal(): SimRefusal {
  return invalid(
    'Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.',
  )
}

/** The index from which signatures are checked: the last user content that has more than function responses. */
function currentTurn(contents: readonly Body[]): number {
  return contents.findLastIndex(
    content => content['role'] !== 'model' && listOf(content['parts']).some(part => !('functionResponse' in part)),
  )
}

/** @returns the names of its calls */
function readModel(parts: readonly Body[], strict: boolean, prompt: SimPrompt): string[] {
  const calls: string[] = []
  for (const part of parts) {
    if (!('functionCall' in part)) continue
    const call = bodyOf(part['functionCall'])
    const name = stringOf(call['name'])
    const signature = part['thoughtSignature']
    if (signature !== undefined) {
      const known =
        signature === seal('thought', name + JSON.stringify(call['args'])) || SENTINELS.has(String(signature))
      if (!known) throw invalid('Thought signature is not valid.')
    } else if (strict && calls.length === 0) {
      throw invalid(`Function call is missing a thought_signature in functionCall parts. Function call \`${name}\`.`)
    }
    calls.push(name)
  }
  if (calls.length > 0) {
    prompt.rounds++
    prompt.results = []
  }
  return calls
}

function readUser(parts: readonly Body[], open: readonly string[], prompt: SimPrompt): void {
  const texts: string[] = []
  let responses = 0
  for (const part of parts) {
    if (typeof part['text'] === 'string') texts.push(part['text'])
    else if ('inlineData' in part) readMedia(bodyOf(part['inlineData']), prompt)
    else if ('fileData' in part) prompt.images.push('url')
    else if ('functionResponse' in part) {
      const response = bodyOf(part['functionResponse'])
      if (!open.includes(stringOf(response['name']))) throw unequal()
      if (typeof response['response'] !== 'object' || response['response'] === null)
        throw invalid('functionResponse.response must be an object.')
      responses++
      const value = bodyOf(response['response'])
      const shown = value['output'] ?? value['error'] ?? value
      prompt.results.push(typeof shown === 'string' ? shown : JSON.stringify(shown))
      for (const inner of listOf(response['parts'])) readMedia(bodyOf(inner['inlineData']), prompt)
    } else throw invalid('A part must have one of text, inlineData, fileData or functionResponse.')
  }
  if (responses !== open.length) throw unequal()
  // Media that a function response cannot contain come after it, with a label.
  if (responses > 0 && (texts.length === 0 || texts[0]!.startsWith(ATTACHED))) return
  prompt.userText = texts.join('\n')
  prompt.rounds = 0
  prompt.results = []
}

function readMedia(data: Body, prompt: SimPrompt): void {
  const type = stringOf(data['mimeType'])
  if (type === '' || typeof data['data'] !== 'string') throw invalid('inlineData needs mimeType and data.')
  if (type.startsWith('image/')) prompt.images.push(type)
  else prompt.documents.push(type)
}
