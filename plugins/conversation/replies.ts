/** Response objects as their clients got them, sealed, for GET and DELETE of /v1/responses/{id} (RESP-6). */

import { loopTurns } from '../../core/engine/loop-turn.ts'
import type { MaybePromise, Store } from '../../core/ports/store.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { Sealer } from '../../core/tools/sealer.ts'
import type { Asked } from '../model-access/asked.ts'
import { hasEnded, largeChains, type Retained } from './memory.ts'

/** Says that a response is not known. One text for all reasons: nobody learns what another one has. */
export const notKnown = (id: string): string =>
  `The response${shown(id)} is not known: it was not stored ('store' was false, it did not come to its end, or it was larger than what is retained), has expired, was deleted, or is another organization's.`

/** The id of a response in a sentence; nothing where it is none. */
export function shown(id: string): string {
  return /^[\w.-]{1,80}$/.test(id) ? ` ${id}` : ''
}

/** A response object, and what is kept beside it. */
export interface Reply {
  /** JSON text; undefined for a response that can be continued and not be retrieved. */
  object: string | undefined
  /** What its request asked for; undefined in what 0.1.0 stored. */
  asked: Asked | undefined
  /**
   * How its stream was cut into events (`SentStream.events`); '' for a response that was not streamed. Undefined where a
   * release stored it that kept none: it may have been streamed.
   */
  events?: string | undefined
}

/**
 * What is kept beside it stands before the other members of the object, as base64url. A gateway of 0.1.0 that serves from
 * the same store sends it along as members that clients ignore; objects themselves begin with `id`.
 */
const ASKED = '{"asked":"'
const EVENTS = '{"events":"'

export class RetainedReplies {
  readonly #store: Store
  readonly #sealer: Sealer
  readonly #clock: Clock

  constructor(store: Store, secret: Uint8Array, clock: Clock) {
    this.#store = store
    this.#sealer = new Sealer(secret)
    this.#clock = clock
  }

  /** @param reply its `object` is JSON text of an object with members */
  keep(
    organization: string,
    id: string,
    { object, asked, events }: Reply & { object: string },
    ttlMs: number,
  ): MaybePromise<void> {
    let text = events === undefined ? object : before(object, EVENTS, events)
    if (asked) text = before(text, ASKED, Buffer.from(JSON.stringify(asked)).toString('base64url'))
    const sealed = this.#sealer.seal(organization, text)
    return this.#store.records.put(organization, 'reply', id, sealed, ttlMs, this.#clock.now())
  }

  /** Null when the organization has no such response that can be retrieved. */
  async get(organization: string, id: string): Promise<(Reply & { object: string }) | null> {
    const sealed = await this.#store.records.get(organization, 'reply', id, this.#clock.now())
    const text = sealed && (this.#sealer.open(organization, sealed) as string | null)
    if (text === null) return null
    const [rest, asked] = behind(text, ASKED)
    const [object, events] = behind(rest, EVENTS)
    return {
      object,
      asked: asked === undefined ? undefined : (JSON.parse(Buffer.from(asked, 'base64url').toString()) as Asked),
      events,
    }
  }

  /**
   * What was retained of the request of a response; null when the organization has no such response, or when it has
   * ended. A record may be as large as a request, so few are read at a time.
   */
  async request(organization: string, id: string): Promise<Retained | null> {
    const leave = await largeChains.enter(organization)
    try {
      const sealed = await this.#store.records.get(organization, 'response', id, this.#clock.now())
      if (!sealed) return null
      await loopTurns.next(organization)
      const record = this.#sealer.open(organization, sealed) as Retained | null
      return record && !hasEnded(record, this.#clock.now()) ? record : null
    } finally {
      leave()
    }
  }

  /** What DELETE would delete; null when the organization has no such response. */
  async find(organization: string, id: string): Promise<Reply | null> {
    // The turn was stored first, and a response of an earlier release has no object.
    const turn = await this.#store.records.get(organization, 'response', id, this.#clock.now())
    if (!turn) return null
    const reply = await this.get(organization, id)
    if (reply) return reply
    const opened = this.#sealer.open(organization, turn) as { asked?: Asked } | null
    return { object: undefined, asked: opened?.asked }
  }

  /** Deletes the object and the turn, so that the response can neither be retrieved nor continued. */
  async delete(organization: string, id: string): Promise<void> {
    const { records } = this.#store
    await records.delete(organization, 'response', id)
    await records.delete(organization, 'reply', id)
  }
}

/** A JSON object with one more member at its beginning. */
function before(object: string, opening: string, value: string): string {
  return `${opening}${value}",${object.slice(1)}`
}

/** Takes such a member off again. @returns the object without it, and its value where it was there */
function behind(object: string, opening: string): [string, string | undefined] {
  if (!object.startsWith(opening)) return [object, undefined]
  const end = object.indexOf('"', opening.length)
  return [`{${object.slice(end + 2)}`, object.slice(opening.length, end)]
}

/** The model that a response object names; undefined when it names none. */
export function modelOf(object: string | undefined): string | undefined {
  const { model } = JSON.parse(object ?? '{}') as { model?: unknown }
  return typeof model === 'string' ? model : undefined
}
