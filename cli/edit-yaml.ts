/**
 * Edits YAML as text, at the positions of its nodes, so that everything else keeps its comments, order and layout
 * (decision 40).
 */
import type { Node, YAMLMap, YAMLSeq } from 'yaml'

/** Replaces an empty value (`[]`, `~`, or nothing after the colon) by `value`. */
export function setEmpty(text: string, node: Node, value: string): string {
  const [start, end] = node.range!
  const gap = /\s/.test(text[start - 1] ?? '') ? '' : ' '
  return `${text.slice(0, start)}${gap}${value}${text.slice(end)}`
}

/** Inserts `entry` before item `index`, in the style (block or flow) of the sequence. */
export function insertItem(text: string, sequence: YAMLSeq, index: number, entry: string): string {
  const start = (sequence.items[index] as Node).range![0]
  if (sequence.flow) return `${text.slice(0, start)}${entry}, ${text.slice(start)}`
  const line = text.lastIndexOf('\n', start - 1) + 1
  return `${text.slice(0, line)}${lineIndent(text, start)}- ${entry}\n${text.slice(line)}`
}

/** Adds `entry` after the last item, in the style of the sequence. */
export function addItem(text: string, sequence: YAMLSeq, entry: string): string {
  const last = sequence.items.at(-1) as Node
  const end = last.range![1]
  if (sequence.flow) return `${text.slice(0, end)}, ${entry}${text.slice(end)}`
  const indent = lineIndent(text, (sequence.items[0] as Node).range![0])
  const at = lineEnd(text, end)
  return `${text.slice(0, at)}\n${indent}- ${entry}${text.slice(at)}`
}

/** Removes item `index`; of a block sequence with its lines and the comments at their ends. */
export function removeItem(text: string, sequence: YAMLSeq, index: number): string {
  const items = sequence.items as Node[]
  const [start, end] = items[index]!.range!
  if (items.length === 1) {
    const [first, last] = sequence.range!
    const value = `${text.slice(0, sequence.flow ? first : text.lastIndexOf('-', start - 1))}[]`
    return value + text.slice(sequence.flow ? last : lineEnd(text, end))
  }
  if (sequence.flow) {
    // With the comma behind it, or before it when it is the last.
    const next = items[index + 1]
    if (next) return text.slice(0, start) + text.slice(next.range![0])
    return text.slice(0, items[index - 1]!.range![1]) + text.slice(end)
  }
  const line = text.lastIndexOf('\n', text.lastIndexOf('-', start - 1)) + 1
  const after = lineEnd(text, end)
  return text.slice(0, line) + text.slice(text[after] === '\r' ? after + 2 : after + 1)
}

/** Adds `member` (`key: value`) after the last member, in the style of the mapping. */
export function addMember(text: string, map: YAMLMap, member: string): string {
  const last = map.items.at(-1)
  const value = last?.value as Node | null | undefined
  const key = last?.key as Node | undefined
  if (map.flow) {
    const end = value?.range?.[1] ?? key?.range?.[1]
    const at = end ?? map.range![0] + 1
    return `${text.slice(0, at)}${last ? ',' : ''} ${member}${last ? '' : ' '}${text.slice(at)}`
  }
  const first = (map.items[0]!.key as Node).range![0]
  const column = first - (text.lastIndexOf('\n', first - 1) + 1)
  const at = lineEnd(text, value?.range?.[1] ?? key!.range![1])
  return `${text.slice(0, at)}\n${' '.repeat(column)}${member}${text.slice(at)}`
}

/**
 * Offset of the end of the line that holds `offset`, after a comment on it. An offset at the start of a line counts to
 * the line before.
 */
function lineEnd(text: string, offset: number): number {
  const from = text[offset - 1] === '\n' ? offset - 1 : offset
  const end = text.indexOf('\n', from)
  const at = end < 0 ? text.length : end
  return text[at - 1] === '\r' ? at - 1 : at
}

function lineIndent(text: string, offset: number): string {
  const start = text.lastIndexOf('\n', offset - 1) + 1
  return /^ */.exec(text.slice(start, offset))![0]
}
