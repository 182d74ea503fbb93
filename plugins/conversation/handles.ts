import type { Part } from '../../core/canon/conversation.ts'

/** The id under which private data of the part may be stored; undefined when there can be none. */
export function handleOf(part: Part): string | undefined {
  const id =
    part.type === 'call' || part.type === 'search' ? part.id : part.type === 'reasoning' ? part.handle : undefined
  return id !== undefined && isOurs(id) ? id : undefined
}

/** Only ids that the gateway made can have private data; others are not looked up. */
function isOurs(handle: string): boolean {
  return (
    handle.length <= 64 &&
    (handle.startsWith('call_eba1_') ||
      handle.startsWith('item_eba1_') ||
      handle.startsWith('hist_eba1_') ||
      handle.startsWith('call_eb2.'))
  )
}
