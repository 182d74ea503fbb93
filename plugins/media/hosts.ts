/** The operator's list of hosts from which media may be fetched: the option `fetch` of `media`. */
import { isIP } from 'node:net'

const HTTPS_PORT = '443'

export class HostList {
  /** `host:port`. */
  readonly #exact = new Set<string>()
  /** `.example.com:443` for the entry `*.example.com`. */
  readonly #below: string[] = []

  /**
   * @param entries `example.com`, or `*.example.com` (its subdomains, not itself), each with or without `:port`; the
   * default port is 443
   */
  constructor(entries: readonly string[]) {
    for (const entry of entries) {
      const [host = '', port = HTTPS_PORT] = entry.toLowerCase().split(':')
      if (host.startsWith('*.')) this.#below.push(`${host.slice(1)}:${port}`)
      else this.#exact.add(`${host}:${port}`)
    }
  }

  get isEmpty(): boolean {
    return this.#exact.size === 0 && this.#below.length === 0
  }

  /** The URL to fetch if it is allowed: https, a host of the list, no credentials in it. Else null. */
  allowed(text: string, base?: URL): URL | null {
    if (!URL.canParse(text, base?.href)) return null
    // The URL parser writes `0x7f.1`, `2130706433` and similar hosts as the dotted address that they mean.
    const url = new URL(text, base?.href)
    if (url.protocol !== 'https:' || url.username !== '' || url.password !== '') return null
    const place = `${url.hostname}:${url.port || HTTPS_PORT}`
    if (this.#exact.has(place)) return url
    if (hostIsAddress(url)) return null
    return this.#below.some(end => place.endsWith(end) && place.length > end.length) ? url : null
  }
}

/** Whether the host is an address and not a name. */
export function hostIsAddress(url: URL): boolean {
  return url.hostname.startsWith('[') || isIP(url.hostname) !== 0
}
