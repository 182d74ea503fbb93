/** TLS for the connections of one HTTP/1.1 client: what it trusts, what it shows, and the sessions that it resumes. */
import { constants } from 'node:crypto'
import net from 'node:net'
import tls, { type SecureContext, type TLSSocket } from 'node:tls'

/** PEM text. `ca` replaces the system's authorities; `cert` and `key` are what the client shows. */
export interface TlsFiles {
  ca?: string
  cert?: string
  key?: string
}

/** A session that a later handshake can resume, and when the certificate behind it was checked (monotonic ms). */
interface Session {
  bytes: Buffer
  checkedAt: number
}

/**
 * Milliseconds. A resumed handshake shows no certificate, and may bring the ticket for the next one. Without this bound,
 * a certificate would be checked once in the life of a process, and its expiry would go unnoticed.
 */
const MAX_UNCHECKED_MS = 60 * 60 * 1000

/**
 * The last session is kept here and nowhere else. A session is trusted because of the handshake that made it, so it must not
 * serve a client that trusts other authorities, shows another certificate or wants another name.
 */
export class SecureOrigin {
  readonly #host: string
  /** The name in the hello; undefined for an IP address, which RFC 6066 forbids there. */
  readonly #servername: string | undefined
  readonly #context: SecureContext
  readonly #now: () => number
  /**
   * Used for every handshake until a newer one comes: some servers give a resumed connection no ticket. A server that
   * takes a ticket once makes a full handshake of the second one.
   */
  #session: Session | undefined

  /** @throws Error of OpenSSL when `cert` and `key` cannot be read or do not belong together */
  constructor(host: string, files: TlsFiles, now: () => number) {
    this.#host = host
    this.#servername = net.isIP(host) === 0 ? host.replace(/\.$/, '') : undefined
    // One context for all connections: to make one costs more than a handshake.
    // A renegotiation could change the server's certificate, which is checked only in the first handshake.
    this.#context = tls.createSecureContext({ ...files, secureOptions: constants.SSL_OP_NO_RENEGOTIATION })
    this.#now = now
  }

  /** The socket emits `secureConnect` once the server's certificate has been checked. */
  connect(options: net.TcpNetConnectOpts): TLSSocket {
    const session = this.#fresh()
    const socket = tls.connect({
      ...options,
      host: this.#host,
      servername: this.#servername,
      secureContext: this.#context,
      ALPNProtocols: ['http/1.1'],
      session: session?.bytes,
    })
    socket.setNoDelay(true)
    let checkedAt = Number.NEGATIVE_INFINITY
    // Node emits this before the first `session`.
    socket.once('secureConnect', () => {
      const resumed = session !== undefined && socket.isSessionReused()
      checkedAt = resumed ? session.checkedAt : this.#now()
    })
    socket.on('session', bytes => void (this.#session = { bytes, checkedAt }))
    return socket
  }

  #fresh(): Session | undefined {
    const session = this.#session
    return session && this.#now() - session.checkedAt < MAX_UNCHECKED_MS ? session : undefined
  }
}
