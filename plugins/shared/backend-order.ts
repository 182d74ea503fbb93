/**
 * In which order the backends of a model are tried, and which of them are alike. What is known before a request comes
 * is kept with the model, so that a request to a model with a thousand backends costs little more than to one with ten.
 */
import { hash } from 'node:crypto'
import type { Backend } from '../../core/ports/dialect.ts'
import { appendAll } from '../../core/tools/append.ts'

/**
 * A node of the tree of a group has at most this many children, one for each value of half a byte of a digest, so that a
 * choice takes at most this many digests a level.
 */
const WIDTH = 16
/** More kinds of requests than this are not expected of one model; the orders are then made anew. */
const MOST_ORDERS = 64

/** Backends of which a request can be served by all or by none: they differ in place, name and weight alone. */
export interface Alike {
  readonly members: readonly Backend[]
  /** Stands for all of them. */
  readonly one: Backend
}

/** The backends of one model. */
export class Choices {
  readonly alike: readonly Alike[]
  readonly #backends: readonly Backend[]
  readonly #of = new Map<Backend, Alike>()
  /** By the places of the `Alike` that it has, as text. */
  readonly #orders = new Map<string, BackendOrder>()

  constructor(backends: readonly Backend[]) {
    this.#backends = backends
    const sets = new Map<string, Backend[]>()
    for (const backend of backends) {
      const key = traits(backend)
      const set = sets.get(key)
      if (set) set.push(backend)
      else sets.set(key, [backend])
    }
    this.alike = [...sets.values()].map(members => ({ members, one: members[0]! }))
    for (const each of this.alike) for (const member of each.members) this.#of.set(member, each)
  }

  /** Those that are like a backend of the model. */
  of(backend: Backend): Alike {
    return this.#of.get(backend)!
  }

  /** The order of these; default: of all. */
  order(chosen: ReadonlySet<Alike> | null = null): BackendOrder {
    const key = chosen === null ? '' : this.alike.map(each => (chosen.has(each) ? '1' : '0')).join('')
    let order = this.#orders.get(key)
    if (!order) {
      if (this.#orders.size >= MOST_ORDERS) this.#orders.clear()
      const backends = chosen === null ? this.#backends : this.#backends.filter(each => chosen.has(this.of(each)))
      this.#orders.set(key, (order = new BackendOrder(backends)))
    }
    return order
  }
}

const kept = new WeakMap<object, Choices>()

/** Those of a model of the configuration. */
export function choicesOf(model: { readonly backends: readonly Backend[] }): Choices {
  let choices = kept.get(model)
  if (!choices) kept.set(model, (choices = new Choices(model.backends)))
  return choices
}

/** All that decides whether a backend can serve a request. */
function traits(backend: Backend): string {
  const { id, provider, baseUrl, apiKey, keyHeader, weight, group, ...rest } = backend
  return JSON.stringify(rest, (_, value) => (value instanceof Set ? [...value] : value))
}

/**
 * Orders backends. A group takes the place of its first member in the configuration. Within a group the order comes
 * from weighted rendezvous hashing of the affinity key: a conversation keeps its backend, and the prompt cache there,
 * when other backends are added or removed. A large group is a tree, by the digests of its members' ids, whose nodes are
 * ordered in the same way by the weights below them.
 */
export class BackendOrder {
  readonly #places: readonly (Backend | Node)[]
  readonly #length: number

  constructor(backends: readonly Backend[]) {
    const groups = new Map<string, Backend[]>()
    for (const backend of backends)
      if (backend.group !== undefined) {
        const members = groups.get(backend.group)
        if (members) members.push(backend)
        else groups.set(backend.group, [backend])
      }
    const seen = new Set<string>()
    this.#places = backends.flatMap((backend): (Backend | Node)[] => {
      const { group } = backend
      if (group === undefined) return [backend]
      if (seen.has(group)) return []
      seen.add(group)
      const members = groups.get(group)!.filter(({ weight }) => weight > 0)
      return members.length === 0 ? [] : [treeOf(group, members)]
    })
    this.#length = this.#places.reduce((sum, place) => sum + ('id' in place ? 1 : place.all.length), 0)
  }

  /** @returns a list of the caller's own */
  by(key: string): Backend[] {
    const ordered: Backend[] = []
    for (const place of this.#places) {
      if ('id' in place) ordered.push(place)
      else if (this.#length === 1) ordered.push(place.all[0]!)
      else walk(place, key, ordered)
    }
    return ordered
  }
}

interface Node {
  /** What is digested with the key: a backend's id, or the path of a part of the tree. */
  readonly name: string
  readonly weight: number
  /** Its members, in the order of their digests. */
  readonly all: readonly Backend[]
  /** Empty for a single backend. */
  readonly children: readonly Node[]
}

function treeOf(group: string, members: readonly Backend[]): Node {
  const placed = members
    .map(backend => ({ backend, digest: hash('sha256', backend.id, 'buffer') }))
    .sort((a, b) => a.digest.compare(b.digest))
  const grow = (name: string, part: typeof placed, level: number): Node => {
    const all = part.map(({ backend }) => backend)
    const weight = all.reduce((sum, backend) => sum + backend.weight, 0)
    // The digests of one backend that is listed many times differ nowhere.
    if (all.length <= WIDTH || level === 2 * placed[0]!.digest.length) {
      const children = all.map(one => ({ name: one.id, weight: one.weight, all: [one], children: [] }))
      return { name, weight, all, children }
    }
    const parts = Map.groupBy(part, ({ digest }) => halfByte(digest, level))
    const children = [...parts].map(([at, own]) => grow(`${name}\0${at}`, own, level + 1))
    return { name, weight, all, children }
  }
  return grow(group, placed, 0)
}

const halfByte = (digest: Buffer, level: number) => (digest[level >> 1]! >> (level % 2 === 0 ? 4 : 0)) & 15

/**
 * The members of a node: those of its first child in their order, then those of the others, which are needed only when
 * all of these are out. They begin at a place that depends on the key, so that not all keys go to the same one.
 */
function walk(node: Node, key: string, ordered: Backend[]): void {
  const { children } = node
  if (children.length === 0) return void ordered.push(node.all[0]!)
  const scores = new Map(children.map(child => [child, score(child, key)]))
  const sorted = [...children].sort((a, b) => scores.get(b)! - scores.get(a)!)
  if (node.all.length === children.length)
    return void appendAll(
      ordered,
      sorted.map(({ all }) => all[0]!),
    )
  const [first, ...others] = sorted
  walk(first!, key, ordered)
  const turn = scores.get(first!)! % 1
  for (const { all } of others) {
    const from = Math.floor(turn * all.length)
    appendAll(ordered, all.slice(from))
    appendAll(ordered, all.slice(0, from))
  }
}

/** Weighted rendezvous score: -weight / ln(u), with u uniform in (0, 1) from a digest of name and key. */
function score({ name, weight }: Node, key: string): number {
  const digest = hash('sha256', `${name}\0${key}`, 'buffer')
  const u = (digest.readUIntBE(0, 6) + 1) / (2 ** 48 + 2)
  return -weight / Math.log(u)
}
