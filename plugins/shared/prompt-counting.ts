/** What plugins that count prompts have in common: the threads that do it, and the refusal of too long a prompt. */
import { deny, type Exchange, type Reply } from '../../core/plugin.ts'
import { MeterBusy } from '../../meter/index.ts'
import { disconnection } from './disconnection.ts'
import { identity, limitsCheck } from './slots.ts'

/**
 * Work that threads do for a request, for as long as its client is there.
 * @param busy the message of the refusal when no thread is there for it
 */
export async function inThreads<T>(
  x: Exchange,
  work: (signal: AbortSignal, owner: string) => Promise<T>,
  busy: string,
): Promise<T | Reply> {
  const refused = await x.peek(limitsCheck)?.(x)
  if (refused) return refused
  try {
    return await work(disconnection(x), x.get(identity).organization.id)
  } catch (error) {
    if (error instanceof MeterBusy) return deny('route_capacity', { message: busy })
    throw error
  }
}

/** @param how words behind the message's form, which clients read the figures from (MOD-6) */
export function tooLong(param: string, tokens: number, maximum: number, how = ''): Reply {
  return deny('context_length_exceeded', {
    param,
    message: `prompt is too long: ${tokens} tokens > ${maximum} maximum${how}`,
    details: { context_window: maximum },
  })
}
