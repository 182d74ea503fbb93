import { type Budget, option } from '../core/engine/budget.ts'
import { longTurns, loopTurns } from '../core/engine/loop-turn.ts'
import {
  bodyMeter,
  definePlugin,
  deny,
  type Exchange,
  GatewayError,
  type Reply,
  request,
  requestBody,
  slot,
  tenantOf,
} from '../core/plugin.ts'
import type { Surface } from '../core/ports/surface.ts'
import { systemClock } from '../core/tools/clock.ts'
import { FairGate } from '../core/tools/fair.ts'
import { exactValues, type JsonPath, parseExactly, replaceAt } from '../core/tools/json.ts'
import { JsonBytes } from '../core/tools/json-bytes.ts'
import { jsonMembers } from '../core/tools/json-members.ts'
import type { JsonOutline } from '../core/tools/json-outline.ts'
import { choice, choiceByKey, count, duration, object, size, wordFor } from '../core/tools/vocabulary.ts'
import { jsonBytes, MeterBusy, meterPool, parseJson } from '../meter/index.ts'
import { surfaces } from '../surfaces/index.ts'
import { validateUnstructured } from '../surfaces/output-format.ts'
import { disconnection } from './shared/disconnection.ts'
import { declaredBytes, PreparedRequest, preparationOf } from './shared/preparation.ts'
import { recentOf, type Sought } from './shared/recent.ts'
import {
  type ContentLimits,
  contentLimits,
  identity,
  preparing,
  recent,
  verbatim,
  wouldRefuse,
} from './shared/slots.ts'
import { Verbatim } from './shared/verbatim.ts'

/** What `unknown_fields: strip` removed: paths, and preview features that nothing is done about. */
const strippedFields = slot<string[]>('strippedFields')

/** What is known of the conversation to which the body may belong, and the body's outline where it was made from that. */
const sought = slot<Sought & { outline?: JsonOutline }>('validation.sought')

const unknownFields = (surface: string) =>
  choice(
    ['reject', 'strip'],
    `Unknown fields on the ${surface} surface: reject with 400, or strip and name them in x-sluice-stripped.`,
    'reject',
  )

const schema = object({
  max_body: size('32MiB', 'Largest request body; more is 413 request_too_large.'),
  body_timeout: duration('60s', 'The body must be whole this long after the gateway starts to read it, else 408.'),
  max_depth: count(64, 'Deepest nesting of the JSON body.', 1),
  max_nodes: count(
    100_000,
    'Most values (members, items and scalars) in the JSON body, and in the arguments of its tool calls.',
    1,
  ),
  max_images: count(50, 'Most images in one request.'),
  max_documents: count(10, 'Most documents in one request.'),
  max_replay: size(
    '16MiB',
    'Largest replayed conversation history, ids, reasoning and stored data included, without the last user turn.',
  ),
  structured_output: choiceByKey(
    ['reject', 'translate'],
    Object.fromEntries(
      Object.values(surfaces)
        .filter(({ refuseStructured }) => refuseStructured)
        .map(({ name, structuredOutput = 'translate' }) => [name, structuredOutput]),
    ),
    'Requests for JSON replies, with a schema or without: refuse with 400, or translate for every backend. One word for all surfaces, or a word by surface.',
    surface => `Requests for JSON replies on the surface ${surface}.`,
  ),
  unknown_fields: object(
    Object.fromEntries(Object.values(surfaces).map(({ name, title }) => [name, unknownFields(title)])),
    [],
    {
      default: {},
      description:
        'What happens to fields that a surface does not know. `strip` also removes what asks for speed, price or a budget that is not offered, such as `speed`, and names preview features (`anthropic-beta`) that the surface does not know.',
    },
  ),
})

/** Parses the body once and checks it against the surface's schema (GEN-2, GEN-3, REQ-2). */
export const validation = definePlugin({
  name: 'validation',
  summary: 'Parses the JSON body and checks it against the surface, strictly.',
  config: schema,
  needs: [requestBody],
  provides: [request, contentLimits],
  mayProvide: [strippedFields, sought, recent, verbatim, wouldRefuse, preparing, bodyMeter],
  // A thread that parses the body gives back its memory as another array.
  rewrites: [requestBody],
  aboveTerminal: true,
  dryRun: 'safe',
  uses: ['server', 'platform'],
  create(options, context) {
    const { advisory } = context.terminal
    const limits: ContentLimits = {
      images: options.max_images,
      documents: options.max_documents,
      replayBytes: options.max_replay,
      bodyBytes: options.max_body,
      nodes: options.max_nodes,
    }

    const { server, platform } = context.config
    const preparation = preparationOf(context.shared)
    const bounds = platform.recent_conversations
    const conversations = recentOf(context.shared)
    if (bounds.bytes === 0) conversations.clear()
    const keeps = bounds.bytes > 0 && !advisory && !context.foreign
    for (const surface of context.surfaces) {
      const unknownFields = options.unknown_fields[surface.name]!
      warm(surface, unknownFields)
      if (surface.socket && !advisory && server.websocket === 'on' && server.listener === 'uws')
        warm(surface.socket.surface, unknownFields)
    }

    /**
     * The body as the next turn of a recent conversation: what it repeats is taken over from the last turn, and only the
     * rest is read.
     * @returns undefined where the body is to be read whole
     */
    function nextTurn(x: Exchange, bytes: Uint8Array): JsonOutline | undefined {
      const organization = x.peek(identity)?.organization.id
      if (organization === undefined) return undefined
      const { name, argumentsAt } = x.surface!
      const found = conversations.seek(organization, `${name} ${options.unknown_fields[name]}`, bytes)
      if (!found) return undefined
      x.set(sought, found)
      const spelled = argumentsAt?.length ?? Number.POSITIVE_INFINITY
      const outline = found.found?.outline?.next(bytes, { bytes: PARSE_HERE, respelled: spelled })
      if (!outline || Verbatim.paysFor(outline.longBytes, outline.nodes)) return undefined
      // The spelling of numbers is not kept in a body that nests so deep, and such a body is refused.
      if (outline.respelled > spelled && outline.deepest > DEEPEST_SPELLED) return undefined
      x.set(sought, { ...found, outline })
      return outline
    }

    function overShape({ deepest, nodes }: Pick<JsonBytes, 'deepest' | 'nodes'>): undefined | Reply {
      if (deepest > options.max_depth) return tooDeep(deepest, options.max_depth)
      if (nodes > options.max_nodes) return tooMany(nodes, options.max_nodes)
      return undefined
    }

    /** A small body of many values takes as long as a large one: what is done at once for each value adds up. */
    async function parseDense(x: Exchange, shape: JsonBytes): Promise<undefined | Reply> {
      await longTurns.next(tenantOf(x), disconnection(x))
      return checkBody(x, parseHere(x, shape), shape.bytes)
    }

    async function checkDenseBody(x: Exchange, turn: JsonOutline): Promise<undefined | Reply> {
      await longTurns.next(tenantOf(x), disconnection(x))
      return checkBody(x, turn.value, turn.bytes)
    }

    /**
     * Parsing a large body at once would delay every other exchange. Its shape is read in slices; then a pool thread
     * parses it, unless it is little more than text.
     */
    async function parseLarge(x: Exchange, bytes: Uint8Array): Promise<undefined | Reply> {
      const owner = tenantOf(x)
      const shape = new JsonBytes(bytes)
      for (;;) {
        shape.readAll(shape.at + SLICE)
        if (shape.at === bytes.length) break
        await loopTurns.next(owner)
      }
      const over = overShape(shape)
      if (over) return over
      const exactAt = exactArguments(x, shape)
      if (bytes.length + (exactAt ? EXACT_NODE_BYTES : NODE_BYTES) * shape.nodes <= PARSE_TEXT_HERE) {
        await loopTurns.next(owner)
        return checkBody(x, parseHere(x, shape), bytes)
      }
      const disconnected = disconnection(x)
      const leave = await heavy.enter(owner, disconnected)
      try {
        const { value, body, exact } = await meterPool().parse(bytes, disconnected, owner, exactAt)
        x.set(requestBody, body)
        if (Verbatim.pays(shape)) x.set(verbatim, Verbatim.of(body, shape))
        if (exact) replaceAt(value, exactAt!, exact.map(parseExactly))
        return checkBody(x, value, body)
      } catch (error) {
        if (error instanceof MeterBusy) return busy()
        if (error instanceof SyntaxError) return notJson(false)
        throw error
      } finally {
        // By the clock of the system, whatever time it is for the limits.
        systemClock.setTimer(shape.nodes * REST_MS, leave)
      }
    }

    function checkBody(x: Exchange, value: unknown, bytes: Uint8Array): undefined | Reply {
      const surface = x.surface!
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        if (!advisory || value === undefined || !surface.looseBody) return notJson(bytes.length === 0)
        x.set(contentLimits, limits)
        x.set(wouldRefuse, new GatewayError('invalid_json', { message: NOT_JSON }))
        x.set(request, surface.looseBody(value))
        return undefined
      }
      const body = value as Record<string, unknown>
      x.set(contentLimits, limits)
      try {
        const unknownFields = options.unknown_fields[surface.name]!
        const stripped =
          wordFor(options.structured_output, surface.name) === 'translate'
            ? surface.validate(body, unknownFields)
            : validateUnstructured(surface, body, unknownFields)
        // What was removed from a body would not be reported for the next one, which shares what is left.
        if (stripped.length === 0) remember(x, body, bytes)
        const all = unknownFields === 'strip' ? [...stripped, ...unknownPreviews(x)] : stripped
        if (all.length > 0) x.set(strippedFields, all)
      } catch (error) {
        if (!advisory || !(error instanceof GatewayError)) throw error
        x.set(wouldRefuse, error)
      }
      x.set(request, body)
      return undefined
    }

    /** Keeps a body that is accepted, for the next turn of its conversation. */
    function remember(x: Exchange, body: Record<string, unknown>, bytes: Uint8Array): void {
      const kept = x.peek(sought)
      if (!kept || x.peek(verbatim)) return
      const conversation = conversations.keep(kept, bytes, body, kept.outline, bounds, context.clock.mono())
      if (conversation) x.set(recent, conversation)
    }

    function check(x: Exchange): undefined | Reply | Promise<undefined | Reply> {
      const bytes = x.get(requestBody)
      const turn = keeps ? nextTurn(x, bytes) : undefined
      if (turn)
        return overShape(turn) ?? (turn.nodes > DENSE_NODES ? checkDenseBody(x, turn) : checkBody(x, turn.value, bytes))
      if (bytes.length > PARSE_HERE) return parseLarge(x, bytes)
      const shape = new JsonBytes(bytes)
      shape.readAll()
      if (shape.nodes > EXACT_NODES_HERE && exactArguments(x, shape)) return parseLarge(x, bytes)
      const over = overShape(shape)
      if (over) return over
      return shape.nodes > DENSE_NODES ? parseDense(x, shape) : checkBody(x, parseHere(x, shape), bytes)
    }

    /** A body of one of several surfaces. What none of them accepts is refused by the first. */
    async function checkAsAny(x: Exchange, told: NonNullable<Surface['told']>): Promise<undefined | Reply> {
      const all = await surfacesOf(x, told)
      let refusal: unknown
      for (const surface of all) {
        x.surface = surface
        try {
          return await check(x)
        } catch (error) {
          refusal ??= error
          if (!(error instanceof GatewayError)) break
        }
      }
      x.surface = all[0]
      throw refusal
    }

    return {
      body: { maxBytes: options.max_body, timeoutMs: options.body_timeout },
      beforeBody(x) {
        const declared = declaredBytes(x.incoming)
        const entered = preparation.enter(tenantOf(x), declared ?? 0, platform.preparation)
        if (!(entered instanceof PreparedRequest)) return entered
        x.set(preparing, entered)
        x.defer(() => entered.leave())
        if (declared === undefined) x.set(bodyMeter, bytes => entered.take(bytes))
        return undefined
      },
      onRequest(x) {
        const { surface } = x
        if (!surface) return noSurface(x.route)
        return surface.told ? checkAsAny(x, surface.told) : check(x)
      },
      onResponseHead(x, head) {
        const stripped = x.peek(strippedFields)
        if (stripped) head.headers.set('x-sluice-stripped', headerList(stripped))
        return undefined
      },
    }
  },
})

/** A body of at most this many bytes is parsed on the event loop, whatever it holds. It takes 1 to 3 ms. */
const PARSE_HERE = 256 * 1024
/**
 * A larger body is parsed on the event loop too if its bytes, plus `NODE_BYTES` for each value, are at most this many:
 * it is then mostly long strings and takes 1.5 to 3 ms. If a pool thread parsed it, the event loop would still need
 * half of that to receive the value, and the thread three times as much, since the value is copied once more.
 */
const PARSE_TEXT_HERE = 1536 * 1024
/** Building one value takes as long as parsing this many bytes of text. */
const NODE_BYTES = 64
/** The same where the spelling of numbers is kept: each value then costs a call while the text is parsed again. */
const EXACT_NODE_BYTES = 512
/** A body of more values is never parsed on the event loop when the spelling of its numbers is kept. */
const EXACT_NODES_HERE = PARSE_TEXT_HERE / EXACT_NODE_BYTES
/**
 * A smaller body of more values waits for a turn of its own: 9,000 take 13 to 20 ms to read, check and translate, and
 * four that arrive at once are one turn of 50 ms. Agents send a value for each 100 bytes.
 */
const DENSE_NODES = 4000
/** Numbers in deeper bodies are never spelled as they came: `parseExactly` takes no more levels. */
const DEEPEST_SPELLED = 250
/** Bytes read in one event-loop turn. It takes at most about 1 ms, when the strings are short. */
const SLICE = 512 * 1024

/**
 * The event loop receives, checks and counts the values of a body that a thread has parsed: some 0.7 µs each, 27 ms for
 * 40,000, most of it in one piece. So an organization may have two such bodies in progress, and each keeps its place
 * for `REST_MS` per value after it is done. Beside a flood of such bodies the p99 of a victim was 150 ms.
 */
const REST_MS = 0.003

const heavyBudget = {
  name: 'heavy_bodies',
  bound: 'bodies that a thread parses: over 256 KB of many values, over 1.5 MB of long strings',
  owner: 'tenant',
  each: 2,
  over: `nothing: the next waits; after each a rest of ${REST_MS * 1000} µs for each of its values`,
  seen: '`sluice_preparing_requests`, beside `sluice_meter_jobs`',
  figures: () => ({ used: heavy.running, waiting: heavy.waiting }),
} as const satisfies Budget
const heavy = new FairGate(Number.POSITIVE_INFINITY, heavyBudget.each)

const content = (bound: string, name: string): Budget => ({
  name,
  bound,
  owner: 'request',
  each: option('validation', name),
  over: '400 `content_limit_exceeded`',
  seen: `\`sluice_content_refused_total{bound="${name}"}\``,
})
export const bodyBudgets: readonly Budget[] = [
  heavyBudget,
  content('values of a JSON body', 'max_nodes'),
  content('nesting of a JSON body', 'max_depth'),
  content('images', 'max_images'),
  content('documents', 'max_documents'),
  content('replayed, recalled and restored data', 'max_replay'),
]

/** Validators are loaded or compiled on first use: do it at start, so that the first request does not wait. */
function warm(surface: Surface, unknownFields: 'reject' | 'strip'): void {
  try {
    surface.validate({}, unknownFields)
  } catch {
    // The empty body is invalid; only the compilation matters here.
  }
}

/** Finds which of several surfaces a request may be of, before its body is parsed by the rules of one. */
async function surfacesOf(x: Exchange, { members, by }: NonNullable<Surface['told']>) {
  const bytes = jsonBytes(x.get(requestBody))
  const names = new Set<string>()
  for (const member of jsonMembers(bytes, NAMES_SLICE))
    if (member === undefined) await loopTurns.next(tenantOf(x))
    else if (members.includes(member.name ?? '')) names.add(member.name!)
  return by(x.incoming.headers, names)
}
/** Bytes read in one event-loop turn. It takes at most some 3 ms, when the names are empty. */
const NAMES_SLICE = 64 * 1024

/** Where the arguments of calls are in the body, when the spelling of numbers may matter there. */
function exactArguments(x: Exchange, shape: JsonBytes): JsonPath | undefined {
  const path = x.surface!.argumentsAt
  return path && shape.respelled > path.length ? path : undefined
}

/** @returns the value; undefined when the bytes are not JSON */
function parseHere(x: Exchange, shape: JsonBytes): unknown {
  try {
    const value = parsed(x, shape)
    const exactAt = exactArguments(x, shape)
    if (exactAt) replaceAt(value, exactAt, exactValues(jsonBytes(shape.bytes).toString('utf8'), exactAt))
    return value
  } catch {
    return undefined
  }
}

function parsed(x: Exchange, shape: JsonBytes): unknown {
  if (!Verbatim.pays(shape)) return parseJson(shape.bytes)
  const sent = new Verbatim()
  const value = sent.parse(shape)
  x.set(verbatim, sent)
  return value
}

/** The preview features of the request that the surface does not know: `anthropic-beta:NAME`. */
function unknownPreviews({ surface, incoming }: Exchange): string[] {
  const { previewHeader, previews } = surface!
  if (!previewHeader || !previews) return []
  const names = (incoming.headers.get(previewHeader) ?? '').split(',').map(name => name.trim())
  return names.filter(name => name !== '' && !previews.has(name)).map(name => `${previewHeader}:${name}`)
}

/** Paths may hold client text, so only characters that a header can carry are kept, and about 2 KB at most. */
function headerList(paths: string[]): string {
  let out = ''
  for (const path of paths) {
    const safe = path.replace(/[^\x21-\x7e]/g, '?')
    if (out.length + safe.length > 2000) return `${out}, and more: ${paths.length} in all`
    out += out === '' ? safe : `, ${safe}`
  }
  return out
}

function notJson(empty: boolean): Reply {
  return deny('invalid_json', {
    message: empty ? 'The request body is empty. Send a JSON object.' : NOT_JSON,
  })
}
const NOT_JSON = 'The request body is not a JSON object. Check its syntax.'
function busy(): Reply {
  return deny('route_capacity', { message: 'The request could not be read. Retry shortly.' })
}
function tooDeep(depth: number, max: number): Reply {
  return deny('content_limit_exceeded', {
    message: `The body is nested ${depth} levels deep; the limit is ${max} (max_depth). Flatten it.`,
    bound: 'max_depth',
  })
}
function tooMany(nodes: number, max: number): Reply {
  return deny('content_limit_exceeded', {
    message: `The body has ${nodes} values; the limit is ${max} (max_nodes). Send fewer.`,
    bound: 'max_nodes',
  })
}
function noSurface(route: string): Reply {
  return deny('not_implemented', {
    message: `The route ${route} validates bodies but names no surface. Add surface: to the route.`,
  })
}
