/**
 * Large bodies, one after the other: those that are expensive for their size. For each: how long the event loop was
 * blocked, and how much memory was taken beside the size.
 */
import { LOOP_MS, MEMORY_FACTOR } from './breaches.ts'
import {
  bodyOf,
  finish,
  Gateway,
  judge,
  keyOf,
  MIB,
  PATHS,
  type Part,
  type Random,
  type Result,
  type Surface,
  send,
  Watch,
} from './kit.ts'

const PART = 'large'
/** A heap grows in steps, so that less growth than this says nothing about a factor. */
const HEAP_STEP = 64 * MIB

/** What is restored for a handle is large, so that a small body of handles is enough. */
const REPEATED_BYTES = 128 * 1024

type Shape = [name: string, surface: Surface, make: (bytes: number) => object]

function shapes(random: Random, kept: { reasoning: any; search: any[] }): Shape[] {
  const user = (content: unknown) => ({ role: 'user', content })
  const times = <T>(bytes: number, each: number, make: (i: number) => T) =>
    Array.from({ length: Math.floor(bytes / each) }, (_, i) => make(i))
  const all: Shape[] = [
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
  const gateway = await Gateway.start({ upstream: simulator, organizations: { large: 'custom' } })
  const key = keyOf('large')
  // What the gateway keeps for a reply is replayed by its id: the id is small, what is kept need not be.
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
  const kept = {
    reasoning: reasoned.find(item => item.type === 'reasoning'),
    search: searched.filter(item => item.type === 'web_search_call'),
  }

  const watch = new Watch(gateway)
  const begin = performance.now()
  let cases = 0
  let worstFactor = 0
  // The first size of each shape, also where that takes longer than planned. The next size follows while there is time.
  rounds: for (const [i, bytes] of [4 * MIB, 16 * MIB, MIB, 30 * MIB].entries()) {
    for (const [name, surface, make] of random.shuffled(shapes(random, kept))) {
      if (performance.now() - begin > budgetMs * (i === 0 ? 3 : 1)) break rounds
      const body = Buffer.from(JSON.stringify(make(bytes)))
      await watch.look()
      watch.reset()
      const before = watch.resident
      const answer = await send(gateway.url, PATHS[surface], key, body)
      await watch.look()
      cases++
      const factor = (watch.peak - before) / body.length
      const what = `${name}, ${(body.length / MIB).toFixed(1)} MiB`
      judge(PART, breaches, what, answer)
      if (name.endsWith('repeated') && answer.status === 200) breaches.add(PART, 'uncounted', name, what)
      if (watch.loopMs > LOOP_MS)
        breaches.add(PART, 'loop', name, `${what}: ${Math.round(watch.loopMs)} ms (${answer.status})`)
      if (watch.peak - before > HEAP_STEP && factor > MEMORY_FACTOR)
        breaches.add(PART, 'memory', name, `${what}: ${factor.toFixed(1)} times (${answer.status})`)
      if (body.length > 3 * MIB) worstFactor = Math.max(worstFactor, factor)
      if (!gateway.alive) break rounds
    }
  }
  const note = `${worstFactor.toFixed(1)} × the size in memory at worst (of 4 MiB and more)${kept.reasoning ? '' : '; no reasoning handle to repeat'}${kept.search.length ? '' : '; no search to repeat'}`
  return { part: PART, cases, note, ...(await finish(PART, gateway, watch, breaches, false)) }
}
