/** Edits `organizations` as text, so that everything else keeps its comments, order and layout (decision 40). */
import { isAlias, isMap, isScalar, isSeq, type Node, parse, parseDocument, type YAMLMap } from 'yaml'
import type { Value } from '../config/stored.ts'
import { addItem, addMember, setEmpty } from './edit-yaml.ts'

export interface NewKey {
  id: string
  sha256: string
  status: string
}

/**
 * Adds a key to an organization.
 * @param within path of the mapping of organizations in this text; empty when that mapping is the whole text
 * @returns the new text; null when the organization is not in this text
 */
export function addKey(text: string, within: readonly string[], organization: string, key: NewKey): string | null {
  const found = organizationNode(text, within, organization)
  if (!found) return null
  const entry = `{ id: ${key.id}, sha256: "${key.sha256}", status: ${key.status} }`
  const pair = found.items.find(item => isScalar(item.key) && item.key.value === 'keys')
  const keys = pair?.value as Node | null | undefined
  if (isSeq(keys) && keys.items.length > 0) return addItem(text, keys, entry)
  if (pair && keys?.range) return setEmpty(text, keys, `[${entry}]`)
  return addMember(text, found, `keys: [${entry}]`)
}

/**
 * Sets a member of a key.
 * @returns the new text; null when the organization or the key is not in this text
 */
export function setKeyMember(
  text: string,
  within: readonly string[],
  organization: string,
  id: string,
  member: string,
  value: string,
): string | null {
  const found = organizationNode(text, within, organization)
  const keys = found?.get('keys', true) as unknown
  if (!isSeq(keys)) return null
  const key = keys.items.find((item): item is YAMLMap => isMap(item) && item.get('id') === id)
  return key ? setIn(text, key, [member], value) : null
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
function asYaml(value: Value): string {
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
