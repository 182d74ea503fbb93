/**
 * Responses whose streams can be read at present (RESP-8): those that run and whose request asked for it, until they
 * are stored, and stored ones while somebody reads them. All readers of a response share it, so what they hold does not
 * grow with their number or with how slowly they read.
 */
import { type Budget, passedBound, type Refusal, refusal } from '../../core/engine/budget.ts'
import { type Exchange, GatewayError, type SentStream, type SharedState, type StreamWatch } from '../../core/plugin.ts'
import type { StreamReader } from '../../core/ports/surface.ts'
import type { Asked } from '../model-access/asked.ts'
import { readableKey } from './state.ts'

const MIB = 1024 * 1024
const EACH = 128 * MIB
const ALL = 512 * MIB

const REFUSED = {
  each: {
    code: 'concurrency_limit_exceeded',
    message: limit =>
      `This organization reads as many streams of stored responses again as it may: ${limit} of them. Retry after the wait, with fewer at once, or read the response without 'stream'.`,
    horizonMs: 1000,
  },
  all: {
    code: 'route_capacity',
    message: () =>
      "The service reads as many streams of stored responses again as it may. Retry after the advertised time, or read the response without 'stream'.",
    horizonMs: 1000,
  },
} as const satisfies Record<string, Refusal>

export const readableBudget: Budget = {
  name: 'readable_streams',
  bound: 'bytes of responses that run and can be read meanwhile, and of stored ones that are read as streams',
  owner: 'tenant',
  each: `${EACH / MIB} MiB`,
  all: `${ALL / MIB} MiB`,
  refused: REFUSED,
  over: 'a response that runs is not readable until it has ended',
  figures: ({ shared }) => {
    const { bytes, refused } = readableOf(shared)
    return { used: bytes, refused }
  },
}

/** The process's ledger of them. All chains share it; it outlives a reload. */
export class ReadableStreams {
  /** How often a response could not be read because of the bounds. */
  refused = 0
  #bytes = 0
  readonly #held = new Map<string, number>()
  readonly #responses = new Map<string, ReadableResponse>()
  readonly #each: number
  readonly #all: number

  /** @param each the most bytes of one organization, and `all` of all of them */
  constructor(each = EACH, all = ALL) {
    this.#each = each
    this.#all = all
  }

  get bytes(): number {
    return this.#bytes
  }

  /** A response that is about to run, and runs on without its client. It can be read from the head of its reply on. */
  run(x: Exchange, organization: string, asked: () => Asked | undefined): ReadableResponse {
    const response = new ReadableResponse(this, organization, `resp_${x.objectId}`, asked, () => x.sentStream)
    response.leave = x.runOn(response)
    this.#responses.set(response.key, response)
    return response
  }

  /** One that runs, or that has ended and is not stored yet; it may be cut. */
  running(organization: string, id: string): ReadableResponse | undefined {
    const response = this.#responses.get(keyOf(organization, id))
    return response && !response.stored && response.visible > 0 ? response : undefined
  }

  /**
   * One that is stored. The caller holds it.
   * @param make is called where nobody else reads it
   * @throws GatewayError where no more may be read
   */
  stored(organization: string, id: string, asked: Asked | undefined, make: () => SentStream): ReadableResponse {
    const shared = this.#responses.get(keyOf(organization, id))
    if (shared && !shared.cut) return shared.hold()
    const stream = make()
    const response = new ReadableResponse(
      this,
      organization,
      id,
      () => asked,
      () => stream,
    )
    const over = response.grow()
    if (over) throw over
    response.stored = true
    response.end(true)
    this.#responses.set(response.key, response)
    return response
  }

  /** Nobody can read it here any more, and whoever does is cut off. */
  delete(organization: string, id: string): void {
    this.#responses.get(keyOf(organization, id))?.delete()
  }

  /** For `ReadableResponse`. */
  forget(response: ReadableResponse): void {
    if (this.#responses.get(response.key) === response) this.#responses.delete(response.key)
  }

  /**
   * For `ReadableResponse`: what an organization holds changes. One that holds nothing may always hold one response, and
   * one that holds less than its share is not refused by the bound of all.
   * @returns the refusal where it may not
   */
  change(organization: string, bytes: number): GatewayError | undefined {
    const own = this.#held.get(organization) ?? 0
    const after = own + bytes
    if (bytes > 0 && own > 0) {
      const bound = passedBound(own, bytes, this.#bytes, this.#held.size, { each: this.#each, all: this.#all })
      if (bound) {
        this.refused++
        return refusal(REFUSED[bound], `${Math.round(this.#each / MIB)} MiB`)
      }
    }
    this.#bytes += bytes
    if (after > 0) this.#held.set(organization, after)
    else this.#held.delete(organization)
    return undefined
  }
}

export class ReadableResponse implements StreamWatch {
  readonly key: string
  /** What its request asked for. */
  readonly asked: () => Asked | undefined
  /** It can be had from the store. */
  stored = false
  /** Of one that runs: cancels it if its client has disconnected. */
  leave: (() => void) | undefined
  /** The error that ends its readers before the end of the stream. */
  cut: GatewayError | undefined
  /** All of the stream is there. */
  ended = false
  /** Its client does not want it any more: it must not be stored. */
  deleted = false
  readonly #streams: ReadableStreams
  readonly #organization: string
  readonly #stream: () => SentStream | undefined
  readonly #readers = new Set<() => void>()
  #bytes = 0
  #visible = 0
  /** Its readers, and whoever made it. */
  #holders = 1
  #storing: Promise<unknown> | undefined

  constructor(
    streams: ReadableStreams,
    organization: string,
    id: string,
    asked: () => Asked | undefined,
    stream: () => SentStream | undefined,
  ) {
    this.#streams = streams
    this.#organization = organization
    this.key = keyOf(organization, id)
    this.asked = asked
    this.#stream = stream
  }

  // ---- readers ------------------------------------------------------------------------------------------------------

  /** The number of events that readers may have by now. */
  get visible(): number {
    return this.#visible
  }
  /** The object as it is now, JSON. */
  get object(): string {
    return this.#stream()!.object()
  }
  /** @param after the number of the last event that the reader has; -1 for none */
  read(after: number): StreamReader {
    return this.#stream()!.read(after)
  }

  hold(): this {
    this.#holders++
    return this
  }
  /** Gives back what `hold`, `run` or `stored` gave. */
  release(): void {
    if (--this.#holders > 0) return
    this.#streams.forget(this)
    this.#giveBack()
  }

  /** @param changed is called when more can be read, or nothing more. @returns stops that */
  follow(changed: () => void): () => void {
    this.#readers.add(changed)
    return () => void this.#readers.delete(changed)
  }

  delete(): void {
    this.deleted = true
    this.#streams.forget(this)
    this.#cutOff(new GatewayError('response_not_found', { message: 'The response was deleted while it was read.' }))
    this.leave?.()
  }

  // ---- the exchange that makes it -----------------------------------------------------------------------------------

  /** What it holds has grown. @returns the refusal where it may not */
  grow(): GatewayError | undefined {
    const size = this.#stream()!.size
    const over = this.#streams.change(this.#organization, size - this.#bytes)
    if (!over) this.#bytes = size
    return over
  }

  more(): undefined {
    const stream = this.cut ? undefined : this.#stream()
    if (!stream) return undefined
    if (this.grow()) return this.#cutOff(full())
    this.#visible = stream.count
    this.#tell()
    return undefined
  }

  /** The finished response is being written to the store. */
  stores(done: unknown): void {
    this.#storing = Promise.resolve(done)
  }

  end(whole: boolean): undefined {
    if (whole) {
      this.more()
      this.ended = true
      this.#tell()
    } else {
      this.#streams.forget(this)
      if (!this.cut) this.#cutOff(broken())
    }
    if (this.stored) return undefined
    const storing = this.#storing
    if (!storing) this.release()
    else
      storing
        .catch(() => {})
        .then(() => {
          this.stored = true
          this.release()
        })
    return undefined
  }

  #cutOff(error: GatewayError): undefined {
    this.cut = error
    this.#giveBack()
    this.#tell()
    return undefined
  }

  #giveBack(): void {
    this.#streams.change(this.#organization, -this.#bytes)
    this.#bytes = 0
  }

  #tell(): void {
    for (const changed of this.#readers) changed()
  }
}

const keyOf = (organization: string, id: string): string => `${organization} ${id}`

function full(): GatewayError {
  return new GatewayError('route_capacity', {
    message:
      'This response cannot be read while it runs, since the service holds as many of them as it may. It runs on: read it when it has ended.',
  })
}
function broken(): GatewayError {
  return new GatewayError('internal_error', {
    message: 'The response broke off. Read it again; if it is not known then, send its request again.',
  })
}

/** The process's ledger. */
export function readableOf(shared: SharedState): ReadableStreams {
  return shared.use(readableKey, () => new ReadableStreams())
}
