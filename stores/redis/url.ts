/**
 * Redis addresses in gateway.yaml:
 *
 *   redis://[user:password@]host[:6379][/db]          rediss://… with TLS
 *   redis+sentinel://[user:password@]host[:26379],…/master-name[/db][?sentinel_password=…]
 *   redis+cluster://[user:password@]host[:6379],…     rediss+… with TLS for both
 *
 *   local:FOLDER                                      the Unix socket of the server in that folder (../local.ts)
 *
 * With TLS, `ca=FILE` names the certificate authority that signed the servers' certificates; default: the authorities
 * that Node trusts. `cert=FILE` and `key=FILE` name this client's certificate and private key.
 */
import fs from 'node:fs'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { isLocal, socketOf } from '../local.ts'

export interface RedisAddress {
  mode: 'single' | 'sentinel' | 'cluster'
  /** Absent without TLS. */
  tls?: { ca?: Buffer; cert?: Buffer; key?: Buffer }
  hosts: { host: string; port: number }[]
  /** A Unix socket, instead of `hosts`. */
  path?: string
  username?: string
  password?: string
  db: number
  /** Sentinel: name of the master. */
  name?: string
  sentinelPassword?: string
}

const SHAPE = /^(rediss?)(?:\+(sentinel|cluster))?:\/\/(?:([^@/]*)@)?([^/?]+)(\/[^?]*)?(?:\?(.*))?$/

/**
 * Parses a Redis URL of gateway.yaml and reads the TLS files that it names.
 * @throws StoreUnavailable when the URL is wrong, or a file cannot be read
 */
export function parseRedisUrl(url: string): RedisAddress {
  if (isLocal(url)) return { mode: 'single', hosts: [], path: socketOf(url), db: 0 }
  const match = SHAPE.exec(url)
  if (!match)
    throw new StoreUnavailable(
      'the redis URL is malformed; expected e.g. redis://host:6379/0, redis+sentinel://a,b,c/mymaster or redis+cluster://a,b,c',
    )
  const [, scheme, kind, credentials, hostList, pathname = '', query = ''] = match
  const mode = (kind ?? 'single') as RedisAddress['mode']
  const defaultPort = mode === 'sentinel' ? 26379 : 6379
  const address: RedisAddress = {
    mode,
    hosts: hostList!.split(',').map(host => parseHost(host, defaultPort)),
    db: 0,
  }
  const parameters = new URLSearchParams(query)
  const parameter = (name: string) => {
    const value = parameters.get(name)
    parameters.delete(name)
    return value || undefined
  }
  if (scheme === 'rediss') {
    const [ca, cert, key] = ['ca', 'cert', 'key'].map(name => readFile(name, parameter(name)))
    if (!cert !== !key) throw new StoreUnavailable('a client certificate needs both cert and key in the redis URL')
    address.tls = { ...(ca && { ca }), ...(cert && { cert, key }) }
  }
  if (mode === 'single' && address.hosts.length > 1)
    throw new StoreUnavailable('several hosts need redis+sentinel:// or redis+cluster://')
  if (credentials !== undefined) {
    const colon = credentials.indexOf(':')
    const username = colon < 0 ? '' : credentials.slice(0, colon)
    if (username) address.username = decodeURIComponent(username)
    address.password = decodeURIComponent(colon < 0 ? credentials : credentials.slice(colon + 1))
  }
  const path = pathname.split('/').filter(Boolean)
  if (mode === 'sentinel') {
    const name = path.shift()
    if (!name) throw new StoreUnavailable('a redis+sentinel URL needs the master name: redis+sentinel://host/mymaster')
    address.name = decodeURIComponent(name)
    const sentinelPassword = parameter('sentinel_password')
    if (sentinelPassword) address.sentinelPassword = sentinelPassword
  }
  const [unknown] = parameters.keys()
  if (unknown !== undefined)
    throw new StoreUnavailable(
      `the redis URL has no parameter '${unknown}'; there are ca, cert and key (rediss), and sentinel_password (redis+sentinel)`,
    )
  const db = path.shift() ?? '0'
  if (!/^\d{1,5}$/.test(db) || path.length) throw new StoreUnavailable(`${pathname} is no redis database number`)
  if (mode === 'cluster' && db !== '0') throw new StoreUnavailable('a redis cluster has database 0 only')
  address.db = Number(db)
  return address
}

function readFile(parameter: string, path: string | undefined): Buffer | undefined {
  if (path === undefined) return undefined
  try {
    return fs.readFileSync(path)
  } catch (error) {
    throw new StoreUnavailable(`cannot read ${parameter} of the redis URL: ${(error as Error).message}`)
  }
}

function parseHost(text: string, defaultPort: number): { host: string; port: number } {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(text)
  if (!match) throw new StoreUnavailable(`${text} is no redis host`)
  return { host: (match[1] ?? match[2])!, port: match[3] ? Number(match[3]) : defaultPort }
}

/** The address without secrets. It names the store in journals and logs. */
export function describe(address: RedisAddress): string {
  // Its journals are in the same folder, which may be moved.
  if (address.path !== undefined) return 'local'
  const hosts = address.hosts.map(({ host, port }) => `${host}:${port}`).join(',')
  const kind = address.mode === 'single' ? '' : `+${address.mode}`
  return `redis${address.tls ? 's' : ''}${kind}://${hosts}/${[address.name, address.db].filter(part => part !== undefined).join('/')}`
}
