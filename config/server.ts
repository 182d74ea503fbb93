/** Reads `server`, and checks `platform` and `secret`. */
import { absolutePaths } from './files.ts'
import type { Report } from './report.ts'
import { adminMembers, type Sections } from './schema.ts'
import type { ServerConfig } from './types.ts'
import { isLoopback, parseListen } from './units.ts'
import { defaultsOf } from './validate.ts'

/** @param cores the number of workers that `workers: auto` stands for */
export function readServer(raw: Sections['server'], cores: number, report: Report): ServerConfig {
  const admin = typeof raw.admin === 'string' ? { ...defaultsOf(adminMembers), listen: raw.admin } : raw.admin
  const listen = parseListen(raw.listen)!
  const adminListen = parseListen(admin.listen)!
  const token = admin.token || undefined
  const tokens = admin.tokens.map(one => ({ ...one, sha256: one.sha256.toLowerCase() }))
  for (const [i, { name, sha256 }] of tokens.entries()) {
    const twin = tokens.findIndex(other => other.name === name || other.sha256 === sha256)
    if (twin < i)
      report.error(['server', 'admin', 'tokens', i], `an earlier token has the same name or digest; each needs its own`)
  }
  if (!isLoopback(adminListen.host) && !token && tokens.length === 0) {
    report.error(
      ['server', 'admin'],
      `the admin pages would be open to the network on ${admin.listen}; bind them to 127.0.0.1, or set a token: admin: { listen: ${admin.listen}, token: "\${ADMIN_TOKEN}" }`,
    )
  }
  if (admin.local_token !== undefined && !isLoopback(adminListen.host)) {
    report.error(
      ['server', 'admin', 'local_token'],
      `a local token is for programs on this machine, and the admin pages listen on ${admin.listen}; bind them to 127.0.0.1, or make a token by \`sluice admin-token\``,
    )
  }
  const workers = raw.workers === 'auto' ? cores : raw.workers
  if (workers > 1 && listen.port === 0)
    report.error(['server', 'listen'], `${workers} workers share one port: name it, instead of 0`)
  if (
    listen.port !== 0 &&
    listen.port === adminListen.port &&
    (listen.host === adminListen.host || adminListen.host === '0.0.0.0' || listen.host === '0.0.0.0')
  ) {
    report.error(
      ['server', 'admin'],
      `the admin pages and the public surfaces cannot share port ${listen.port}; give admin another one`,
    )
  }
  const { local_token } = absolutePaths({ local_token: admin.local_token }, ['server', 'admin'], report)
  const localToken = local_token === undefined ? {} : { localToken: local_token }
  return {
    ...raw,
    listen,
    admin: {
      ...adminListen,
      ...(token ? { token } : {}),
      ...localToken,
      hosts: admin.hosts,
      tokens,
      audit: admin.audit,
    },
    workers,
    tls: raw.tls && absolutePaths(raw.tls, ['server', 'tls'], report),
  }
}

/** One prompt of a megabyte makes an event-loop turn as long. */
const LEAST_OVERLOAD_DELAY_MS = 20

export function readPlatform(raw: Sections['platform'], report: Report): Omit<Sections['platform'], 'compress_above'> {
  const { compress_above, ...platform } = raw
  if (platform.overload_delay < LEAST_OVERLOAD_DELAY_MS) {
    const message = 'at least 20ms: a busy gateway that is not overloaded is as late as that'
    report.error(['platform', 'overload_delay'], message)
  }
  if (compress_above === undefined) return platform
  const old = ['platform', 'compress_above']
  if (report.source.written(['platform', 'scale_limits_above']) !== undefined)
    report.error(
      old,
      'scale_limits_above is set, too, and compress_above is its old name; remove compress_above',
      'key',
    )
  else
    report.warn(old, 'compress_above is called scale_limits_above now; rename it. The old name works until 0.4', 'key')
  return { ...platform, scale_limits_above: compress_above }
}

export function checkSecret(secret: string, report: Report): void {
  if (secret && secret.length < 32)
    report.warn(['secret'], 'the secret is short; use 32 characters or more, e.g. from `openssl rand -hex 32`')
}
