/**
 * One organization tries ids, idempotency keys, handles and API keys of another one. It must get nothing, and a foreign
 * id must be answered exactly as one that does not exist.
 */

import type { Random } from '../random.ts'
import { bodyOf, finish, Gateway, judge, keyOf, lanes, PATHS, type Part, type Result, send, Watch } from './kit.ts'

const PART = 'tenants'
const CANARY = 'canarytextofalice'

/** Another character of the same kind at one place. */
function mutated(random: Random, id: string, from = 0): string {
  const at = from + random.below(id.length - from)
  const now = id[at]!
  const kind = /\d/.test(now)
    ? '0123456789'
    : /[a-f]/.test(now)
      ? 'abcdef'
      : /[A-Z]/.test(now)
        ? 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'
        : 'ghijklmnopqrstuvwxyz'
  const other = random.one([...kind].filter(character => character !== now))
  return id.slice(0, at) + other + id.slice(at + 1)
}

/** An answer without what differs between any two answers: ids, times, and the id that was asked for. */
const shape = (status: number, text: string, id: string): string =>
  `${status} ${text.replaceAll(id, 'ID').replaceAll(/"request_id":"[^"]*"/g, '')}`

export async function tenants({ random, breaches, budgetMs, simulator }: Part): Promise<Result> {
  const gateway = await Gateway.start({ upstream: simulator, organizations: { alice: 'custom', bob: 'custom' } })
  const watch = new Watch(gateway)
  const [alice, bob] = [keyOf('alice'), keyOf('bob')]
  const ask = (key: string, body: object, headers: Record<string, string> = {}) =>
    send(gateway.url, PATHS.responses, key, body, headers)

  const stored: string[] = []
  const handles: any[] = []
  const kept = new Map<string, { body: object; text: string }>()
  for (let i = 0; i < 10; i++) {
    const retained = await ask(
      alice,
      bodyOf('responses', 'a-responses', `[[sim: reason 1 tokens 9]] ${CANARY} ${i}`, {
        store: true,
        reasoning: { effort: 'low', summary: 'auto' },
      }),
    )
    if (retained.status === 200) {
      const { id, output } = JSON.parse(retained.text)
      stored.push(id)
      handles.push(...output.filter((item: any) => item.type === 'reasoning'))
    }
    const body = bodyOf('responses', 'a-chat', `${CANARY} ${i}`)
    const name = `order-${random.word(8)}`
    const once = await ask(alice, body, { 'idempotency-key': name })
    if (once.status === 200) kept.set(name, { body, text: once.text })
  }
  if (stored.length === 0 || kept.size === 0) throw new Error('nothing was stored to be probed')
  const unknownId = mutated(random, stored[0]!, 'resp_'.length + 4)
  const asBob = (id: string) => ask(bob, bodyOf('responses', 'a-responses', 'x', { previous_response_id: id }))
  const unknown = await asBob(unknownId)
  const expected = shape(unknown.status, unknown.text, unknownId)

  const kinds: Record<string, number> = { ids: 0, 'idempotency keys': 0, handles: 0, 'API keys': 0 }
  const probe: Record<string, () => Promise<void>> = {
    async ids() {
      const theirs = random.one(stored)
      const id = random.chance(0.5) ? theirs : mutated(random, theirs, 'resp_'.length)
      const answer = await asBob(id)
      judge(PART, breaches, id, answer)
      if (answer.status === 200) breaches.add(PART, 'tenant', 'a response was continued', id)
      else if (shape(answer.status, answer.text, id) !== expected && ![0, 429, 503].includes(answer.status))
        breaches.add(
          PART,
          'tenant',
          'a foreign id and an unknown one get different answers',
          `${expected} | ${shape(answer.status, answer.text, id)}`,
        )
    },
    async 'idempotency keys'() {
      const [name, { body, text }] = random.one([...kept])
      const answer = await ask(bob, body, { 'idempotency-key': name })
      judge(PART, breaches, name, answer)
      if (answer.text === text) breaches.add(PART, 'tenant', 'a kept reply was replayed', name)
    },
    async handles() {
      if (handles.length === 0) return
      const item = random.one(handles)
      const changed = random.chance(0.5) ? { ...item, id: mutated(random, item.id, 10) } : item
      const input = [changed, { role: 'user', content: 'x' }]
      const answer = await ask(bob, { model: 'a-responses', store: false, input })
      judge(PART, breaches, item.id, answer)
      if (answer.text.includes(CANARY)) breaches.add(PART, 'tenant', 'a handle gave the text of its owner', item.id)
    },
    async 'API keys'() {
      const key = random.one([
        mutated(random, alice),
        alice.slice(0, -1),
        `${alice}0`,
        alice.toUpperCase(),
        `${alice},${bob}`,
        `${bob} ${alice}`,
        random.word(alice.length),
      ])
      const answer = await send(gateway.url, '/v1/models', key, '', {}, 'GET')
      judge(PART, breaches, key, answer)
      if (answer.status === 200) breaches.add(PART, 'tenant', 'a key was accepted that nobody has', key)
    },
  }
  const cases = await lanes(24, performance.now() + budgetMs, async () => {
    const kind = random.one(Object.keys(probe))
    kinds[kind]!++
    await probe[kind]!()
  })
  // Alice still has what is hers.
  const own = await ask(alice, bodyOf('responses', 'a-responses', 'x', { previous_response_id: stored[0] }))
  if (own.status !== 200)
    breaches.add(PART, 'tenant', 'the owner lost a stored response', `${own.status} ${own.text.slice(0, 200)}`)
  const note = Object.entries(kinds)
    .map(([kind, n]) => `${n} ${kind}`)
    .join(', ')
  return { part: PART, cases, note, ...(await finish(PART, gateway, watch, breaches)) }
}
