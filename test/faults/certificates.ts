/** Certificates of our own, made by openssl; tests skip loudly where there is none. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface Certificates {
  folder: string
  /** Paths of PEM files. */
  ca: string
  client: { cert: string; key: string }
  server: { cert: Buffer; key: Buffer; ca: Buffer }
  selfSigned: { cert: Buffer; key: Buffer }
  /** Signed by the CA, for another host. */
  elsewhere: { cert: Buffer; key: Buffer }
  remove(): void
}

export function hasOpenssl(): boolean {
  try {
    execFileSync('openssl', ['version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

export function makeCertificates(): Certificates {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-tls-'))
  const at = (name: string) => join(folder, name)
  const openssl = (...args: string[]) => execFileSync('openssl', args, { stdio: 'ignore' })
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2']
  const own = (name: string, subject: string, ...more: string[]) =>
    openssl(
      'req',
      '-x509',
      ...newKey,
      '-keyout',
      at(`${name}.key`),
      '-out',
      at(`${name}.pem`),
      '-subj',
      subject,
      ...more,
    )
  const signed = (name: string, subject: string, names: string) => {
    openssl('req', ...newKey.slice(0, 5), '-keyout', at(`${name}.key`), '-out', at(`${name}.csr`), '-subj', subject)
    writeFileSync(at(`${name}.ext`), names)
    openssl(
      'x509',
      '-req',
      '-in',
      at(`${name}.csr`),
      '-CA',
      at('ca.pem'),
      '-CAkey',
      at('ca.key'),
      '-CAcreateserial',
      '-days',
      '2',
      '-out',
      at(`${name}.pem`),
      '-extfile',
      at(`${name}.ext`),
    )
  }
  const pair = (name: string) => ({ cert: readFileSync(at(`${name}.pem`)), key: readFileSync(at(`${name}.key`)) })
  own('ca', '/CN=Test CA')
  own('self', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost')
  signed('server', '/CN=localhost', 'subjectAltName=DNS:localhost,IP:127.0.0.1')
  signed('elsewhere', '/CN=example.org', 'subjectAltName=DNS:example.org')
  signed('client', '/CN=gateway', 'extendedKeyUsage=clientAuth')
  return {
    folder,
    ca: at('ca.pem'),
    client: { cert: at('client.pem'), key: at('client.key') },
    server: { ...pair('server'), ca: readFileSync(at('ca.pem')) },
    selfSigned: pair('self'),
    elsewhere: pair('elsewhere'),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  }
}
