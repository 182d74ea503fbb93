/**
 * Refuses requests by the address of their client.
 *
 *   - ip-access: { allow: [203.0.113.0/24, 2001:db8::/32], deny: [203.0.113.66] }
 *   - auth
 *
 * `deny` comes first; where `allow` lists something, an address outside of it is refused. The address is the peer's, or
 * the one in X-Forwarded-For where `server.trust_proxy` trusts the peer. Nothing of the body is read for who is refused.
 */
import { BlockList, isIP } from 'node:net'
import { definePlugin, deny } from 'sluice'

interface Options {
  allow: string[]
  deny: string[]
}

const networks = (description: string) => ({
  type: 'array',
  items: { type: 'string' },
  default: [],
  description,
})

export default definePlugin<Options>({
  name: 'ip-access',
  summary: 'Refuses requests by the address of their client.',
  config: {
    type: 'object',
    additionalProperties: false,
    properties: {
      allow: networks('Addresses and networks that may call, such as 203.0.113.0/24. Empty: all that are not denied.'),
      deny: networks('Addresses and networks that may not call, also where `allow` lists them.'),
    },
  },
  check({ allow, deny }) {
    if (allow.length + deny.length === 0) return ['it refuses nobody: list networks in allow or deny, or remove it']
    return [...allow, ...deny]
      .filter(text => networkOf(text) === undefined)
      .map(text => `'${text}' is no address and no network: write 203.0.113.7, 203.0.113.0/24 or 2001:db8::/32`)
  },
  aboveTerminal: true,
  dryRun: 'safe',
  create({ allow, deny: denied }, { log }) {
    const [allowed, refused] = [listOf(allow), listOf(denied)]
    const mayCall = (address: string): boolean => {
      const plain = unmapped(address)
      const family = isIP(plain) === 6 ? 'ipv6' : 'ipv4'
      // An address that cannot be read is on no list.
      if (isIP(plain) === 0) return allow.length === 0 && denied.length === 0
      return !refused.check(plain, family) && (allow.length === 0 || allowed.check(plain, family))
    }
    return {
      onRequest(x) {
        const { remoteAddress } = x.incoming
        if (mayCall(remoteAddress)) return undefined
        log.debug({ request_id: x.id, address: remoteAddress }, 'address refused')
        return deny('address_not_allowed', {
          message: 'Requests from this network address are not accepted.',
          forOperators: `the address ${remoteAddress}`,
        })
      },
    }
  },
})

/** An IPv4 address as IPv6 writes it is that address. */
function unmapped(address: string): string {
  const [, v4] = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address) ?? []
  return v4 ?? address.replace(/%.*$/, '')
}

interface Network {
  address: string
  family: 'ipv4' | 'ipv6'
  bits: number
}

function networkOf(text: string): Network | undefined {
  const [, written, length] = /^([0-9A-Fa-f:.]+)(?:\/(\d{1,3}))?$/.exec(text) ?? []
  if (written === undefined) return undefined
  const address = unmapped(written)
  const version = isIP(address)
  // The length of a mapped network would count bits of IPv6.
  if (version === 0 || (address !== written && length !== undefined)) return undefined
  const most = version === 4 ? 32 : 128
  const bits = length === undefined ? most : Number(length)
  return bits <= most ? { address, family: version === 4 ? 'ipv4' : 'ipv6', bits } : undefined
}

function listOf(texts: readonly string[]): BlockList {
  const list = new BlockList()
  for (const text of texts) {
    const { address, family, bits } = networkOf(text)!
    list.addSubnet(address, bits, family)
  }
  return list
}
