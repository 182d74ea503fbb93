/**
 * Capsules: the summaries of compactions as clients keep them, sealed with the gateway's secret for one organization. A
 * gateway keeps none of them.
 */
import {
  aroundCapsule,
  type CapsulePlace,
  keptTurns,
  lastCapsule,
  standIn,
  withCapsule,
} from '../../core/canon/compaction.ts'
import type { Conversation, Keeps } from '../../core/canon/conversation.ts'
import { deny, type Reply } from '../../core/plugin.ts'
import { Sealer } from '../../core/tools/sealer.ts'

/** The beginning of a capsule as it is sent; base64url follows. */
const PREFIX = 'cmp_eba1_'
/** Characters of the longest capsule that is looked at. That of the longest summary has a quarter of it at most. */
const LONGEST = 8 << 20

interface Contents {
  summary: string
  keeps: Keeps
}

export class Capsules {
  readonly #sealer: Sealer

  constructor(secret: Uint8Array) {
    this.#sealer = new Sealer(secret, 'sluice capsule')
  }

  seal(organization: string, { summary, keeps }: Contents): string {
    return PREFIX + Buffer.from(this.#sealer.seal(organization, { summary, keeps })).toString('base64url')
  }

  /** Null when it is not one of this gateway for the organization. */
  #open(organization: string, sealed: string): Contents | null {
    if (!sealed.startsWith(PREFIX) || sealed.length > LONGEST) return null
    return this.#sealer.open(organization, Buffer.from(sealed.slice(PREFIX.length), 'base64url')) as Contents | null
  }

  /**
   * The conversation with its last capsule opened, and without what the capsule stands for. Earlier capsules are among
   * that, so they need not be opened.
   * @returns the refusal of a capsule that is not this gateway's
   */
  open(organization: string, conversation: Conversation): Conversation | Reply {
    const place = lastCapsule(conversation.turns)
    if (!place) return conversation
    const { capsule, text } = place.text
    // The client sent the summary in clear.
    if (capsule.sealed === '') return replaced(conversation, place, { summary: text, keeps: capsule.keeps! })
    const contents = this.#open(organization, capsule.sealed)
    if (!contents) return foreign(capsule.path)
    if (capsule.claimed !== undefined && capsule.claimed !== contents.summary) return changed(capsule.path)
    return replaced(conversation, place, contents)
  }
}

function replaced(conversation: Conversation, place: CapsulePlace, { summary, keeps }: Contents): Conversation {
  const { before, after } = aroundCapsule(conversation.turns, place)
  const { claimed: _, ...capsule } = place.text.capsule
  const text = { ...place.text, text: standIn(summary), capsule: { ...capsule, keeps } }
  return withCapsule(conversation, keptTurns(before, keeps), text, after)
}

function foreign(path: string): Reply {
  return deny('invalid_value', {
    message: `'${path}' is no compaction of this service for your organization: another service or organization made it, it was changed, or the service's secret was. Remove the item and send the conversation that it stood for, or a summary as a message of the user.`,
    param: path,
  })
}

function changed(path: string): Reply {
  return deny('invalid_value', {
    message: `'${path}' holds another summary than 'content' beside it. Send the block as you got it, or leave encrypted_content out to send your own summary.`,
    param: path,
  })
}
