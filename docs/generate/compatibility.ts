/**
 * docs/compatibility.md: what each surface takes and each dialect carries. Nothing in it is claimed by hand: every cell is what the surface's
 * schema and the dialect's `unfit` say of a request that asks for the feature. Written by docs/generate/index.ts.
 */
import type { Conversation, SurfaceName } from '../../core/conversation.ts'
import type { Backend, Dialect } from '../../core/dialect.ts'
import { GatewayError } from '../../core/errors.ts'
import { dialects } from '../../providers/index.ts'
import { surfaces } from '../../surfaces/index.ts'

type Json = Record<string, unknown>
type Bodies = Partial<Record<SurfaceName, Json>>

interface Feature {
  name: string
  /** Members on top of a minimal body; a surface without an entry has no notation for it. */
  bodies: Bodies
}

const SURFACES = Object.keys(surfaces)
const DIALECTS = Object.keys(dialects)
/** Models with limits of their own, as examples of families that the dialects know. */
const FAMILIES: readonly [string, string][] = [
  ['openai-responses', 'gpt-4.1'],
  ['openai-responses', 'gpt-5'],
  ['openai-responses', 'o4-mini'],
  ['anthropic-messages', 'claude-3-5-haiku-latest'],
  ['anthropic-messages', 'claude-sonnet-4-5'],
  ['anthropic-messages', 'claude-opus-4-7'],
  ['gemini', 'gemini-2.0-flash'],
  ['gemini', 'gemini-2.5-pro'],
  ['gemini', 'gemini-3-pro-preview'],
]

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const GIF = 'R0lGODlhAQABAAAAADs='
const PDF = 'JVBERi0xLjQKJSVFT0Y='
const user = (content: unknown) => [{ role: 'user', content }]
const schema = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'], additionalProperties: false }
const tool = (extra: Json = {}): Record<SurfaceName, Json> => ({
  chat: { type: 'function', function: { name: 'f', parameters: schema, ...extra } },
  responses: { type: 'function', name: 'f', parameters: schema, ...extra },
  messages: { name: 'f', input_schema: schema, ...extra },
})
/** With one tool and more members. */
const withTool = (more: Partial<Record<SurfaceName, Json>> = {}, extra: Json = {}): Bodies =>
  Object.fromEntries(SURFACES.map(s => [s, { tools: [tool(extra)[s]], ...more[s] }]))

const FEATURES: readonly Feature[] = [
  { name: 'Text, system text, history', bodies: { responses: {}, chat: {}, messages: {} } },
  { name: 'Streams', bodies: { responses: { stream: true }, chat: { stream: true }, messages: { stream: true } } },
  {
    name: 'Image, base64',
    bodies: {
      responses: { input: user([{ type: 'input_image', image_url: `data:image/png;base64,${PIXEL}` }]) },
      chat: { messages: user([{ type: 'image_url', image_url: { url: `data:image/png;base64,${PIXEL}` } }]) },
      messages: {
        messages: user([{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: PIXEL } }]),
      },
    },
  },
  {
    name: 'GIF images',
    bodies: {
      responses: { input: user([{ type: 'input_image', image_url: `data:image/gif;base64,${GIF}` }]) },
      chat: { messages: user([{ type: 'image_url', image_url: { url: `data:image/gif;base64,${GIF}` } }]) },
      messages: {
        messages: user([{ type: 'image', source: { type: 'base64', media_type: 'image/gif', data: GIF } }]),
      },
    },
  },
  {
    name: 'Image, URL',
    bodies: {
      responses: { input: user([{ type: 'input_image', image_url: 'https://example.com/a.png' }]) },
      chat: { messages: user([{ type: 'image_url', image_url: { url: 'https://example.com/a.png' } }]) },
      messages: { messages: user([{ type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } }]) },
    },
  },
  {
    name: 'PDF, base64',
    bodies: {
      responses: {
        input: user([{ type: 'input_file', filename: 'a.pdf', file_data: `data:application/pdf;base64,${PDF}` }]),
      },
      chat: {
        messages: user([
          { type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${PDF}` } },
        ]),
      },
      messages: {
        messages: user([{ type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: PDF } }]),
      },
    },
  },
  {
    name: 'PDF, URL',
    bodies: {
      responses: { input: user([{ type: 'input_file', file_url: 'https://example.com/a.pdf' }]) },
      messages: { messages: user([{ type: 'document', source: { type: 'url', url: 'https://example.com/a.pdf' } }]) },
    },
  },
  {
    name: 'Text document',
    bodies: {
      messages: {
        messages: user([{ type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'x' } }]),
      },
    },
  },
  { name: 'Function tools', bodies: withTool() },
  { name: 'Strict tools', bodies: withTool({}, { strict: true }) },
  {
    name: 'Forced tool',
    bodies: withTool({
      chat: { tool_choice: 'required' },
      responses: { tool_choice: 'required' },
      messages: { tool_choice: { type: 'any' } },
    }),
  },
  {
    name: 'One call a turn',
    bodies: withTool({
      chat: { parallel_tool_calls: false },
      responses: { parallel_tool_calls: false },
      messages: { tool_choice: { type: 'auto', disable_parallel_tool_use: true } },
    }),
  },
  {
    name: 'allowed_tools',
    bodies: withTool({
      chat: {
        tool_choice: {
          type: 'allowed_tools',
          allowed_tools: { mode: 'auto', tools: [{ type: 'function', function: { name: 'f' } }] },
        },
      },
      responses: { tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'f' }] } },
    }),
  },
  {
    name: 'Custom tools',
    bodies: {
      chat: { tools: [{ type: 'custom', custom: { name: 'c' } }] },
      responses: {
        tools: [{ type: 'custom', name: 'c', format: { type: 'grammar', syntax: 'lark', definition: 'start: "x"' } }],
      },
    },
  },
  {
    name: 'Namespaces, client tool search',
    bodies: {
      responses: {
        tools: [
          { type: 'namespace', name: 'n', tools: [{ type: 'function', name: 'f', parameters: schema }] },
          { type: 'tool_search', execution: 'client' },
        ],
      },
    },
  },
  {
    name: 'bash, text editor, memory',
    bodies: {
      messages: {
        tools: [
          { type: 'bash_20250124', name: 'bash' },
          { type: 'memory_20250818', name: 'memory' },
        ],
      },
    },
  },
  {
    name: 'Web search',
    bodies: {
      responses: { tools: [{ type: 'web_search' }] },
      chat: { web_search_options: {} },
      messages: { tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
    },
  },
  {
    name: 'Web search, allowed domains',
    bodies: {
      responses: { tools: [{ type: 'web_search', filters: { allowed_domains: ['example.com'] } }] },
      messages: { tools: [{ type: 'web_search_20250305', name: 'web_search', allowed_domains: ['example.com'] }] },
    },
  },
  {
    name: 'Web search, blocked domains',
    bodies: {
      messages: { tools: [{ type: 'web_search_20250305', name: 'web_search', blocked_domains: ['example.com'] }] },
    },
  },
  {
    name: 'Web search, limited in number',
    bodies: {
      responses: { tools: [{ type: 'web_search' }], max_tool_calls: 2 },
      messages: { tools: [{ type: 'web_search_20250305', name: 'web_search', max_uses: 2 }] },
    },
  },
  {
    name: 'Reasoning effort',
    bodies: {
      responses: { reasoning: { effort: 'high' } },
      chat: { reasoning_effort: 'high' },
      messages: { output_config: { effort: 'high' } },
    },
  },
  {
    name: 'Thinking, reasoning summaries',
    bodies: { responses: { reasoning: { summary: 'auto' } }, messages: { thinking: { type: 'adaptive' } } },
  },
  {
    name: 'Forced tool while thinking',
    bodies: { messages: { tools: [tool().messages], tool_choice: { type: 'any' }, thinking: { type: 'adaptive' } } },
  },
  {
    name: 'temperature, top_p',
    bodies: {
      responses: { temperature: 0.5, top_p: 0.5 },
      chat: { temperature: 0.5, top_p: 0.5 },
      messages: { temperature: 0.5, top_p: 0.5 },
    },
  },
  { name: 'top_k', bodies: { chat: { top_k: 5 }, messages: { top_k: 5 } } },
  { name: 'seed', bodies: { chat: { seed: 1 } } },
  { name: 'Stop strings', bodies: { chat: { stop: ['a'] }, messages: { stop_sequences: ['a'] } } },
  {
    name: 'Log probabilities',
    bodies: { responses: { include: ['message.output_text.logprobs'] }, chat: { logprobs: true } },
  },
  {
    name: 'An assistant message to continue',
    bodies: { messages: { messages: [...user('x'), { role: 'assistant', content: 'It is' }] } },
  },
  { name: 'previous_response_id', bodies: { responses: { previous_response_id: 'resp_1' } } },
  { name: 'n > 1', bodies: { chat: { n: 2 } } },
  {
    name: 'JSON output',
    bodies: {
      responses: { text: { format: { type: 'json_object' } } },
      chat: { response_format: { type: 'json_object' } },
      messages: { output_config: { format: { type: 'json_schema', schema: {} } } },
    },
  },
  { name: 'Audio', bodies: { chat: { modalities: ['text', 'audio'] } } },
]

const MINIMAL: Record<SurfaceName, Json> = {
  responses: { model: 'm', input: 'x' },
  chat: { model: 'm', messages: user('x') },
  messages: { model: 'm', max_tokens: 4000, messages: user('x') },
}

function backendOf(dialect: Dialect, model: string): Backend {
  return {
    id: `upstream/${model}`,
    provider: 'upstream',
    dialect: dialect.name,
    baseUrl: 'https://upstream.example',
    headers: {},
    model,
    weight: 1,
    supports: dialect.capabilities,
    nativeTools: dialect.nativeTools,
    maxTokensField: 'max_tokens',
  }
}

/** The conversation that asks for the feature, or the refusal of the surface; undefined where it has no notation for it. */
function ask(feature: Feature, surface: SurfaceName): Conversation | GatewayError | undefined {
  const more = feature.bodies[surface]
  if (!more) return undefined
  const body = structuredClone({ ...MINIMAL[surface], ...more })
  try {
    surfaces[surface]!.validate(body, 'reject')
    return surfaces[surface]!.parse(body)
  } catch (error) {
    if (error instanceof GatewayError) return error
    throw error
  }
}

/** What a dialect says of a feature: of every surface that can ask for it. */
function carried(feature: Feature, dialect: Dialect, model: string): string {
  const answers = new Set<string>()
  for (const surface of SURFACES) {
    const asked = ask(feature, surface)
    if (asked === undefined || asked instanceof GatewayError) continue
    const unfit = dialect.unfit(asked, backendOf(dialect, model))
    answers.add(unfit ? `no: ${unfit.requirement}` : 'yes')
  }
  return [...answers].join('; ') || '–'
}

function taken(feature: Feature, surface: SurfaceName): string {
  const asked = ask(feature, surface)
  if (asked === undefined) return '–'
  return asked instanceof GatewayError ? `400 \`${asked.code}\` at \`${asked.param}\`` : 'yes'
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}

export function compatibility(): string {
  const general = FEATURES.map(feature => [
    feature.name,
    ...SURFACES.map(surface => taken(feature, surface)),
    ...DIALECTS.map(name => carried(feature, dialects[name]!, 'model')),
  ])
  const special: string[][] = []
  for (const [name, model] of FAMILIES) {
    const dialect = dialects[name]!
    const lacks = FEATURES.filter(f => carried(f, dialect, model) !== carried(f, dialect, 'model')).map(f => f.name)
    special.push([`\`${model}\``, name, lacks.join(', ') || 'nothing more'])
  }
  return `<!-- made by docs/generate/index.ts: edit docs/generate/compatibility.ts instead -->

# Compatibility

What a client can ask for on each surface, and which dialects can carry it. The cells are not written by hand: each is the answer of the surface's
schema and of the dialect to a request that asks for the feature.

- **Surfaces**: *yes*, the error that refuses it, or – where the surface has no notation for it.
- **Dialects**: *yes*, or the requirement that a backend of this dialect can't meet. Such a backend is passed over; when no backend of the model is left
  the request is refused with 400 \`request_requirements_unsatisfied\`, before any model runs. – where no surface can ask for it.

The table is of the dialects by themselves. Where the operator has set it up, the gateway runs web searches for backends without one (\`web-search\`), and
fetches images and documents for those that take no URLs (\`media\`): docs/configuration.md.

Spoken over a WebSocket too (docs/websocket.md): ${SURFACES.filter(surface => surfaces[surface]!.socket).join(', ')}.

A backend can be narrowed by \`supports\` (docs/configuration.md), and some models take less than their dialect (below). A few things are never a reason to
pass a backend over, because the gateway meets them itself or because they are hints: stop strings that a provider does not take are matched in the
gateway, grammars of custom tools are advice where the dialect has none, efforts between two levels go to the nearest lower one, \`seed\`, \`verbosity\` and
\`user\` are dropped where a provider has no such member, and temperatures over a provider's maximum are lowered to it.

## Features

${table(['feature', ...Object.values(surfaces).map(({ title }) => title), ...DIALECTS], general)}

## Models that take less

Families are recognised by the upstream model's id; any other id is taken to be a compatible server that knows every control.

${table(['model, as an example', 'dialect', 'also can’t'], special)}

A gemini backend with \`tool_schema: openapi\` (docs/upstreams.md) is also passed over for tool schemas that OpenAPI's words can't say: \`not\`, \`if\`,
\`dependentRequired\`, \`dependentSchemas\`, \`multipleOf\`, \`prefixItems\`, \`unevaluatedProperties\`, bounds that exclude a fraction, a union at
the top, schemas that contain themselves. \`$ref\`, \`oneOf\`, \`allOf\`, \`const\` and lists of types are rewritten; \`additionalProperties\`, \`patternProperties\`,
\`propertyNames\`, \`uniqueItems\` and \`contains\` are left out.

## Calls whose arguments are no JSON

Models now and then write such calls. Chat Completions and Responses pass the text on as it is, so that the client can tell the model. On Messages the input
is an object: a buffered reply has \`{"_raw": "the text"}\`, and so has a stream of which no part of the arguments had left; a stream in the middle of them ends
with the error \`upstream_server_error\`, which is typed in the official SDKs. So does any reply with such a call of a
\`strict\` tool, or with one that does not keep to the tool's schema. Arguments nested more than 512 levels deep are such text, too: in a buffered Messages
reply, and when a client sends them back in the history of a call.

Whole numbers of any length go from surface to surface and to every upstream as the model wrote them. One exception: in a Messages *request* the input of a
\`tool_use\` block is JSON of the body, where a number beyond 2^53 is read as the nearest double, as JavaScript clients do.

## Web pages of a search

Gemini names the pages of a search by links through a host of its own. A client gets the page's site instead; a page whose site is not told is left out.
`
}
