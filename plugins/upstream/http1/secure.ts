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
 * A server issues two tickets with each TLS 1.3 handshake, of some KiB with its certificate: at most this many are
 * kept, and the oldest is dropped.
 */
const MAX_SESSIONS = 64

/**
 * Milliseconds. A resumed handshake shows no certificate, and brings the tickets for the next one. Without this bound,
 * a certificate would be checked once in the life of a process, and its expiry would go unnoticed.
 */
const MAX_UNCHECKED_MS = 60 * 60 * 1000

/**
 * Sessions are kept here and nowhere else. A session is trusted because of the handshake that made it, so it must not
 * serve a client that trusts other authorities, shows another certificate or wants another name.
 */
export class SecureOrigin {
  readonly #host: string
  /** The name in the hello; undefined for an IP address, which RFC 6066 forbids there. */
  readonly #servername: string | undefined
  readonly #context: SecureContext
  readonly #now: () => number
  /** The newest is last, and is used first. */
  readonly #sessions: Session[] = []

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
    const session = this.#take()
    const socket = tls.connect({
      ...options,
      host: this.#host,
      servername: this.#servername,
      secureContext: this.#context,
      ALPNProtocols: ['http/1.1'],
      session: session?.bytes,
    })
    socket.setNoDelay(true)
    socket.on('session', bytes => {
      const checkedAt = session !== undefined && socket.isSessionReused() ? session.checkedAt : this.#now()
      this.#keep({ bytes, checkedAt })
    })
    socket.once('secureConnect', () => {
      // A ticket of TLS 1.3 is for one connection; those before could be used again, and bring no new one.
      if (session !== undefined && socket.isSessionReused() && socket.getProtocol() !== 'TLSv1.3') this.#keep(session)
    })
    return socket
  }

  #take(): Session | undefined {
    const oldest = this.#now() - MAX_UNCHECKED_MS
    for (let session = this.#sessions.pop(); session; session = this.#sessions.pop())
      if (session.checkedAt > oldest) return session
    return undefined
  }

  #keep(session: Session): void {
    if (this.#sessions.push(session) > MAX_SESSIONS) this.#sessions.shift()
  }
}
