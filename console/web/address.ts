/** Where a request comes from. */
import { BlockList, isIP, SocketAddress } from 'node:net'
import type { HttpBindings } from '@hono/node-server'
import type { Context } from 'hono'

/** `proxies` of the file. */
export class Proxies {
  readonly #list = new BlockList()

  /** @param networks that `isNetwork` takes */
  constructor(networks: readonly string[]) {
    for (const network of networks) {
      const [address, bits] = network.split('/') as [string, string?]
      const [family, all] = isIP(address) === 4 ? (['ipv4', 32] as const) : (['ipv6', 128] as const)
      this.#list.addSubnet(address, bits === undefined ? all : Number(bits), family)
    }
  }

  has(address: string): boolean {
    const family = isIP(address)
    return family !== 0 && this.#list.check(address, family === 4 ? 'ipv4' : 'ipv6')
  }
}

/** Whether a text is an address, or a network such as 10.0.0.0/8. */
export function isNetwork(text: string): boolean {
  const [, address, bits] = /^([\d.]+|[\da-f:.]+)(?:\/(\d{1,3}))?$/i.exec(text) ?? []
  const family = isIP(address ?? '')
  return family !== 0 && Number(bits ?? 0) <= (family === 4 ? 32 : 128)
}

/** The one way in which an address is written here: without port and brackets, IPv4 as such. '' for what is none. */
function plain(text: string): string {
  const [, bracketed, ported] = /^\[(.*)\](?::\d+)?$|^([\d.]+):\d+$/.exec(text.trim()) ?? []
  const address = (bracketed ?? ported ?? text.trim()).replace(/^::ffff:(?=[\d.]+$)/i, '')
  return isIP(address) === 6 ? new SocketAddress({ address, family: 'ipv6' }).address : isIP(address) ? address : ''
}

/**
 * The client's address: the last one in X-Forwarded-For that is no proxy. What stands before it the client may have
 * written itself. What is no address ends the search.
 * @param proxies whose X-Forwarded-For is believed
 */
export function addressOf(c: Context<{ Bindings: HttpBindings }>, proxies: Proxies): string {
  let address = plain(c.env.incoming.socket.remoteAddress ?? '')
  const hops = (c.req.header('x-forwarded-for') ?? '').split(',').map(plain)
  while (proxies.has(address) && hops.at(-1)) address = hops.pop()!
  return address
}

/**
 * What attempts are counted by: whoever has one address of a /64 of IPv6 has all of them.
 * @param address as `addressOf` gives it
 */
export function networkOf(address: string): string {
  if (!address.includes(':')) return address
  const [head, tail] = address.split('::') as [string, string?]
  const groups = head === '' ? [] : head.split(':')
  const rest = tail ? tail.split(':') : []
  while (groups.length + rest.length < 8) groups.push('0')
  return `${[...groups, ...rest].slice(0, 4).join(':')}::/64`
}
