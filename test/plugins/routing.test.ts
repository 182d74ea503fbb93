/** `routing`: which backends of the model can serve the request, in order of preference. It dispatches nothing. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Conversation, Part } from '../../core/canon/conversation.ts'
import { conversation, deny, estimate } from '../../core/plugin.ts'
import { type Backend, CAPABILITIES, type Capability } from '../../core/ports/dialect.ts'
import { routing } from '../../plugins/routing.ts'
import { candidates, compacting, identity, model, plan, type Rights, rights } from '../../plugins/shared/slots.ts'
import { plainConversation, type RunOptions, runPlugin } from '../../plugins/testing.ts'
import { backend, caller, gatewayOf, modelOf, text } from './kit.ts'

const named = (name: string, over: Partial<Backend> = {}) => backend({ id: `local/${name}`, model: name, ...over })
const route = (backends: Backend[], over: Partial<Conversation> = {}, { slots = [], ...more }: RunOptions<any> = {}) =>
  runPlugin(routing, {
    gateway: gatewayOf(),
    events: [text('hi')],
    ...more,
    slots: [
      [identity, caller()],
      [conversation, plainConversation(over)],
      [model, modelOf({ backends })],
      [estimate, { input: 100 }],
      [rights, () => null],
      ...slots,
    ],
  })
const order = async (...parameters: Parameters<typeof route>) =>
  (await route(...parameters)).exchange.get(candidates).map(({ model }) => model)

const tool = { type: 'function' as const, name: 'f', parameters: { type: 'object', properties: {} }, path: 'tools[0]' }
const image: Part = {
  type: 'image',
  source: { kind: 'data', mediaType: 'image/png', data: 'AAAA' },
  path: 'messages[0].content[0]',
}
const without = (capability: Capability) => ({ supports: new Set(CAPABILITIES.filter(each => each !== capability)) })

test('backends without a group are tried in the order in which they are written', async () => {
  assert.deepEqual(await order([named('a'), named('b'), named('c')]), ['a', 'b', 'c'])
})

const ASKS: [what: string, capability: Capability, over: Partial<Conversation>, param: RegExp][] = [
  ['tools', 'tools', { tools: [tool] }, /^tools/],
  ['images', 'images', { turns: [{ role: 'user', parts: [image] }] }, /^messages\[0\]\.content\[0\]/],
  ['strict tools', 'strict_tools', { tools: [{ ...tool, strict: true }] }, /^tools\[0\]/],
]
for (const [what, capability, over, param] of ASKS) {
  test(`[REQ-1] a request with ${what} goes to the backends that have them; where none has, it is refused by name`, async () => {
    assert.deepEqual(await order([named('a', without(capability)), named('b')], over), ['b'])
    const { status, json } = await route([named('a', without(capability))], over)
    assert.deepEqual([status, json.error.code], [400, 'request_requirements_unsatisfied'])
    assert.match(json.error.param, param)
    assert.doesNotMatch(json.error.message, /local/, 'no name of a provider')
  })
}

// A chain without one of the two lines did not load.
test('without web-search above a request with a hosted search is refused by name, and all others are served', async () => {
  const search = { type: 'web_search' as const, path: 'tools[0]' }
  const { status, json } = await route([named('a')], { tools: [search] })
  assert.deepEqual([status, json.error.code, json.error.param], [400, 'request_requirements_unsatisfied', 'tools[0]'])
  assert.match(json.error.message, /web_search, which is not offered here \(tools\[0\]\)/)
  assert.deepEqual(await order([named('a')]), ['a'])
})

// One backend had the tools and another the images: the message named the tools alone, which the model has.
test('[REQ-1] what no backend can do together is named together, and what none can do at all alone', async () => {
  const turns = [{ role: 'user' as const, parts: [image] }]
  const told = async (backends: Backend[], over: Partial<Conversation>) => {
    const { status, json } = await route(backends, over)
    assert.deepEqual([status, json.error.code], [400, 'request_requirements_unsatisfied'])
    return [json.error.param, /asks for (.*)\. Remove (.*) or choose/.exec(json.error.message)!.slice(1)]
  }
  const only = (...capabilities: Capability[]) => named('x', { supports: new Set(capabilities) })
  const both = { tools: [tool], turns }
  const image0 = 'image input (messages[0].content[0])'
  assert.deepEqual(await told([only('images'), only('tools')], both), [
    'tools[0]',
    [`tool calls (tools[0]) together with ${image0}`, 'one of them'],
  ])
  // None has images, so to leave out the tools would not help.
  assert.deepEqual(await told([only(), only('tools')], both), ['messages[0].content[0]', [image0, 'it']])
  const strict = { tools: [{ ...tool, strict: true }], turns }
  assert.deepEqual(await told([only('images', 'tools'), only('tools', 'strict_tools'), only()], strict), [
    'tools[0].strict',
    [`strict tool schemas (tools[0].strict) together with ${image0}`, 'one of them'],
  ])
  // A window that is too small is no capability, and counts as any reason.
  assert.deepEqual(await told([named('a', { contextWindow: 99 }), only('images')], { tools: [tool] }), [
    'model',
    ['a context window of 100 tokens (model) together with tool calls (tools[0])', 'one of them'],
  ])
})

test('[REQ-1] a prompt goes past the backends whose window it is over', async () => {
  const narrow = named('narrow', { contextWindow: 99 })
  assert.deepEqual(await order([narrow, named('wide', { contextWindow: 100 })]), ['wide'])
  const { json } = await route([narrow])
  assert.deepEqual([json.error.code, json.error.param], ['request_requirements_unsatisfied', 'model'])
  assert.match(json.error.message, /a context window of 100 tokens/)
})

test('a model without a backend: 503 provider_unavailable, to be retried', async () => {
  const { status, json } = await route([])
  assert.deepEqual([status, json.error.code, json.error.retryable], [503, 'provider_unavailable', true])
})

test('[REQ-1] what plan or key do not include is refused by name, although a backend has it', async () => {
  const over = { tools: [tool] }
  assert.deepEqual(await order([named('able')], over), ['able'])
  const noTools: Rights = ({ tools }) =>
    tools.length > 0 ? { param: tools[0]!.path, requirement: 'tools, which the plan does not include' } : null
  const slots = [[rights, noTools]] as const
  const { status, json } = await route([named('able')], over, { slots })
  assert.deepEqual([status, json.error.code, json.error.param], [400, 'request_requirements_unsatisfied', 'tools[0]'])
  assert.match(json.error.message, /asks for tools, which the plan does not include/)
  assert.deepEqual(await order([named('able')], {}, { slots }), ['able'])
})

// ---- groups ---------------------------------------------------------------------------------------------------------

const group = ['a', 'b', 'c', 'd'].map(name => named(name, { group: 'pool' }))
const keyed = (cacheKey: string): Partial<Conversation> => ({ cacheKey })

test('a group stands where its first member does', async () => {
  const [first, ...rest] = await order([named('x'), group[0]!, named('y'), group[1]!])
  assert.equal(first, 'x')
  assert.deepEqual([rest.slice(0, 2).sort(), rest[2]], [['a', 'b'], 'y'])
})

test('within a group one conversation keeps its backend, and many spread over all', async () => {
  const firsts = new Map<string, number>()
  for (let i = 0; i < 200; i++) {
    const found = await order(group, keyed(`key ${i}`))
    assert.deepEqual([...found].sort(), ['a', 'b', 'c', 'd'])
    if (i < 20) assert.deepEqual(await order([...group].reverse(), keyed(`key ${i}`)), found)
    firsts.set(found[0]!, (firsts.get(found[0]!) ?? 0) + 1)
  }
  for (const [name, times] of firsts) assert.ok(times > 20, `${name} ${times}`)
  assert.equal(firsts.size, 4)
})

test('a backend that goes takes its own conversations along, and no others', async () => {
  for (let i = 0; i < 50; i++) {
    const found = await order(group, keyed(`key ${i}`))
    assert.deepEqual(
      await order(group.slice(1), keyed(`key ${i}`)),
      found.filter(name => name !== 'a'),
    )
  }
})

test('weight: a share of the conversations; 0 is none', async () => {
  const heavy = [
    named('a', { group: 'pool', weight: 9 }),
    named('b', { group: 'pool' }),
    named('c', { group: 'pool', weight: 0 }),
  ]
  let toHeavy = 0
  for (let i = 0; i < 200; i++) {
    const found = await order(heavy, keyed(`key ${i}`))
    assert.ok(!found.includes('c'))
    if (found[0] === 'a') toHeavy++
  }
  assert.ok(toHeavy > 150 && toHeavy < 200, String(toHeavy))
})

test('what makes a conversation: the client’s cache key, else its session header, else its first words, each within the organization', async () => {
  const places = async (over: Partial<Conversation>, more: RunOptions<any> = {}) => {
    const found = []
    for (let i = 0; i < 12; i++) {
      const pool = group.map(each => ({ ...each, id: `${each.id}/${i}` }))
      found.push(...(await order(pool, over, more)))
    }
    return found.join('')
  }
  const session = (id: string) => ({ request: { headers: { 'session-id': id } } })
  const saying = (...words: string[]): Partial<Conversation> => ({
    turns: words.map((word, i) => ({ role: i % 2 ? 'assistant' : 'user', parts: [text(word)] }) as const),
  })
  const pairs: [same: boolean, a: Promise<string>, b: Promise<string>][] = [
    [true, places(keyed('k'), session('1')), places(keyed('k'), session('2'))],
    [true, places(saying('a'), session('1')), places(saying('b'), session('1'))],
    [false, places({}, session('1')), places({}, session('2'))],
    [true, places(saying('a')), places(saying('a', 'b', 'c'))],
    [false, places(saying('a')), places(saying('b'))],
    [false, places(keyed('k')), places(keyed('k'), { slots: [[identity, caller({ id: 'globex' })]] })],
  ]
  for (const [i, [same, a, b]] of pairs.entries()) assert.equal((await a) === (await b), same, `pair ${i}`)
})

test('[REQ-1] a compaction that is not offered is refused by what asked for it', async () => {
  const wish = { only: true, keeps: 'nothing', path: 'input[3]' } as const
  const asked = async (over: Partial<Conversation>) => {
    const { json } = await route([named('a')], over)
    assert.match(json.error.message, /compaction, which is not offered here/)
    return json.error.param
  }
  assert.equal(await asked({ compaction: wish }), 'input[3]')
  assert.equal(await asked({ edits: [{ type: 'clear_thinking', keep: 1 }] }), 'context_management.edits')
})

test('a compaction is in the plan, with the tokens that it adds; its refusal, now or later, is the answer', async () => {
  const wish = { only: true, keeps: 'nothing', path: 'input[3]' } as const
  const made = { wish, cap: 9, added: 7, asked: 0, further: { input: 0, output: 9 } }
  const narrow = named('narrow', { contextWindow: 106 })
  const wide = named('wide', { contextWindow: 107 })
  for (const answer of [made, Promise.resolve(made)]) {
    const run = await route([narrow, wide], { compaction: wish }, { slots: [[compacting, () => answer]] })
    assert.deepEqual([run.exchange.get(plan).compaction, run.exchange.get(plan).input], [made, 107])
    assert.deepEqual(run.exchange.get(candidates), [wide])
  }
  const none = await route([narrow], { compaction: wish }, { slots: [[compacting, () => null]] })
  assert.deepEqual([none.exchange.get(plan).compaction, none.exchange.get(plan).input], [undefined, 100])
  const refusal = deny('invalid_value', { message: 'No.' })
  for (const answer of [refusal, Promise.resolve(refusal)])
    assert.equal(
      (await route([wide], { compaction: wish }, { slots: [[compacting, () => answer]] })).json.error.message,
      'No.',
    )
})
