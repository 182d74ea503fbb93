/**
 * Fetches images and documents that a request names by URL, for dialects that take only bytes (wire.md F.3). Nowhere
 * else can a client make the gateway connect to an address, so each hop is checked:
 *
 * - only https, a host of the operator's list, no credentials in the URL; at most three redirects, each checked like
 *   the first URL;
 * - the name is resolved here. If one of its addresses is not public, none is used. The gateway connects to the address
 *   that was checked, so that a second answer of the name server changes nothing (DNS rebinding);
 * - the certificate must be the host's; nothing of the client's request is sent: no cookie, no credential, no referrer;
 * - size and time are limited over all files of a request; the bytes must be of a type that the part may hold.
 */
import { lookup as dnsLookup } from 'node:dns/promises'
import type { IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { isPublicAddress } from './addresses.ts'
import { type DocumentSource, documentOf, type ImageSource, imageOf } from './content.ts'
import { HostList, hostIsAddress } from './hosts.ts'

/** The options of `media` that fetching needs. */
export interface MediaOptions {
  /** Hosts, as `HostList` reads them. */
  fetch: readonly string[]
  /** Bytes of all files of a request together. */
  max_bytes: number
  /** The same of those that are text. */
  max_text: number
  /** The most files of a request. */
  max_files: number
  /** Milliseconds, for all files of a request. */
  timeout: number
}

/** A file that a request names by URL. */
export interface WantedMedia {
  kind: 'image' | 'document'
  url: string
  /** The part's path in the request body. */
  path: string
}

export type FetchedMedia = ImageSource | DocumentSource

/**
 * Why a file was not fetched. No reason reveals what is behind a host name: an unknown name, a private address, a
 * closed port and a silent host are all `unreachable`.
 */
export type MediaFaultReason =
  | 'unreachable'
  | 'status'
  | 'redirect'
  | 'too_large'
  | 'too_much_text'
  | 'too_many'
  | 'timeout'
  | 'wrong_type'

/** A file could not be fetched. `cause` is for the log only. */
export class MediaFault extends Error {
  readonly reason: MediaFaultReason
  /** The file that was not fetched; set when it is known. */
  media: WantedMedia | undefined
  /** HTTP status, for `status`. */
  readonly status: number | undefined

  constructor(reason: MediaFaultReason, cause?: unknown, status?: number) {
    super(reason, { cause })
    this.name = 'MediaFault'
    this.reason = reason
    this.status = status
  }
}

/** The bytes that may still arrive for a request. */
interface Budget {
  bytes: number
  /** Of those, bytes of text. */
  text: number
  arrived: ((bytes: number) => void) | undefined
}

/** The network, so that tests can replace it. No configuration reaches these members. */
export interface Outside {
  /** Every address of a name. */
  lookup(host: string): Promise<string[]>
  /** Whether an address may be connected to. */
  permits(address: string): boolean
  /** Further certificate authorities, PEM. */
  ca?: string
}

const INTERNET: Outside = {
  async lookup(host) {
    const found = await dnsLookup(host, { all: true })
    return found.map(entry => entry.address)
  },
  permits: isPublicAddress,
}

/** Redirects that are followed for one file. */
const MAX_REDIRECTS = 3
/** Files of one request that are fetched at the same time. */
const AT_ONCE = 4

/** Fetches files from the hosts that an operator allows. */
export class MediaFetcher {
  readonly #hosts: HostList
  readonly #maxBytes: number
  readonly #maxText: number
  readonly #maxFiles: number
  readonly #timeoutMs: number
  readonly #outside: Outside

  constructor({ fetch, max_bytes, max_text, max_files, timeout }: MediaOptions, outside: Partial<Outside> = {}) {
    this.#hosts = new HostList(fetch)
    this.#maxBytes = max_bytes
    this.#maxText = max_text
    this.#maxFiles = max_files
    this.#timeoutMs = timeout
    this.#outside = { ...INTERNET, ...outside }
  }

  /** False when the operator allows no host, which is the default. */
  get isOn(): boolean {
    return !this.#hosts.isEmpty
  }

  /** Whether the URL's host is on the operator's list. */
  allows(url: string): boolean {
    return this.#hosts.allowed(url) !== null
  }

  /**
   * Fetches all files.
   * @param arrived called with the number of bytes each time that some arrive
   * @returns the files by `mediaKey`
   * @throws MediaFault for the first that fails; the others are then aborted
   * @throws the signal's reason when it is aborted
   */
  async fetchAll(
    wanted: readonly WantedMedia[],
    signal: AbortSignal,
    arrived?: (bytes: number) => void,
  ): Promise<Map<string, FetchedMedia>> {
    const queue = [...new Map(wanted.map(media => [mediaKey(media), media])).values()]
    const fetched = new Map<string, FetchedMedia>()
    if (queue.length > this.#maxFiles) {
      const fault = new MediaFault('too_many')
      fault.media = queue[this.#maxFiles]
      throw fault
    }
    const budget: Budget = { bytes: this.#maxBytes, text: this.#maxText, arrived }
    const failed = new AbortController()
    let first: MediaFault | undefined
    const timeout = AbortSignal.timeout(this.#timeoutMs)
    const any = AbortSignal.any([signal, failed.signal, timeout])
    const worker = async () => {
      for (let media = queue.shift(); media; media = queue.shift()) {
        try {
          fetched.set(mediaKey(media), await this.#fetchOne(media, budget, any))
        } catch (error) {
          const fault = error instanceof MediaFault ? error : new MediaFault('unreachable', error)
          first ??= timeout.aborted ? new MediaFault('timeout', fault) : fault
          first.media ??= media
          failed.abort()
          return
        }
      }
    }
    // All workers are awaited, so that nothing runs on after this function has returned.
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, queue.length) }, worker))
    signal.throwIfAborted()
    if (first) throw first
    return fetched
  }

  async #fetchOne(media: WantedMedia, budget: Budget, signal: AbortSignal): Promise<FetchedMedia> {
    let url = this.#hosts.allowed(media.url)
    for (let hops = 0; url; hops++) {
      const response = await this.#get(url, await this.#resolve(url, signal), media.kind, signal)
      const status = response.statusCode ?? 0
      const { location } = response.headers
      if (status >= 300 && status < 400 && location !== undefined) {
        response.destroy()
        url = hops < MAX_REDIRECTS ? this.#hosts.allowed(location, url) : null
        continue
      }
      if (status !== 200) {
        response.destroy()
        throw new MediaFault('status', undefined, status)
      }
      const bytes = await read(response, budget)
      const type = response.headers['content-type'] ?? ''
      const found = media.kind === 'image' ? imageOf(type, bytes) : documentOf(type, bytes)
      if (!found) throw new MediaFault('wrong_type')
      if (found.kind === 'text' && (budget.text -= bytes.length) < 0) throw new MediaFault('too_much_text')
      return found
    }
    throw new MediaFault('redirect')
  }

  /** Resolves the host to an address that the gateway may connect to. */
  async #resolve(url: URL, signal: AbortSignal): Promise<string> {
    const addresses = hostIsAddress(url)
      ? [url.hostname.replace(/^\[|\]$/g, '')]
      : await orAborted(this.#outside.lookup(url.hostname), signal)
    const [first] = addresses
    // One address that is not public rules out the whole name: an honest name server does not mix them.
    if (first === undefined || !addresses.every(address => this.#outside.permits(address))) {
      throw new MediaFault('unreachable', `addresses of ${url.hostname}: ${addresses.join(', ')}`)
    }
    return first
  }

  #get(url: URL, address: string, kind: WantedMedia['kind'], signal: AbortSignal): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const sent = httpsRequest(
        {
          // The address that was checked, so that no name is resolved again.
          host: address,
          port: url.port === '' ? 443 : Number(url.port),
          path: url.pathname + url.search,
          method: 'GET',
          // The certificate must be for the host name.
          servername: hostIsAddress(url) ? undefined : url.hostname,
          ca: this.#outside.ca,
          headers: {
            host: url.host,
            accept: kind === 'image' ? 'image/png, image/jpeg, image/gif, image/webp' : 'application/pdf, text/plain',
            'accept-encoding': 'identity',
            'user-agent': 'sluice',
          },
          agent: false,
          signal,
        },
        resolve,
      )
      sent.on('error', reject)
      // A server may upgrade without being asked. Node then emits no `response`, and not even an abort would settle
      // this promise.
      sent.on('upgrade', ({ statusCode }, socket) => {
        socket.destroy()
        reject(new MediaFault('status', undefined, statusCode))
      })
      sent.end()
    })
  }
}

/** The key of one file of a request. The same URL as an image and as a document counts as two files. */
export function mediaKey({ kind, url }: Pick<WantedMedia, 'kind' | 'url'>): string {
  return `${kind} ${url}`
}

async function read(response: IncomingMessage, budget: Budget): Promise<Buffer> {
  try {
    const encoding = response.headers['content-encoding'] ?? 'identity'
    if (encoding !== 'identity') throw new MediaFault('wrong_type')
    if (Number(response.headers['content-length'] ?? 0) > budget.bytes) throw new MediaFault('too_large')
    const chunks: Buffer[] = []
    for await (const chunk of response as AsyncIterable<Buffer>) {
      budget.bytes -= chunk.length
      if (budget.bytes < 0) throw new MediaFault('too_large')
      budget.arrived?.(chunk.length)
      chunks.push(chunk)
    }
    return Buffer.concat(chunks)
  } finally {
    response.destroy()
  }
}

/** Rejects when the signal is aborted, for work that takes no signal itself. */
function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) return abort()
    signal.addEventListener('abort', abort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
