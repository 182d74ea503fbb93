/** Error answers as the providers document them, and their errors inside streams. */
import type { Script } from '../fake-upstream/server.ts'
import { cut, type Expected, type MODELS, type Row } from './table.ts'

type Dialect = Exclude<keyof typeof MODELS, 'closed' | 'plain-tls'>

const answered =
  (status: number, body: unknown, headers: Record<string, string> = {}): Script =>
  turn =>
    turn.answer(status, JSON.stringify(body), headers)

const server: Expected = { status: 502, code: 'upstream_server_error', final: false }
const rejected: Expected = { status: 502, code: 'upstream_server_error', final: true, retryAfter: false }
const auth: Expected = { status: 502, code: 'upstream_auth_error', retryAfter: false, final: true }
const rate: Expected = { status: 429, code: 'capacity_exceeded', retryAfter: true, final: false }
const quota: Expected = { status: 429, code: 'insufficient_quota', retryAfter: false, final: true }
const down: Expected = { status: 503, code: 'provider_unavailable', retryAfter: true }
const slow: Expected = { status: 504, code: 'gateway_timeout', retryAfter: true }
const context: Expected = { status: 400, code: 'context_length_exceeded', final: true }
const ofRequest: Expected = { status: 400, code: 'invalid_value', final: true }
const policy: Expected = { status: 400, code: 'invalid_value', final: true }

const openai = (message: string, type: string, code: string | null = null, param: string | null = null) => ({
  error: { message, type, param, code },
})
const anthropic = (type: string, message: string) => ({
  type: 'error',
  error: { type, message },
  request_id: 'req_011CSHoEeqs5C35K2UUqR7Fy',
})
const google = (code: number, status: string, message: string, details?: unknown[]) => ({
  error: { code, message, status, ...(details && { details }) },
})

/** OpenAI's error guide; the same objects on both of its APIs. */
const OPENAI: [string, number, unknown, Expected, Record<string, string>?][] = [
  [
    '401 invalid_api_key',
    401,
    openai('Incorrect API key provided: sk-pr***1234.', 'invalid_request_error', 'invalid_api_key'),
    auth,
  ],
  [
    '401 not in the organization',
    401,
    openai('You must be a member of an organization to use the API', 'invalid_request_error'),
    auth,
  ],
  [
    '403 unsupported country',
    403,
    openai('Country, region, or territory not supported', 'request_forbidden', 'unsupported_country_region_territory'),
    auth,
  ],
  [
    '404 model_not_found',
    404,
    openai(
      'The model `sim-faulty` does not exist or you do not have access to it.',
      'invalid_request_error',
      'model_not_found',
    ),
    rejected,
  ],
  [
    '400 context_length_exceeded',
    400,
    openai(
      "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
      'invalid_request_error',
      'context_length_exceeded',
      'messages',
    ),
    context,
  ],
  [
    '400 unknown parameter',
    400,
    openai("Unknown parameter: 'foo'.", 'invalid_request_error', 'unknown_parameter', 'foo'),
    rejected,
  ],
  [
    '400 invalid_prompt',
    400,
    openai(
      'Invalid prompt: your prompt was flagged as potentially violating our usage policy.',
      'invalid_request_error',
      'invalid_prompt',
    ),
    policy,
  ],
  [
    '429 rate_limit_exceeded',
    429,
    openai('Rate limit reached for requests', 'requests', 'rate_limit_exceeded'),
    rate,
    { 'x-ratelimit-limit-requests': '60', 'x-ratelimit-remaining-requests': '0' },
  ],
  [
    '429 with Retry-After in seconds',
    429,
    openai('Rate limit reached', 'tokens', 'rate_limit_exceeded'),
    rate,
    { 'retry-after': '7' },
  ],
  [
    '429 with retry-after-ms',
    429,
    openai('Rate limit reached', 'tokens', 'rate_limit_exceeded'),
    rate,
    { 'retry-after-ms': '1500' },
  ],
  [
    '429 with Retry-After as a date',
    429,
    openai('Rate limit reached', 'tokens', 'rate_limit_exceeded'),
    rate,
    { date: 'Sat, 21 Nov 2026 09:00:00 GMT', 'retry-after': 'Sat, 21 Nov 2026 09:00:09 GMT' },
  ],
  [
    '429 with a Retry-After that is nonsense',
    429,
    openai('Rate limit reached', 'tokens', 'rate_limit_exceeded'),
    rate,
    { 'retry-after': 'soon' },
  ],
  [
    '429 insufficient_quota',
    429,
    openai(
      'You exceeded your current quota, please check your plan and billing details.',
      'insufficient_quota',
      'insufficient_quota',
    ),
    quota,
  ],
  [
    '500 server_error',
    500,
    openai('The server had an error while processing your request. Sorry about that!', 'server_error'),
    server,
  ],
  ['503 overloaded', 503, openai('The engine is currently overloaded, please try again later', 'server_error'), down],
  ['503 slow_down', 503, openai('Slow Down', 'server_error', 'slow_down'), down, { 'retry-after': '8' }],
  ['504', 504, openai('Gateway timeout', 'timeout'), slow],
]

/** Anthropic's errors page. */
const ANTHROPIC: typeof OPENAI = [
  [
    '400 invalid_request_error',
    400,
    anthropic('invalid_request_error', 'messages: roles must alternate between "user" and "assistant"'),
    ofRequest,
  ],
  [
    '400 prompt is too long',
    400,
    anthropic('invalid_request_error', 'prompt is too long: 210000 tokens > 200000 maximum'),
    context,
  ],
  [
    '400 credit balance',
    400,
    anthropic('invalid_request_error', 'Your credit balance is too low to access the Anthropic API.'),
    quota,
  ],
  ['401 authentication_error', 401, anthropic('authentication_error', 'invalid x-api-key'), auth],
  [
    '403 permission_error',
    403,
    anthropic('permission_error', 'Your API key does not have permission to use the specified resource.'),
    auth,
  ],
  ['404 not_found_error', 404, anthropic('not_found_error', 'model: sim-faulty'), rejected],
  [
    '413 request_too_large',
    413,
    anthropic('request_too_large', 'Request exceeds the maximum allowed number of bytes.'),
    rejected,
  ],
  [
    '429 rate_limit_error',
    429,
    anthropic('rate_limit_error', 'Number of request tokens has exceeded your per-minute rate limit'),
    rate,
    { 'retry-after': '12', 'anthropic-ratelimit-requests-remaining': '0' },
  ],
  ['500 api_error', 500, anthropic('api_error', 'Internal server error'), server],
  ['504 timeout_error', 504, anthropic('timeout_error', 'Request timed out'), slow],
  ['529 overloaded_error', 529, anthropic('overloaded_error', 'Overloaded'), down],
]

/** Google's API errors (AIP-193) and the Gemini troubleshooting table. */
const GOOGLE: typeof OPENAI = [
  ['400 INVALID_ARGUMENT', 400, google(400, 'INVALID_ARGUMENT', 'Request contains an invalid argument.'), rejected],
  [
    '400 API key not valid',
    400,
    google(400, 'INVALID_ARGUMENT', 'API key not valid. Please pass a valid API key.', [
      { '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'API_KEY_INVALID', domain: 'googleapis.com' },
    ]),
    auth,
  ],
  [
    '400 too many input tokens',
    400,
    google(
      400,
      'INVALID_ARGUMENT',
      'The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).',
    ),
    context,
  ],
  [
    '403 PERMISSION_DENIED',
    403,
    google(403, 'PERMISSION_DENIED', "Your API key doesn't have the required permissions."),
    auth,
  ],
  ['404 NOT_FOUND', 404, google(404, 'NOT_FOUND', 'models/sim-faulty is not found for API version v1beta'), rejected],
  [
    '429 RESOURCE_EXHAUSTED with RetryInfo',
    429,
    google(429, 'RESOURCE_EXHAUSTED', 'Resource has been exhausted (e.g. check quota).', [
      { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '34s' },
    ]),
    rate,
  ],
  ['500 INTERNAL', 500, google(500, 'INTERNAL', 'An internal error has occurred. Please retry or report.'), server],
  ['503 UNAVAILABLE', 503, google(503, 'UNAVAILABLE', 'The model is overloaded. Please try again later.'), down],
  [
    '504 DEADLINE_EXCEEDED',
    504,
    google(504, 'DEADLINE_EXCEEDED', 'The service is unable to finish processing within the deadline.'),
    slow,
  ],
]

const rowsOf = (model: Dialect, list: typeof OPENAI): Row[] =>
  list.map(([name, status, body, expect, headers]) => ({
    model,
    name: `${model}: ${name}`,
    modes: ['streamed', 'whole'],
    fault: answered(status, body, headers),
    expect,
  }))

export const answers: Row[] = [
  ...rowsOf('openai-chat', OPENAI),
  ...rowsOf('openai-responses', OPENAI),
  ...rowsOf('anthropic-messages', ANTHROPIC),
  ...rowsOf('gemini', GOOGLE),
]

const sse = (event: string | undefined, data: unknown) =>
  `${event ? `event: ${event}\n` : ''}data: ${JSON.stringify(data)}\n\n`

/** Errors inside a 200: as the first event, and after output. */
const IN_STREAM: [Dialect, string, string, string, number][] = [
  [
    'openai-chat',
    'server_error',
    sse(undefined, openai('The server had an error', 'server_error')),
    'upstream_server_error',
    502,
  ],
  [
    'openai-chat',
    'rate_limit_exceeded',
    sse(undefined, openai('Rate limit reached', 'tokens', 'rate_limit_exceeded')),
    'capacity_exceeded',
    429,
  ],
  [
    'openai-responses',
    'error event',
    sse('error', {
      type: 'error',
      code: 'server_error',
      message: 'The server had an error',
      param: null,
      sequence_number: 3,
    }),
    'upstream_server_error',
    502,
  ],
  [
    'openai-responses',
    'response.failed',
    sse('response.failed', {
      type: 'response.failed',
      response: {
        id: 'resp_1',
        object: 'response',
        status: 'failed',
        error: { code: 'rate_limit_exceeded', message: 'Rate limit reached' },
        output: [],
      },
    }),
    'capacity_exceeded',
    429,
  ],
  [
    'anthropic-messages',
    'overloaded_error',
    sse('error', anthropic('overloaded_error', 'Overloaded')),
    'provider_unavailable',
    503,
  ],
  [
    'anthropic-messages',
    'api_error',
    sse('error', anthropic('api_error', 'Internal server error')),
    'upstream_server_error',
    502,
  ],
  [
    'gemini',
    'UNAVAILABLE',
    sse(undefined, google(503, 'UNAVAILABLE', 'The model is overloaded.')),
    'provider_unavailable',
    503,
  ],
]

export const inStream: Row[] = IN_STREAM.flatMap(([model, name, frame, code, status]): Row[] => [
  {
    model,
    name: `${model}: ${name} as the first event`,
    modes: ['streamed', 'collected'],
    expect: { status, code },
    fault: turn => turn.send([frame]),
  },
  {
    model,
    name: `${model}: ${name} after output`,
    modes: ['streamed', 'collected'],
    expect: { ...cut(code), collected: { status, code } },
    fault: async turn => {
      const { events } = await turn.reply()
      await turn.send([...events.slice(0, 6), frame])
    },
  },
])
