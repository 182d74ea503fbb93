/** Edits `organizations` as text, so that everything else keeps its comments, order and layout (decision 40). */
import { isAlias, isMap, isScalar, isSeq, type Node, parse, parseDocument, type YAMLMap, type YAMLSeq } from 'yaml'
import type { Value } from '../config/stored.ts'
import { addItem, addMember, removeItem, setEmpty } from './edit-yaml.ts'

type NewKey = { id: string; sha256: string } & Record<string, unknown>

/**
 * Adds a key to an organization.
 * @param within path of the mapping of organizations in this text; empty when that mapping is the whole text
 * @returns the new text; null when the organization is not in this text
 */
export function addKey(text: string, within: readonly string[], organization: string, key: NewKey): string | null {
  const found = organizationNode(text, within, organization)
  if (!found) return null
  const { id, sha256, ...rest } = key
  const members = Object.entries(rest).map(([name, value]) => `${name}: ${asYaml(value)}`)
  // Always in quotes: a digest may look like a number.
  const entry = `{ ${[`id: ${id}`, `sha256: "${sha256}"`, ...members].join(', ')} }`
  const pair = found.items.find(item => isScalar(item.key) && item.key.value === 'keys')
  const keys = pair?.value as Node | null | undefined
  if (isSeq(keys) && keys.items.length > 0) return addItem(text, keys, entry)
  if (pair && keys?.range) return setEmpty(text, keys, `[${entry}]`)
  return addMember(text, found, `keys: [${entry}]`)
}

/**
 * Sets a member of a key by its path. Null is written as `~`, which means that it is not set.
 * @returns the new text; null when the organization or the key is not in this text
 */
export function setKeyMember(
  text: string,
  within: readonly string[],
  organization: string,
  id: string,
  path: readonly string[],
  value: Value,
): string | null {
  const found = keyNode(text, within, organization, id)
  return found && setIn(text, found.keys.items[found.index] as YAMLMap, path, value)
}

/** The members of a key as they are written; null when the organization or the key is not in this text. */
export function readKey(
  text: string,
  within: readonly string[],
  organization: string,
  id: string,
): Record<string, unknown> | null {
  const found = keyNode(text, within, organization, id)
  return found && (found.keys.items[found.index] as YAMLMap).toJS(parseDocument(text))
}

/** Removes a key. @returns the new text; null when the organization or the key is not in this text */
export function removeKey(text: string, within: readonly string[], organization: string, id: string): string | null {
  const found = keyNode(text, within, organization, id)
  return found && removeItem(text, found.keys, found.index)
}

function keyNode(
  text: string,
  within: readonly string[],
  organization: string,
  id: string,
): { keys: YAMLSeq; index: number } | null {
  const keys = organizationNode(text, within, organization)?.get('keys', true) as unknown
  if (!isSeq(keys)) return null
  const index = keys.items.findIndex(item => isMap(item) && item.get('id') === id)
  return index < 0 ? null : { keys, index }
}

/**
 * Sets a member of an organization by its path, such as `limits`, `requests_per_minute`. Null is written as `~`, which
 * means that it is not set.
 * @returns the new text; null when the organization is not in this text
 */
export function setMember(
  text: string,
  within: readonly string[],
  organization: string,
  path: readonly string[],
  value: Value,
): string | null {
  const found = organizationNode(text, within, organization)
  return found && setIn(text, found, path, value)
}

function setIn(text: string, map: YAMLMap, [name, ...rest]: readonly string[], value: Value): string {
  const node = map.get(name, true) as Node | undefined
  if (rest.length > 0 && isMap(node) && node.items.length > 0) return setIn(text, node, rest, value)
  const written = rest.reduceRight((inner, step) => `{ ${step}: ${inner} }`, asYaml(value))
  if (!node?.range) return addMember(text, map, `${name}: ${written}`)
  const [start, end] = node.range
  return start === end ? setEmpty(text, node, written) : text.slice(0, start) + written + text.slice(end)
}

/** A plain word stays as it is; everything else is JSON, which YAML reads as well. */
function asYaml(value: unknown): string {
  if (value === null) return '~'
  return typeof value === 'string' && typeof parse(value) === 'string' && /^[\w./:-]+$/.test(value)
    ? value
    : JSON.stringify(value)
}

function organizationNode(text: string, within: readonly string[], organization: string): YAMLMap | null {
  const document = parseDocument(text)
  const node = document.getIn([...within, organization], true) as unknown
  const target = isAlias(node) ? node.resolve(document) : node
  return isMap(target) ? target : null
}
