/**
 * The routes of gateway.yaml: exact paths, or prefixes written `/path/*`. The bytes of a path are matched as they
 * arrived, never normalised.
 */
import type { Chain } from '../core/engine/chain.ts'
import type { Surface } from '../core/ports/surface.ts'

export interface Route {
  /** The label in logs and metrics, e.g. `POST /v1/responses`. */
  readonly name: string
  readonly method: string
  readonly path: string
  readonly surface: Surface | undefined
  readonly chain: Chain
}

type Methods = Map<string, Route>

/** The routes of one prefix, `/path/`. */
interface Prefix {
  readonly prefix: string
  /** The paths below it that its terminals name (`Plugin.below`). */
  readonly named: Named[]
  /** The routes whose terminal names none: they take whatever comes. */
  readonly open: Methods
}

interface Named {
  /** For messages, e.g. `/v1/responses/{id}`. */
  readonly template: string
  readonly test: RegExp
  readonly methods: Methods
}

export class Router {
  readonly routes: readonly Route[]
  readonly #exact = new Map<string, Methods>()
  readonly #prefixes: Prefix[] = []

  constructor(routes: readonly Route[]) {
    this.routes = routes
    for (const route of routes) {
      if (route.path.endsWith('/*')) this.#addPrefix(route)
      else {
        let methods = this.#exact.get(route.path)
        if (!methods) this.#exact.set(route.path, (methods = new Map()))
        addTo(methods, route.method, route)
      }
    }
    this.#prefixes.sort((a, b) => b.prefix.length - a.prefix.length)
    for (const { named, open } of this.#prefixes)
      for (const { methods } of named) for (const [method, route] of open) addTo(methods, method, route)
  }

  #addPrefix(route: Route): void {
    const prefix = route.path.slice(0, -1)
    let entry = this.#prefixes.find(p => p.prefix === prefix)
    if (!entry) this.#prefixes.push((entry = { prefix, named: [], open: new Map() }))
    const below = Object.entries(belowOf(route) ?? {}).filter(
      ([method]) => route.method === method || route.method === 'ANY',
    )
    if (below.length === 0) return addTo(entry.open, route.method, route)
    for (const [method, patterns] of below) {
      for (const pattern of patterns) {
        const template = prefix + pattern
        let named = entry.named.find(n => n.template === template)
        if (!named) entry.named.push((named = { template, test: testOf(template), methods: new Map() }))
        addTo(named.methods, method, route)
      }
    }
  }

  /** The routes of a path by method; undefined when no route has the path. */
  methods(path: string): ReadonlyMap<string, Route> | undefined {
    const exact = this.#exact.get(path)
    if (exact) return exact
    for (const { prefix, named, open } of this.#prefixes) {
      if (!path.startsWith(prefix)) continue
      for (const { test, methods } of named) if (test.test(path)) return methods
      return open.size > 0 ? open : undefined
    }
    return undefined
  }

  /**
   * For a path that no route has: the nearest paths above it and what is offered there and below, e.g. `GET, DELETE
   * /v1/responses/{id}`, at most `MAX_NEAR`. Routes to an operator's own targets are not named. Empty: nothing is near.
   */
  near(path: string): Near {
    const offered: [template: string, methods: Methods][] = [...this.#exact]
    for (const { named } of this.#prefixes) for (const { template, methods } of named) offered.push([template, methods])
    const publicly = offered.filter(([, methods]) => [...methods.values()].some(isPublic))
    let at = path.length
    for (let level = 0; level < MAX_LEVELS && (at = path.lastIndexOf('/', at - 1)) > 0; level++) {
      const above = path.slice(0, at)
      const found = this.methods(above)
      if (!found) continue
      const top = publicly.find(([, methods]) => methods === found)?.[0]
      if (top === undefined) return NOTHING_NEAR
      const there = publicly.filter(([template]) => template === top || template.startsWith(`${top}/`))
      const chain = [...found.values()].find(isPublic)?.chain
      return {
        chain,
        paths: there
          .slice(0, MAX_NEAR)
          .map(([template, methods]) => `${[...methods.keys()].join(', ')} ${template.replaceAll('...}', '}')}`),
      }
    }
    return NOTHING_NEAR
  }
}

/** What `Router.near` finds. */
export interface Near {
  readonly paths: readonly string[]
  /** The chain of the nearest path, for the headers of the refusal. */
  readonly chain: Chain | undefined
}
const NOTHING_NEAR: Near = { paths: [], chain: undefined }
const MAX_NEAR = 8
/** How far above a path is looked: each level costs as much as finding a route, and a path may have 8,000. */
const MAX_LEVELS = 4

function addTo(methods: Methods, method: string, route: Route): void {
  if (!methods.has(method)) methods.set(method, route)
}

function belowOf({ chain }: Route) {
  return chain.links[chain.terminal]?.plugin.below
}

function isPublic(route: Route): boolean {
  return route.surface !== undefined || belowOf(route) !== undefined
}

function testOf(template: string): RegExp {
  const source = template
    .split('/')
    .map(part => (/^\{\w+\}$/.test(part) ? '[^/]+' : /^\{\w+\.{3}\}$/.test(part) ? '[^/]+(?:/[^/]+)*' : literal(part)))
  return new RegExp(`^${source.join('/')}$`)
}

const literal = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')

/** The route for a method: the route of that method, for HEAD else that of GET, else that of ANY. */
export function routeFor(methods: ReadonlyMap<string, Route>, method: string): Route | undefined {
  return methods.get(method) ?? (method === 'HEAD' ? methods.get('GET') : undefined) ?? methods.get('ANY')
}

/** The `Allow` header of a path (RFC 9110 section 10.2.1). */
export function allowed(methods: ReadonlyMap<string, Route>): string {
  const names = new Set(methods.keys())
  if (names.has('GET')) names.add('HEAD')
  names.add('OPTIONS')
  return [...names].join(', ')
}
