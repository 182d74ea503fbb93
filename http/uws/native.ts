/**
 * The native part of uWebSockets.js: which file is loaded, whether it is the tested one, and what it exports. Only
 * the listener loads it, since only the listener follows the rules of docs/spec/listener.md; besides it only the bare
 * servers of the benchmarks do.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)

/**
 * SHA-256 of `uws.node` by package; all packages are of one build. A prebuilt binary of a third party is pinned by
 * its bytes, not by a version number alone. docs/listeners.md describes the packages and how to pin another.
 */
export const pinned: ReadonlyMap<string, string> = new Map([
  ['@uwsjs/linux-x64-22', 'f687e7c3666b5cca9d355184bbf07bb0550f5ba0d3ffd453248ccfec552dde6c'],
])

/** The facts that decide which file is loaded. It is a parameter, so that tests can pretend to be another machine. */
export interface Platform {
  platform: string
  arch: string
  /** The major version of Node. */
  node: string
}

const here: Platform = {
  platform: process.platform,
  arch: process.arch,
  node: process.versions.node.split('.', 1)[0]!,
}

/** A start-up error whose message says what to do instead. */
export class NoUwsBinary extends Error {
  override readonly name = 'NoUwsBinary'
  constructor(reason: string, options?: ErrorOptions) {
    super(
      `listener: uws can't start: ${reason}. Set \`listener: node\` in gateway.yaml: the same contract on node:http, on any Node and any system.`,
      options,
    )
  }
}

/**
 * Checks the file that is about to be loaded.
 * @returns the name that `require` takes
 * @throws NoUwsBinary when there is no file for this machine, when it is not installed, or when its bytes are not the
 * pinned ones
 */
export function checkNativeFile(
  on: Platform = here,
  read: (file: string) => Uint8Array = file => readFileSync(require.resolve(file)),
): string {
  const name = `@uwsjs/${on.platform}-${on.arch}-${on.node}`
  const want = pinned.get(name)
  if (want === undefined) {
    const tested = [...pinned.keys()].map(each => each.slice('@uwsjs/'.length)).join(', ')
    throw new NoUwsBinary(
      `there is no tested binary of uWebSockets.js for ${on.platform}-${on.arch} with Node ${on.node} (there is for ${tested}, with glibc)`,
    )
  }
  const file = `${name}/uws.node`
  let bytes: Uint8Array
  try {
    bytes = read(file)
  } catch (cause) {
    const when = 'npm installs it on systems with glibc, unless optional packages are left out'
    throw new NoUwsBinary(`the native file ${file} can't be read; ${when}`, { cause })
  }
  const have = createHash('sha256').update(bytes).digest('hex')
  if (have !== want) throw new NoUwsBinary(`the native file ${file} has SHA-256 ${have}, pinned is ${want}`)
  return file
}

/** Loads the checked file. Later calls in the process get the same module. @throws NoUwsBinary */
export function loadNative(): Uws {
  const file = checkNativeFile()
  try {
    return require(file)
  } catch (cause) {
    throw new NoUwsBinary('its native file does not load here (it needs glibc 2.27 or newer)', { cause })
  }
}

// ---- the exports that we use ----------------------------------------------------------------------------------------

export interface Uws {
  App(): UwsApp
  SSLApp(options: { cert_file_name: string; key_file_name: string }): UwsApp
  us_listen_socket_close(socket: ListenSocket): void
  us_socket_local_port(socket: ListenSocket): number
  readonly LIBUS_LISTEN_EXCLUSIVE_PORT: number
  /** Sets an internal option, which is chosen by a number. */
  _cfg(key: string): void
}

/** A listening socket; opaque. */
export type ListenSocket = { readonly listening: unique symbol }
/** The part of uWebSockets.js's HttpResponse that we use. */
export interface UwsResponse {
  writeStatus(text: string | Uint8Array): unknown
  write(chunk: string | Uint8Array): boolean
  end(body?: string | Uint8Array, closeConnection?: boolean): unknown
  endWithoutBody(): unknown
  tryEnd(rest: Uint8Array, totalSize: number): [ok: boolean, done: boolean]
  getWriteOffset(): number
  cork(fill: () => void): unknown
  close(): unknown
  pause(): void
  resume(): void
  onAborted(listener: () => void): unknown
  onData(listener: (chunk: ArrayBuffer, last: boolean) => void): unknown
  onWritable(listener: (offset: number) => boolean): unknown
  getRemoteAddress(): ArrayBuffer
  upgrade(data: { socket: SocketEvents }, key: string, protocol: string, extensions: string, context: unknown): void
}
export interface UwsRequest {
  getCaseSensitiveMethod(): string
  getUrl(): string
  /** Undefined for a target without a `?`. */
  getQuery(): string | undefined
  /** Values are read as UTF-8: other bytes come as U+FFFD. */
  forEach(each: (name: string, value: string) => void): void
  /** The first value of this name (in lower case), with one character for each byte. '' where there is none. */
  getHeader(name: string): string
}

/** A response with the method that the listener must not use: it writes names and values unchecked (R6). */
export type BareResponse = UwsResponse & { writeHeader(name: string, value: string): unknown }
export type Serve = (res: BareResponse, req: UwsRequest) => void

export interface UwsApp {
  any(pattern: string, serve: Serve): UwsApp
  get(pattern: string, serve: Serve): UwsApp
  post(pattern: string, serve: Serve): UwsApp
  ws(pattern: string, behavior: UwsBehavior): UwsApp
  /** `each` is called when a connection is opened (1) or closed (-1). */
  filter(each: (res: UwsResponse, change: number) => void): UwsApp
  listen(host: string, port: number, flags: number, listening: (socket: ListenSocket | false) => void): UwsApp
  listen(host: string, port: number, listening: (socket: ListenSocket | false) => void): UwsApp
  /** Closes all connections at once. */
  close(): UwsApp
}

/** The part of uWebSockets.js's WebSocket that we use. */
export interface UwsWebSocket {
  /** 1: sent; 0: the kernel is full and uWebSockets.js holds the rest; 2: dropped. */
  send(data: string | Uint8Array, binary?: boolean): number
  sendFirstFragment(data: Uint8Array, binary: boolean): number
  sendFragment(data: Uint8Array): number
  sendLastFragment(data: Uint8Array): number
  getBufferedAmount(): number
  ping(data?: Uint8Array): number
  /** A code of 0 makes a close frame without one. */
  end(code: number, reason: string | Uint8Array): void
  close(): void
  cork(fill: () => void): unknown
  getUserData(): { socket: SocketEvents }
}

/** The callbacks of one WebSocket; `upgrade` is given the object that has them. */
export interface SocketEvents {
  onOpen(ws: UwsWebSocket): void
  onMessage(message: ArrayBuffer, binary: boolean): void
  onDrain(): void
  onPing(message: ArrayBuffer): void
  onPong(message: ArrayBuffer): void
  onClose(code: number, message: ArrayBuffer): void
}

export interface UwsBehavior {
  /** In bytes. */
  maxPayloadLength: number
  maxBackpressure: number
  /** In seconds. */
  idleTimeout: number
  sendPingsAutomatically: boolean
  /** In minutes; 0 means no limit. */
  maxLifetime: number
  upgrade(res: UwsResponse, req: UwsRequest, context: unknown): void
  open(ws: UwsWebSocket): void
  message(ws: UwsWebSocket, message: ArrayBuffer, binary: boolean): void
  drain(ws: UwsWebSocket): void
  ping(ws: UwsWebSocket, message: ArrayBuffer): void
  pong(ws: UwsWebSocket, message: ArrayBuffer): void
  close(ws: UwsWebSocket, code: number, message: ArrayBuffer): void
}
