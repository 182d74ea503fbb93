/**
 * Large bodies, one after the other: those that are expensive for their size. For each: how long the event loop was
 * blocked, and how much memory was taken beside the size.
 */

import type { Random } from '../random.ts'
import { LOOP_MS, MEMORY_FACTOR, MEMORY_FIXED_MIB } from './breaches.ts'
import {
  bodyOf,
  finish,
  Gateway,
  judge,
  keyOf,
  MIB,
  PATHS,
  type Part,
  type Result,
  type Surface,
  send,
  Watch,
} from './kit.ts'

const PART = 'large'

/** What is restored for a handle is large, so that a small body of handles is enough. */
const REPEATED_BYTES = 128 * 1024

/** The most values that a body may have, less a few for those around them. */
const VALUES = 99_000

type Shape = [name: string, surface: Surface, make: (bytes: number) => object]

function shapes(random: Random, kept: { reasoning: any; search: any[] }): Shape[] {
  const user = (content: unknown) => ({ role: 'user', content })
  const times = <T>(bytes: number, each: number, make: (i: number) => T) =>
    Array.from({ length: Math.floor(bytes / each) }, (_, i) => make(i))
  /** As many values as a body may have, filled up to the size with text. `values` is how many of them each item counts. */
  const most = <T>(bytes: number, overhead: number, values: number, make: (text: string) => T) => {
    const items = Math.min(Math.floor(bytes / overhead), Math.floor(VALUES / values))
    return Array.from({ length: items }, (_, i) => make(`${i} ${'y '.repeat((bytes / items - overhead) / 2)}`))
  }
  const all: Shape[] = [
    ['most messages', 'chat', bytes => ({ model: 'a-chat', messages: most(bytes, 40, 3, user) })],
    [
      'most values of a schema',
      'chat',
      bytes =>
        bodyOf('chat', 'a-chat', 'x', {
          tools: [
            { type: 'function', function: { name: 'f', parameters: { enum: most(bytes, 16, 1, text => text) } } },
          ],
        }),
    ],
    ['one long text', 'chat', bytes => bodyOf('chat', 'a-chat', random.text(bytes))],
    ['one letter', 'chat', bytes => bodyOf('chat', 'a-chat', 'a'.repeat(bytes))],
    ['count_tokens of a long text', 'count', bytes => ({ model: 'a-messages', messages: [user(random.text(bytes))] })],
    ['many messages', 'chat', bytes => ({ model: 'a-chat', messages: times(bytes, 40, i => user(`m${i}`)) })],
    [
      'many content parts',
      'messages',
      bytes => ({
        model: 'a-messages',
        max_tokens: 9,
        messages: [user(times(bytes, 40, i => ({ type: 'text', text: `p${i}` })))],
      }),
    ],
    [
      'many numbers',
      'chat',
      bytes =>
        bodyOf('chat', 'a-chat', 'x', {
          tools: [{ type: 'function', function: { name: 'f', parameters: { enum: times(bytes, 8, i => 1e6 + i) } } }],
        }),
    ],
    [
      'many names',
      'responses',
      bytes =>
        bodyOf('responses', 'a-responses', 'x', {
          metadata: Object.fromEntries(times(bytes, 16, i => [`k${i}`, 'v'])),
        }),
    ],
    ['escapes', 'chat', bytes => bodyOf('chat', 'a-chat', '\n"\\\u0001'.repeat(bytes / 12))],
    [
      'one image',
      'chat',
      bytes => ({
        model: 'a-chat',
        messages: [user([{ type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(bytes)}` } }])],
      }),
    ],
    [
      'stop strings',
      'chat',
      bytes => bodyOf('chat', 'a-chat', 'x', { stop: ['a'.repeat(bytes / 2), 'b'.repeat(bytes / 2)] }),
    ],
  ]
  // The item without its text: the gateway restores what it keeps for the id.
  const thin = kept.reasoning && { type: 'reasoning', id: kept.reasoning.id, summary: [] }
  const repeated = (model: string, items: unknown[]) => (bytes: number) => ({
    model,
    store: false,
    input: [
      ...times(Math.min(bytes, REPEATED_BYTES), JSON.stringify(items).length, () => items).flat(),
      { role: 'user', content: 'x' },
    ],
  })
  if (thin) all.push(['one reasoning handle, repeated', 'responses', repeated('a-responses', [thin])])
  if (kept.search.length > 0) all.push(['one search, repeated', 'responses', repeated('a-chat', kept.search)])
  return all
}

export async function large({ random, breaches, budgetMs, simulator }: Part): Promise<Result> {
  const key = keyOf('large')
  const options = { upstream: simulator, organizations: { large: 'custom' } }
  let begin = performance.now()
  let cases = 0
  let worstFactor = 0
  let worstFixed = 0
  let loopMs = 0
  let residentMib = 0
  let missing = ''
  // The first size of each shape, also where that takes longer than planned. The next size follows while there is time.
  for (const [i, bytes] of [16 * MIB, 4 * MIB, 30 * MIB, MIB].entries()) {
    const late = () => performance.now() - begin > budgetMs * (i === 0 ? 3 : 1)
    if (late()) break
    // A heap that has grown for one case has room for the next, so each size begins with a new gateway.
    const gateway = await Gateway.start(options)
    const kept = await stored(gateway, key)
    missing = `${kept.reasoning ? '' : '; no reasoning handle to repeat'}${kept.search.length ? '' : '; no search to repeat'}`
    // Threads, tables and pages of code are there before the first case.
    for (const [, surface, make] of shapes(random, kept)) await send(gateway.url, PATHS[surface], key, make(MIB / 32))
    await send(gateway.url, PATHS.chat, key, bodyOf('chat', 'a-chat', random.text(2 * MIB)))
    const watch = new Watch(gateway)
    if (i === 0) begin = performance.now()
    for (const [name, surface, make] of random.shuffled(shapes(random, kept))) {
      if (late() || !gateway.alive) break
      const body = Buffer.from(JSON.stringify(make(bytes)))
      await watch.look()
      watch.reset()
      const before = watch.resident
      const answer = await send(gateway.url, PATHS[surface], key, body)
      await watch.look()
      cases++
      const taken = watch.peak - before
      const factor = (taken - MEMORY_FIXED_MIB * MIB) / body.length
      const what = `${name}, ${(body.length / MIB).toFixed(1)} MiB`
      judge(PART, breaches, what, answer)
      if (name.endsWith('repeated') && answer.status === 200) breaches.add(PART, 'uncounted', name, what)
      if (watch.loopMs > LOOP_MS)
        breaches.add(PART, 'loop', name, `${what}: ${Math.round(watch.loopMs)} ms (${answer.status})`)
      if (factor > MEMORY_FACTOR)
        breaches.add(PART, 'memory', name, `${what}: ${Math.round(taken / MIB)} MiB (${answer.status})`)
      if (bytes > 8 * MIB) worstFactor = Math.max(worstFactor, factor)
      else worstFixed = Math.max(worstFixed, taken / MIB)
    }
    const figures = await finish(PART, gateway, watch, breaches, false)
    loopMs = Math.max(loopMs, figures.loopMs)
    residentMib = Math.max(residentMib, figures.residentMib)
  }
  const small = worstFixed > 0 ? `, ${Math.round(worstFixed)} MiB for up to 4 MiB` : ''
  const note = `memory at worst ${MEMORY_FIXED_MIB} MiB + ${worstFactor.toFixed(1)} × the size${small}${missing}`
  return { part: PART, cases, note, loopMs, residentMib }
}

/** What the gateway keeps for a reply is replayed by its id: the id is small, what is kept need not be. */
async function stored(gateway: Gateway, key: string): Promise<{ reasoning: any; search: any[] }> {
  const items = async (model: string, text: string, more: object): Promise<any[]> => {
    const answer = await send(
      gateway.url,
      PATHS.responses,
      key,
      bodyOf('responses', model, text, { include: ['reasoning.encrypted_content'], ...more }),
    )
    return answer.status === 200 ? JSON.parse(answer.text).output : []
  }
  const reasoned = await items('a-responses', '[[sim: reason 2000; tokens 3]] x', {
    reasoning: { effort: 'high', summary: 'auto' },
    max_output_tokens: 60_000,
  })
  const searched = await items('a-chat', '[[sim: call web_search {"query":"x"}; tokens 3]] x', {
    tools: [{ type: 'web_search' }],
  })
  return {
    reasoning: reasoned.find(item => item.type === 'reasoning'),
    search: searched.filter(item => item.type === 'web_search_call'),
  }
}
