/**
 * The routes of gateway.yaml: exact paths, or prefixes written `/path/*`. The bytes of a path are matched as they
 * arrived, never normalised.
 */
import type { Chain } from '../core/chain.ts'
import type { Surface } from '../core/surface.ts'

export interface Route {
  /** The label in logs and metrics, e.g. `POST /v1/responses`. */
  readonly name: string
  readonly method: string
  readonly path: string
  readonly surface: Surface | undefined
  readonly chain: Chain
}

export class Router {
  readonly routes: readonly Route[]
  readonly #exact = new Map<string, Map<string, Route>>()
  readonly #prefixes: { prefix: string; methods: Map<string, Route> }[] = []

  constructor(routes: readonly Route[]) {
    this.routes = routes
    for (const route of routes) {
      if (route.path.endsWith('/*')) {
        const prefix = route.path.slice(0, -1)
        let entry = this.#prefixes.find(p => p.prefix === prefix)
        if (!entry) this.#prefixes.push((entry = { prefix, methods: new Map() }))
        if (!entry.methods.has(route.method)) entry.methods.set(route.method, route)
      } else {
        let methods = this.#exact.get(route.path)
        if (!methods) this.#exact.set(route.path, (methods = new Map()))
        if (!methods.has(route.method)) methods.set(route.method, route)
      }
    }
    this.#prefixes.sort((a, b) => b.prefix.length - a.prefix.length)
  }

  /** The routes of a path by method; undefined when no route has the path. */
  methods(path: string): ReadonlyMap<string, Route> | undefined {
    const exact = this.#exact.get(path)
    if (exact) return exact
    for (const { prefix, methods } of this.#prefixes) if (path.startsWith(prefix)) return methods
    return undefined
  }
}

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
