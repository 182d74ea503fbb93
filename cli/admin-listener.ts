/** Asks the admin listener of a running gateway, for every verb that does. */

import { sha256Of } from '../config/stored.ts'
import type { GatewayConfig } from '../config/types.ts'
import { UsageError } from './terminal.ts'

/** Options of a verb that asks the admin listener. */
export const ADMIN_OPTIONS = { admin: { type: 'string' }, token: { type: 'string' } } as const

/** Their lines in the help of such a verb. */
export const ADMIN_HELP = `  --admin URL     the gateway's admin listener; default: that of FILE
  --token TOKEN   a token of that listener; without it SLUICE_ADMIN_TOKEN of
                  the environment, then admin.token of FILE`

/** How long a gateway may take to answer. */
const ADMIN_TIMEOUT_MS = 2000

/** What the listener answered, or why nothing usable came. */
export type AdminAnswer = { found: unknown } | { missing: string }

export class AdminListener {
  /** Undefined when only the running gateway knows its port. */
  readonly #url: string | undefined
  readonly #admin: GatewayConfig['server']['admin']
  /** The token to send, and where it comes from. */
  readonly #token: { text: string; from: string } | undefined

  /**
   * @param given the verb's options
   * @throws UsageError when the token cannot be one
   */
  constructor({ server }: GatewayConfig, given: { admin?: string | undefined; token?: string | undefined }) {
    this.#admin = server.admin
    this.#url = given.admin ?? urlOf(server.admin)
    const environment = process.env['SLUICE_ADMIN_TOKEN'] || undefined
    const file = server.admin.token
    if (given.token !== undefined) this.#token = { text: given.token, from: '--token' }
    else if (environment !== undefined) this.#token = { text: environment, from: 'SLUICE_ADMIN_TOKEN' }
    else if (file !== undefined) this.#token = { text: file, from: 'admin.token of the file' }
    if (this.#token && !/^[\x21-\x7e]+$/.test(this.#token.text))
      throw new UsageError(`the token of ${this.#token.from} has characters that no token has, such as a space`)
  }

  /**
   * The JSON that the listener has at a path.
   * @param path with its query
   */
  async get(path: string): Promise<AdminAnswer> {
    const url = this.#url
    if (url === undefined) return { missing: 'its admin port is any free one; name it with --admin URL' }
    try {
      const response = await fetch(new URL(path, url), {
        headers: this.#token ? { authorization: `Bearer ${this.#token.text}` } : {},
        signal: AbortSignal.timeout(ADMIN_TIMEOUT_MS),
      })
      if (response.ok) return { found: await response.json() }
      const text = (await response.text()).trim().split('\n', 1)[0]!
      if (response.status === 401) return { missing: `${url} answered 401: ${this.#refused()}` }
      return { missing: response.status === 404 ? text : `${url} answered ${response.status}: ${text}` }
    } catch (error) {
      const { cause, message } = error as Error & { cause?: Error }
      return { missing: `${url} does not answer: ${(cause as NodeJS.ErrnoException | undefined)?.code ?? message}` }
    }
  }

  /** What a 401 means, and its cure. */
  #refused(): string {
    const { tokens } = this.#admin
    const names = tokens.map(({ name }) => name).join(', ')
    const digests = names && `; the file has digests of its tokens (${names}), and a digest is no token`
    if (!this.#token) return `it needs a token. Give one by --token or SLUICE_ADMIN_TOKEN${digests}`
    const { text, from } = this.#token
    const digest = tokens.find(({ sha256 }) => sha256 === text.toLowerCase())
    if (digest)
      return `${from} is the digest of the token ${digest.name}. Give the token itself, as \`sluice admin-token\` printed it`
    const known = tokens.some(({ sha256 }) => sha256 === sha256Of(text))
    const cure = known ? 'The file has it, so the gateway runs with another file, or has not reloaded' : 'Give another'
    return `${from} is no token of this listener. ${cure}${digests}`
  }
}

function urlOf({ host, port }: GatewayConfig['server']['admin']): string | undefined {
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '[::1]' : host.includes(':') ? `[${host}]` : host
  return port === 0 ? undefined : `http://${reachable}:${port}`
}
