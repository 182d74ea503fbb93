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
  if (kept.reasoning)
    all.push([
      'one reasoning handle, repeated',
      'responses',
      bytes => ({
        model: 'a-responses',
        store: false,
        input: [...times(bytes / 4, JSON.stringify(kept.reasoning).length, () => kept.reasoning), user('x')],
      }),
    ])
  if (kept.search.length > 0)
    all.push([
      'one search, repeated',
      'responses',
      bytes => ({
        model: 'a-chat',
        store: false,
        input: [...times(bytes / 4, JSON.stringify(kept.search).length, () => kept.search).flat(), user('x')],
      }),
    ])
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
  const reasoned = await items('a-responses', '[[sim: reason 2 tokens 50; tokens 3]] x', {
    reasoning: { effort: 'low', summary: 'auto' },
  })
  const searched = await items('a-chat', '[[sim: call web_search {"query":"x"}; tokens 3]] x', {
    tools: [{ type: 'web_search' }],
  })
  const kept = {
    reasoning: reasoned.find(item => item.type === 'reasoning'),
    search: searched.filter(item => item.type === 'web_search_call'),
  }

  const watch = new Watch(gateway)
  const until = performance.now() + budgetMs
  let cases = 0
  let worstFactor = 0
  // The next size follows while there is time.
  rounds: for (const bytes of [4 * MIB, 16 * MIB, MIB, 30 * MIB]) {
    for (const [name, surface, make] of random.shuffled(shapes(random, kept))) {
      if (performance.now() > until) break rounds
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
      if (watch.loopMs > LOOP_MS)
        breaches.add(PART, 'loop', name, `${what}: ${Math.round(watch.loopMs)} ms (${answer.status})`)
      if (watch.peak - before > HEAP_STEP && factor > MEMORY_FACTOR)
        breaches.add(PART, 'memory', name, `${what}: ${factor.toFixed(1)} times (${answer.status})`)
      if (body.length > 3 * MIB) worstFactor = Math.max(worstFactor, factor)
      if (!gateway.alive) break rounds
    }
  }
  const note = `${worstFactor.toFixed(1)} × the size in memory at worst (of 4 MiB and more)${kept.reasoning ? '' : '; no reasoning handle to repeat'}${kept.search.length ? '' : '; no search to repeat'}`
  return { part: PART, cases, note, ...(await finish(PART, gateway, watch, breaches)) }
}
