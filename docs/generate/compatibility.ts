/**
 * docs/compatibility.md: what each surface accepts and what each dialect carries. No cell is written by hand: each is
 * the answer of the surface's schema and of the dialect's `unfit` to a request that uses the feature. Written by
 * docs/generate/index.ts.
 */
import type { Conversation, SurfaceName } from '../../core/canon/conversation.ts'
import { GatewayError } from '../../core/canon/errors.ts'
import type { Backend, Dialect } from '../../core/ports/dialect.ts'
import { MAX_NESTING } from '../../core/tools/json.ts'
import { dialects } from '../../providers/index.ts'
import { sentTo, unfitFor } from '../../providers/structured-output.ts'
import { FEATURES, type Feature } from '../../surfaces/described.ts'
import { listed, surfaces } from '../../surfaces/index.ts'
import expectedClients from '../../test/clients/expected.json' with { type: 'json' }
import expectedServers from '../../test/clients/servers.json' with { type: 'json' }
import { markdown as clientsTable, type Tried } from '../../test/clients/table.ts'

const SURFACES = listed.map(({ name }) => name)
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

const FORCED = ', by a forced tool'

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
    settings: { provider: {}, backend: {} },
  }
}

/**
 * The conversation of a request that uses the feature, or the error of the surface that refuses it; undefined where the
 * surface has no notation for the feature.
 */
function ask(feature: Feature, name: SurfaceName): Conversation | GatewayError | undefined {
  const { samples, validate, parse } = surfaces[name]!
  const more = samples.features[feature]
  if (!more) return undefined
  const body = structuredClone({ ...samples.body('m', 'x'), ...more })
  try {
    validate(body, 'reject')
    return parse(body)
  } catch (error) {
    if (error instanceof GatewayError) return error
    throw error
  }
}

/** Whether a dialect carries a feature: its answers to the requests of all surfaces that can express the feature. */
function carried(feature: Feature, dialect: Dialect, model: string): string {
  const answers = new Set<string>()
  for (const surface of SURFACES) {
    const asked = ask(feature, surface)
    if (asked === undefined || asked instanceof GatewayError) continue
    const backend = backendOf(dialect, model)
    const unfit = unfitFor(asked, backend, dialect)
    const untold = { ...asked, parallelToolCalls: true }
    if (!unfit) answers.add(sentTo(asked, backend, dialect).tool === null ? 'yes' : `yes${FORCED}`)
    else if (!asked.parallelToolCalls && !unfitFor(untold, backend, dialect)) answers.add('first call')
    else answers.add(`no: ${unfit.requirement}`)
  }
  return [...answers].join('; ') || '–'
}

function taken(feature: Feature, surface: SurfaceName): string {
  const asked = ask(feature, surface)
  if (asked === undefined) return '–'
  if (asked instanceof GatewayError) return `400 \`${asked.code}\` at \`${asked.param}\``
  return asked.output && surfaces[surface]!.structuredOutput === 'reject' ? 'by choice' : 'yes'
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}

export function compatibility(): string {
  const general = FEATURES.map(feature => [
    feature,
    ...SURFACES.map(surface => taken(feature, surface)),
    ...DIALECTS.map(name => carried(feature, dialects[name]!, 'model')),
  ])
  const special: string[][] = []
  for (const [name, model] of FAMILIES) {
    const dialect = dialects[name]!
    const lacks = FEATURES.filter(feature => {
      const [own, general] = [model, 'model'].map(id => carried(feature, dialect, id).replace(FORCED, ''))
      return own !== general
    })
    special.push([`\`${model}\``, name, lacks.join(', ') || 'nothing more'])
  }
  return `<!-- made by docs/generate/index.ts: edit docs/generate/compatibility.ts, and samples.ts of the surfaces -->

# Compatibility

What a client can ask for on each surface, and which dialects can carry it. Nobody writes the cells by hand: each is the
answer of the surface's schema and of the dialect to a request that asks for the feature.

- **Surfaces**: *yes*, the error that refuses it, or – where the surface has no notation for it. *By choice*: it is
  refused unless the operator allows it ([structured output](structured-output.md)).
- **Dialects**: *yes*, or the requirement that a backend of this dialect can't meet; – where no surface can ask for it.
  *First call*: the provider can't be told, so the gateway keeps the first call of the turn and drops later ones before
  the client sees them. The model wrote them, so they count as output. Backends that can be told go first.
  A backend that can't meet a requirement is passed over. When no backend of the model is left, the request is refused
  with 400 \`request_requirements_unsatisfied\`, before any model runs.

The table shows the dialects by themselves. If the operator has set it up, the gateway runs web searches for backends
without one ([web search](web-search.md)), and fetches images and documents for backends that take no URLs
([media](media.md)). It compacts conversations itself, on every dialect ([compaction](compaction.md)).

Spoken over a [WebSocket](websocket.md) too: ${SURFACES.filter(surface => surfaces[surface]!.socket).join(', ')}.

An operator can narrow a backend by \`supports\` ([configuration](configuration.md#models)), and some models take less
than their dialect ([below](#models-that-take-less)). A few things never exclude a backend, because the gateway meets
them itself or because they are hints:

- Stop strings that a provider does not take are matched in the gateway.
- Grammars of custom tools are advice where the dialect has none.
- An effort between two levels becomes the nearest lower one.
- \`temperature\`, \`top_p\`, \`seed\` and \`verbosity\` are left out where a provider or model does not take them.
- A temperature over a provider's maximum is lowered to it.
- \`user\`, \`safety_identifier\` and \`metadata\` go to no provider.

## Features

${table(['feature', ...listed.map(({ title }) => title), ...DIALECTS], general)}

## Clients

What \`npm run clients\` printed: SDKs, frameworks and agents as they come from their registries, tried with a
model on each dialect: C openai-chat, R openai-responses, M anthropic-messages, G gemini. *ok*, or the status of the
error that the client got. What a client cannot do, and how it is set up, is in [clients](clients.md), and how to try
the newest versions [every night](clients.md#every-night).

- **JSON schemas and \`json_object\`** are refused on Chat Completions unless the operator allows them; rows with
  *translate* are tried where the operator does ([structured output](structured-output.md)). \`n\` above 1, penalties
  and \`background\` are refused.
- **llm-comply** runs where they are allowed. What it does not pass: *Chat: Reasoning Summary*, since \`reasoning\` is
  no member of Chat Completions, whose member is \`reasoning_effort\` (400 \`unknown_parameter\`).

${clientsTable(expectedClients as Record<string, Tried>)}
## Servers

\`npm run clients\` also puts servers behind the gateway, as they come from their registries, and asks each the same on
the three surfaces: a text and, where it can, a call of a tool, in one body and as a stream. The answer must be the
server's own, to the letter, and each stream must have its end. – is a dialect that the server does not speak. What
servers once sent that was read wrongly is kept in \`test/providers/real-servers.test.ts\`.

${clientsTable(expectedServers as Record<string, Tried>, 'server')}
## Models that take less

Families are recognised by the upstream model's id. Any other id is taken to be a compatible server that knows every
control.

${table(['model, as an example', 'dialect', 'also can’t'], special)}

A gemini backend with \`tool_schema: openapi\` ([upstreams](upstreams.md)) is also passed over for tool schemas that
OpenAPI's words can't express: \`not\`, \`if\`, \`dependentRequired\`, \`dependentSchemas\`, \`dependencies\`, \`multipleOf\`,
\`prefixItems\`, \`unevaluatedProperties\`, \`unevaluatedItems\`, \`$dynamicRef\`, \`$recursiveRef\`, bounds that exclude a
fraction, a union at the top, schemas that contain themselves. \`$ref\`, \`oneOf\`, \`allOf\`, \`const\` and lists of types
are rewritten. \`additionalProperties\`, \`patternProperties\`, \`propertyNames\`, \`uniqueItems\` and \`contains\` are left
out.

## Calls whose arguments are no JSON

Models sometimes write such calls.

| surface | what the client gets |
| --- | --- |
| Chat Completions, Responses | the text as it is, so that the client can tell the model |
| Messages, buffered | \`{"_raw": "the text"}\` as the input, which has to be an object |
| Messages, streamed, no part of the arguments sent yet | the same |
| Messages, streamed, in the middle of the arguments | the error \`upstream_server_error\`, which is typed in the official SDKs |
| any, when the tool is \`strict\`; then also for a call that does not keep to its schema | the same error |

Arguments nested more than ${MAX_NESTING} levels deep count as such text, too: in a buffered Messages reply, and when a client
sends them back in the history of a call.

Numbers in arguments go from surface to surface and to every upstream as they are spelled: \`175928847299117063\` keeps
its digits, and \`1.10\` its zero. That holds for calls of the model and for calls that a client replays.

## Web pages of a search

Gemini names the pages of a search by links through a host of its own. A client gets the page's site instead. A page
whose site is not known is left out.
`
}
