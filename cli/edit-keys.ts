/** Edits `organizations` as text, so that everything else keeps its comments, order and layout (decision 40). */
import { isAlias, isMap, isScalar, isSeq, type Node, parseDocument, type YAMLMap } from 'yaml'
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
 * Sets the status of a key.
 * @returns the new text; null when the organization or the key is not in this text
 */
export function setKeyStatus(
  text: string,
  within: readonly string[],
  organization: string,
  id: string,
  status: string,
): string | null {
  const found = organizationNode(text, within, organization)
  const keys = found?.get('keys', true) as unknown
  if (!isSeq(keys)) return null
  const key = keys.items.find((item): item is YAMLMap => isMap(item) && item.get('id') === id)
  if (!key) return null
  const value = key.get('status', true) as unknown
  if (isScalar(value) && value.range) return text.slice(0, value.range[0]) + status + text.slice(value.range[1])
  return addMember(text, key, `status: ${status}`)
}

function organizationNode(text: string, within: readonly string[], organization: string): YAMLMap | null {
  const document = parseDocument(text)
  const node = document.getIn([...within, organization], true) as unknown
  const target = isAlias(node) ? node.resolve(document) : node
  return isMap(target) ? target : null
}
