/** Finds the address of a client, behind trusted proxies too (R20 of docs/spec/listener.md). */
import { BlockList, isIP, SocketAddress } from 'node:net'

/** The addresses of `trust_proxy`. */
export class TrustedPeers {
  readonly #list = new BlockList()
  /** True when no peer is trusted: X-Forwarded-For is then not read at all. */
  readonly empty: boolean

  /**
   * @param entries addresses or CIDR blocks
   * @throws TypeError that names a malformed entry
   */
  constructor(entries: readonly string[]) {
    this.empty = entries.length === 0
    for (const entry of entries) {
      const slash = entry.indexOf('/')
      const address = slash < 0 ? entry : entry.slice(0, slash)
      const family = isIP(address)
      const bits = slash < 0 ? (family === 4 ? 32 : 128) : Number(entry.slice(slash + 1))
      if (family === 0 || !Number.isInteger(bits) || bits < 0 || bits > (family === 4 ? 32 : 128)) {
        throw new TypeError(`trust_proxy: not an address or CIDR block: ${entry}`)
      }
      this.#list.addSubnet(address, bits, family === 4 ? 'ipv4' : 'ipv6')
    }
  }

  has(address: string): boolean {
    const family = isIP(address)
    return family !== 0 && this.#list.check(address, family === 4 ? 'ipv4' : 'ipv6')
  }

  /**
   * The client's address: the peer's own or, when the peer is trusted, the rightmost entry of X-Forwarded-For that is
   * not a trusted proxy. The client may have written the entries further left, so they are not believed. The search
   * ends at an entry that is not an address.
   */
  clientOf(peer: string, forwardedFor: string | undefined): string {
    if (this.empty || forwardedFor === undefined || !this.has(peer)) return peer
    let client = peer
    const hops = forwardedFor.split(',')
    for (let i = hops.length - 1; i >= 0; i--) {
      const hop = plainAddress(hops[i]!.trim())
      if (hop === '') break
      client = hop
      if (!this.has(hop)) break
    }
    return client
  }
}

/**
 * The canonical text of an address: without port and brackets, IPv4-mapped IPv6 as IPv4; '' when it is not an
 * address.
 */
export function plainAddress(text: string): string {
  if (text.startsWith('[')) text = text.slice(1, Math.max(1, text.indexOf(']')))
  else if (text.indexOf(':') === text.lastIndexOf(':') && text.includes(':')) text = text.slice(0, text.indexOf(':'))
  const lower = text.toLowerCase()
  if (lower.startsWith('::ffff:') && isIP(lower.slice(7)) === 4) return lower.slice(7)
  const family = isIP(text)
  if (family === 4) return text
  if (family === 6) return new SocketAddress({ address: text, family: 'ipv6' }).address
  return ''
}

/** The text of an address that uWebSockets.js gives as 4 or 16 bytes in network order; '' for any other length. */
export function addressOfBytes(bytes: ArrayBuffer): string {
  const b = new Uint8Array(bytes)
  if (b.length === 4) return `${b[0]}.${b[1]}.${b[2]}.${b[3]}`
  if (b.length !== 16) return ''
  let mapped = b[10] === 0xff && b[11] === 0xff
  for (let i = 0; mapped && i < 10; i++) mapped = b[i] === 0
  if (mapped) return `${b[12]}.${b[13]}.${b[14]}.${b[15]}`
  const groups: string[] = []
  for (let i = 0; i < 16; i += 2) groups.push(((b[i]! << 8) | b[i + 1]!).toString(16))
  return plainAddress(groups.join(':'))
}
