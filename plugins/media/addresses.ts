/**
 * Which addresses the gateway may connect to for a client: only public unicast. Source: the IANA registries of
 * special-purpose IPv4 and IPv6 addresses (RFC 6890 and its updates).
 */
import { BlockList, isIP } from 'node:net'

const SPECIAL_V4 = new BlockList()
for (const [network, prefix] of [
  ['0.0.0.0', 8], // this network
  ['10.0.0.0', 8], // private
  ['100.64.0.0', 10], // carrier-grade NAT
  ['127.0.0.0', 8], // loopback
  ['169.254.0.0', 16], // link-local, and clouds' metadata
  ['172.16.0.0', 12], // private
  ['192.0.0.0', 24], // protocol assignments
  ['192.0.2.0', 24], // documentation
  ['192.88.99.0', 24], // 6to4 relays
  ['192.168.0.0', 16], // private
  ['198.18.0.0', 15], // benchmarks
  ['198.51.100.0', 24], // documentation
  ['203.0.113.0', 24], // documentation
  ['224.0.0.0', 4], // multicast
  ['240.0.0.0', 4], // reserved, and broadcast
] as const) {
  SPECIAL_V4.addSubnet(network, prefix, 'ipv4')
}

/**
 * All global unicast. Outside are loopback, mapped and translated IPv4 (`::ffff:0:0/96`, `64:ff9b::/96`), unique local,
 * link-local and multicast.
 */
const GLOBAL_V6 = new BlockList()
GLOBAL_V6.addSubnet('2000::', 3, 'ipv6')

const SPECIAL_V6 = new BlockList()
for (const [network, prefix] of [
  ['2001::', 23], // protocol assignments; Teredo carries IPv4 addresses
  ['2001:db8::', 32], // documentation
  ['2002::', 16], // 6to4 carries IPv4 addresses
  ['3fff::', 20], // documentation
] as const) {
  SPECIAL_V6.addSubnet(network, prefix, 'ipv6')
}

/** @param address as a resolver gives it; anything else (a zone, a name, `0x7f.1`) is not public */
export function isPublicAddress(address: string): boolean {
  switch (isIP(address)) {
    case 4:
      return !SPECIAL_V4.check(address, 'ipv4')
    case 6:
      return !address.includes('%') && GLOBAL_V6.check(address, 'ipv6') && !SPECIAL_V6.check(address, 'ipv6')
    default:
      return false
  }
}
