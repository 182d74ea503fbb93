/**
 * Maps tool names to names that a provider accepts, and back (TOOL-3, wire.md F.2).
 *
 * Clients may declare any name of 1 to 1024 characters, also in namespaces. Providers accept a small alphabet and 64
 * or 128 characters. A name that fits is sent unchanged. Any other becomes an alias with a short hash. The alias is
 * the same in every turn and on every instance, because the prompt caches of providers depend on the tool list.
 *
 * Two tools never share an upstream name: each new name is checked against all names that are taken, and a collision
 * is resolved by another hash with a salt. Declared tools get their names before the tools of history, and plain
 * names before those in namespaces, so that a collision changes the less common name.
 */
import { createHash } from 'node:crypto'
import type { Tool } from '../core/canon/conversation.ts'

/**
 * The rule of a provider for function names. `max` is in characters. Every alias consists of [A-Za-z0-9_-] and starts
 * with a letter or `_`.
 */
export interface NameRule {
  /** Matches a whole valid name. It must not backtrack, because it reads client text. */
  readonly pattern: RegExp
  readonly max: number
}

/** OpenAI's function name rule (Chat Completions and Responses). */
export const OPENAI_NAMES: NameRule = { pattern: /^[A-Za-z0-9_-]{1,64}$/, max: 64 }
/** Anthropic's tool name rule. */
export const ANTHROPIC_NAMES: NameRule = { pattern: /^[A-Za-z0-9_-]{1,128}$/, max: 128 }
/** Gemini's FunctionDeclaration name rule. */
export const GEMINI_NAMES: NameRule = { pattern: /^[A-Za-z_][A-Za-z0-9_.:-]{0,63}$/, max: 64 }

/** A tool as the client declared it. */
export interface DeclaredName {
  readonly name: string
  readonly namespace?: string
  /** Native tools of the client count as functions. */
  readonly kind: 'function' | 'custom'
}

/**
 * The number of hexadecimal digits of the hash in an alias: 40 bits. A collision, which the salt would resolve, needs
 * about a million aliased tools.
 */
const HASH_DIGITS = 10

class NameMaps {
  /** Upstream name → declared tool. */
  readonly declared = new Map<string, DeclaredName>()
  /** Plain name → upstream name. */
  readonly plain = new Map<string, string>()
  /** Namespace and name → upstream name. */
  readonly flattened = new Map<string, string>()
}

/** The tool names of one request, in both directions. */
export class ToolNames {
  readonly #rule: NameRule
  /** Undefined in most requests: they have no tools. */
  #maps: NameMaps | undefined

  constructor(rule: NameRule, reserved: Iterable<string> = []) {
    this.#rule = rule
    for (const name of reserved) (this.#maps ??= new NameMaps()).declared.set(name, { name, kind: 'function' })
  }

  /**
   * The upstream name of a tool. A tool that was not declared (history may name tools that no longer exist) gets a
   * name now and keeps it.
   */
  toUpstream(name: string, namespace?: string): string {
    const known =
      namespace === undefined ? this.#maps?.plain.get(name) : this.#maps?.flattened.get(flatKey(name, namespace))
    return known ?? this.add({ name, namespace, kind: 'function' })
  }

  /**
   * The declared tool with an upstream name. A name that was never sent (models invent some) is returned as a
   * function of that name.
   */
  fromUpstream(alias: string): DeclaredName {
    return this.#maps?.declared.get(alias) ?? { name: alias, kind: 'function' }
  }

  /** Gives a tool its upstream name. A second call for the same tool returns the same name. */
  add(tool: DeclaredName): string {
    const { name, namespace } = tool
    const { declared, plain, flattened } = (this.#maps ??= new NameMaps())
    const map = namespace === undefined ? plain : flattened
    const key = namespace === undefined ? name : flatKey(name, namespace)
    const known = map.get(key)
    if (known !== undefined) return known
    const wanted = namespace === undefined ? name : `${namespace}__${name}`
    let upstream = wanted
    if (!this.#rule.pattern.test(wanted) || declared.has(wanted)) {
      let salt = 0
      do upstream = alias(wanted, key, salt++, this.#rule.max)
      while (declared.has(upstream))
    }
    map.set(key, upstream)
    declared.set(upstream, tool)
    return upstream
  }
}

/**
 * The names of all function, custom and native tools of a request.
 * @param reserved upstream names that no tool may take, e.g. the provider's own `web_search`
 */
export function aliasTools(tools: readonly Tool[], rule: NameRule, reserved?: Iterable<string>): ToolNames {
  const names = new ToolNames(rule, reserved)
  const later: DeclaredName[] = []
  for (const tool of tools) {
    if (tool.type === 'web_search') continue
    const kind = tool.type === 'custom' ? 'custom' : 'function'
    const namespace = tool.type === 'native' ? undefined : tool.namespace
    const declared: DeclaredName = { name: tool.name, namespace, kind }
    if (namespace === undefined && rule.pattern.test(tool.name)) names.add(declared)
    else later.push(declared)
  }
  for (const declared of later) names.add(declared)
  return names
}

/** A distinct key for each pair: the length tells `a` + `bc` from `ab` + `c`. */
function flatKey(name: string, namespace: string): string {
  return `${namespace.length}:${namespace}${name}`
}

function alias(wanted: string, key: string, salt: number, max: number): string {
  const hash = createHash('sha256').update(`${salt}\0${key}`, 'utf8').digest('hex').slice(0, HASH_DIGITS)
  const head = /^[A-Za-z_]/.test(wanted) ? '' : '_'
  // A name may have 1024 characters; only those that can remain are processed.
  const stem = (head + wanted.slice(0, max)).replace(/[^A-Za-z0-9_-]/g, '_').slice(0, max - HASH_DIGITS - 1)
  return `${stem}_${hash}`
}
