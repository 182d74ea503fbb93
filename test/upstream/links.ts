/** Plain and TLS links: what servers accept, and how clients reach them, so that one suite runs on both. */
import net, { type Server, type Socket } from 'node:net'
import tls, { type SecureContextOptions, TLSSocket } from 'node:tls'
import type { ClientOptions } from '../../plugins/upstream/http1/client.ts'
import { type Certificates, hasOpenssl, makeCertificates } from '../faults/certificates.ts'

export interface Link {
  name: string
  scheme: 'http' | 'https'
  /** A server whose sockets carry what is behind TLS, if there is any. */
  server(connected: (socket: Socket) => void): Server
  /** What a client needs to trust the server. */
  trust: Pick<ClientOptions, 'tls'>
}

export const plain: Link = {
  name: 'plain',
  scheme: 'http',
  server: connected => net.createServer(connected),
  trust: {},
}

/** A TLS link whose server has these options. Its sockets can be reset, as plain ones. */
export function secure(name: string, pki: Certificates, options: SecureContextOptions = {}): Link {
  const secureContext = tls.createSecureContext({ ...pki.server, ...options })
  return {
    name,
    scheme: 'https',
    server: connected =>
      net.createServer(raw => {
        raw.on('error', () => {})
        // Otherwise the kernel keeps a second small write back until the first is acknowledged.
        raw.setNoDelay(true)
        const socket = new TLSSocket(raw, { isServer: true, secureContext, ALPNProtocols: ['http/1.1'] })
        socket.resetAndDestroy = () => {
          raw.resetAndDestroy()
          return socket.destroy()
        }
        connected(socket)
      }),
    trust: { tls: { ca: pki.server.ca.toString() } },
  }
}

/** The links of this machine; only plain ones where there is no openssl. The certificates go with the process. */
export function allLinks(): Link[] {
  if (!hasOpenssl()) {
    console.error('SKIPPED: TLS links; there is no openssl here to make certificates with')
    return [plain]
  }
  const pki = makeCertificates()
  process.once('exit', () => pki.remove())
  return [plain, secure('TLS 1.3', pki), secure('TLS 1.2', pki, { maxVersion: 'TLSv1.2' })]
}
