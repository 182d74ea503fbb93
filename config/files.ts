/** Files that sections name: certificates and credentials. */
import { X509Certificate } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import type { Report } from './report.ts'
import type { Path } from './source.ts'
import type { GatewayConfig, ServerConfig } from './types.ts'

/** Makes the paths of a `tls` mapping absolute. */
export function absolutePaths<T extends Record<string, string | undefined>>(tls: T, path: Path, report: Report): T {
  const absolute: Record<string, string> = {}
  for (const [key, file] of Object.entries(tls))
    if (file !== undefined) absolute[key] = report.source.resolvePath([...path, key], file)
  return absolute as T
}

/**
 * Checks that every named certificate file can be read, so that a missing one fails the load and not the first
 * connection.
 */
export async function checkFiles(
  server: ServerConfig | undefined,
  providers: GatewayConfig['providers'],
  read: (path: string) => Promise<string>,
  report: Report,
): Promise<void> {
  const named: [string[], Record<string, string | undefined> | null][] = [
    [['server', 'tls'], server?.tls ?? null],
    ...Object.values(providers).map(p => [['providers', p.name, 'tls'], p.tls] as [string[], typeof p.tls]),
  ]
  for (const { name, auth } of Object.values(providers)) {
    // A federated token's file may appear only after the start.
    if (auth?.kind === 'google') named.push([['providers', name, 'auth', 'google'], { credentials: auth.credentials }])
  }
  for (const [path, tls] of named) {
    const texts: Record<string, string> = {}
    for (const [key, file] of Object.entries(tls ?? {})) {
      if (file === undefined) continue
      try {
        texts[key] = await read(file)
      } catch (cause) {
        report.error([...path, key], `cannot read ${file} (${(cause as NodeJS.ErrnoException).code ?? cause})`)
      }
    }
    if (path[0] === 'providers') checkPems(path, texts, report)
  }
}

/** Checks what a provider's TLS files hold, so that a wrong one fails the load and not every connection. */
function checkPems(path: string[], { ca, cert, key }: Record<string, string>, report: Report): void {
  const attempt = (member: string, message: string, use: () => unknown) => {
    try {
      use()
    } catch (cause) {
      report.error([...path, member], `${message} (${(cause as NodeJS.ErrnoException).code ?? cause})`)
    }
  }
  // OpenSSL takes any text for authorities, and then trusts nobody.
  if (ca !== undefined) attempt('ca', 'it holds no certificate in PEM', () => new X509Certificate(ca))
  if (cert !== undefined && key !== undefined)
    attempt('cert', 'it is no PEM certificate that fits the key', () => createSecureContext({ cert, key }))
}
