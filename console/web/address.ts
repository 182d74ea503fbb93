/** Where a request comes from. */
import type { HttpBindings } from '@hono/node-server'
import type { Context } from 'hono'

const plain = (address: string) => address.trim().replace(/^::ffff:/, '')

/** @param proxies whose X-Forwarded-For is believed: the last address in it that is none of them is the client's */
export function addressOf(c: Context<{ Bindings: HttpBindings }>, proxies: readonly string[]): string {
  const hops = (c.req.header('x-forwarded-for') ?? '').split(',').map(plain).filter(Boolean)
  let address = plain(c.env.incoming.socket.remoteAddress ?? '')
  while (proxies.includes(address) && hops.length > 0) address = hops.pop()!
  return address.slice(0, 64)
}

/** What attempts are counted by: one customer has a whole /64 of IPv6. */
export function networkOf(address: string): string {
  return address.includes(':') ? `${address.split(':').slice(0, 4).join(':')}::/64` : address
}
