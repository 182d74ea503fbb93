/**
 * A console on a real gateway, and people with browsers of their own: cookies, forms with their tokens, no script. The
 * gateway's tokens are those of a deployment: one acts for one organization alone, the other is for staff.
 */
import { randomBytes } from 'node:crypto'
import pg from 'pg'
import type { GatewayOptions } from '../../cli/gateway.ts'
import { defaultYaml, sha256, startGateway, type TestGateway, type TestOptions } from '../../test/e2e/harness.ts'
import { eventually } from '../../test/eventually.ts'
import { freePort } from '../../test/ports.ts'
import { type ConsoleConfig, parseConfig } from '../config.ts'
import { type Console, type Overrides, openConsole } from '../console.ts'
import type { Mail } from '../mail.ts'
import { addMember } from '../people/memberships.ts'
import { ensurePerson } from '../people/persons.ts'
import type { Role } from '../people/roles.ts'
import { beginSession } from '../people/sessions.ts'
import { StaffGateway } from '../staff/gateway.ts'

export const CUSTOMERS = 'adm-customers-0001'
export const STAFF = 'adm-staff-0001'
export const TOKENS = `tokens: [
    { name: console, role: operate, acts_for: required, actions: [keys, usage], sha256: "${sha256(CUSTOMERS)}" },
    { name: staff, role: operate, actions: [organizations, plans, usage], sha256: "${sha256(STAFF)}" }]`

/** The configuration of a gateway whose admin API has both tokens. */
export const gatewayYaml = (url: string, options: TestOptions = {}): string =>
  defaultYaml(url, options).replace('admin: 127.0.0.1:0', `admin: { listen: 127.0.0.1:0, ${TOKENS} }`)

export const gatewayForConsole = (gateway: Partial<GatewayOptions> = {}): Promise<TestGateway> =>
  startGateway({ gateway, yaml: url => gatewayYaml(url) })

export interface TestConsole {
  console: Console
  config: ConsoleConfig
  url: string
  /** What was sent, the latest last. */
  mails: Mail[]
  lines: string[]
  /** Somebody who is not signed in. */
  visitor(): Visitor
  /** Somebody who is signed in: a person is made with this address when there is none. */
  person(email: string, options?: { staff?: boolean }): Promise<Visitor & { id: string }>
  /** An organization at the gateway and in the console. */
  organization(id: string, plan?: string): Promise<void>
  /** Makes a person a member. */
  member(organization: string, email: string, role: Role): Promise<Visitor & { id: string }>
  /** Waits for a mail to an address that comes after those before. @returns the first link in it */
  linkFor(email: string): Promise<string>
  close(): Promise<void>
}

/** In memory, or a new one at the PostgreSQL on which postgres.long.test.ts runs other files. */
async function emptyDatabase(): Promise<string> {
  const server = process.env['SLUICE_TEST_POSTGRES']
  if (server === undefined) return 'sqlite::memory:'
  const name = `console_${randomBytes(8).toString('hex')}`
  const client = new pg.Client(server)
  await client.connect()
  await client.query(`CREATE DATABASE ${name}`)
  await client.end()
  return Object.assign(new URL(server), { pathname: name }).href
}

/** Where a gateway is, for a console. `tokenFile` in place of the two tokens is that of a trial. */
type GatewayPlace = { url: string; gateway: { adminAddress?: string | undefined }; tokenFile?: string }

/** console.yaml of a console at `url`. @param yaml further lines */
export const consoleYaml = (
  { gateway, url: api, tokenFile }: GatewayPlace,
  { url, database, yaml }: { url: string; database: string; yaml: string },
): string => `listen: 127.0.0.1:${new URL(url).port}
url: ${url}
database: "${database}"
gateway: { admin: "${gateway.adminAddress}", api: "${api}/v1", ${
  tokenFile === undefined ? `token: ${CUSTOMERS}, staff_token: ${STAFF}` : `token_file: "${tokenFile}"`
} }
${yaml}`

/** @param yaml further lines of console.yaml. @param at the name in its address */
export async function startConsole(
  gateway: GatewayPlace,
  {
    yaml = '',
    database,
    at = '127.0.0.1',
    port,
    ...overrides
  }: Overrides & { yaml?: string; database?: string; at?: string; port?: number } = {},
): Promise<TestConsole> {
  const url = `http://${at}:${port ?? (await freePort())}`
  database ??= await emptyDatabase()
  const config = parseConfig(consoleYaml(gateway, { url, database, yaml }), 'console.yaml')
  const mails: Mail[] = []
  const lines: string[] = []
  const keep = (one: Mail) => void mails.push(one)
  const mail = { send: keep, deliver: async (one: Mail) => keep(one), close: async () => {} }
  const opened = await openConsole(config, { mail, tell: line => void lines.push(line), ...overrides })
  const { db } = opened.parts
  const now = () => opened.parts.now()
  let read = 0
  const kit: TestConsole = {
    ...{ console: opened, config, url, mails, lines, close: () => opened.close() },
    visitor: () => new Visitor(url),
    async person(email, { staff = false } = {}) {
      const { id } = await ensurePerson(db, { email, name: '' }, now())
      if (staff) await db.updateTable('person').set({ staff: 1 }).where('id', '=', id).execute()
      const device = { address: '127.0.0.1', agent: 'test' }
      const secret = await beginSession(db, { person: id, means: 'link', complete: true }, device, now())
      const visitor = new Visitor(url)
      visitor.cookies.set('sluice-session', secret)
      return Object.assign(visitor, { id })
    },
    async organization(id, plan = 'beta') {
      await new StaffGateway(config, 'console').create(id, { plan, name: `Name of ${id}` })
      await db
        .insertInto('organization')
        .values({ id, name: `Name of ${id}`, created: now(), creator: null, deleted: null })
        .execute()
    },
    async member(organization, email, role) {
      const visitor = await kit.person(email)
      await addMember(db, organization, visitor.id, role, now())
      return visitor
    },
    async linkFor(email) {
      await eventually(() => mails.slice(read).some(({ to }) => to === email))
      const at = mails.findIndex(({ to }, i) => i >= read && to === email)
      read = at + 1
      return /https?:\/\/\S+/.exec(mails[at]!.text)![0]
    },
  }
  return kit
}

export interface Seen {
  status: number
  headers: Headers
  body: string
  /** The path of a redirection. */
  location: string | null
}

/** A browser without scripts. It follows no redirection by itself. */
export class Visitor {
  readonly cookies = new Map<string, string>()
  readonly #url: string
  #last = ''

  constructor(url: string) {
    this.#url = url
  }

  async get(path: string, headers: Record<string, string> = {}): Promise<Seen> {
    return this.#ask(path, { headers })
  }

  /**
   * Sends a form with the token of the page that was seen last.
   * @param fields `form` replaces the token. @param headers replace those that a browser sends
   */
  async post(path: string, fields: Record<string, string> = {}, headers: Record<string, string> = {}): Promise<Seen> {
    const form = this.formToken ?? ''
    return this.#ask(path, {
      method: 'POST',
      headers: { origin: this.#url, 'content-type': 'application/x-www-form-urlencoded', ...headers },
      body: new URLSearchParams({ form, ...fields }).toString(),
    })
  }

  /** Shows a page and sends its form. */
  async send(page: string, path: string, fields: Record<string, string> = {}): Promise<Seen> {
    await this.get(page)
    return this.post(path, fields)
  }

  get formToken(): string | undefined {
    return /name="form" value="([^"]+)"/.exec(this.#last)?.[1]
  }

  /** The value of a hidden field of the page that was seen last. */
  field(name: string): string {
    return new RegExp(`name="${name}"\\s+value="([^"]*)"`).exec(this.#last)![1]!
  }

  async #ask(path: string, init: RequestInit): Promise<Seen> {
    const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    const answer = await fetch(new URL(path, this.#url), {
      ...init,
      redirect: 'manual',
      headers: { ...(init.headers as Record<string, string>), ...(cookie && { cookie }) },
    })
    for (const line of answer.headers.getSetCookie()) {
      const [name, value] = line.split(';')[0]!.split('=') as [string, string]
      if (value === '') this.cookies.delete(name)
      else this.cookies.set(name, value)
    }
    const body = await answer.text()
    if (answer.headers.get('content-type')?.startsWith('text/html')) this.#last = body
    return { status: answer.status, headers: answer.headers, body, location: answer.headers.get('location') }
  }
}

/** The secret of a key, on the only page that has it. */
export const secretIn = ({ body }: Seen) => /<code id="secret">(sk-[\w-]+)<\/code>/.exec(body)?.[1]

/** Makes a key by the form of its page. @param fields of the form, beside its id. @returns the secret */
export async function newKey(
  visitor: Visitor,
  organization: string,
  fields: Record<string, string> = {},
): Promise<string> {
  const path = `/o/${organization}/keys/new`
  await visitor.get(path)
  return secretIn(await visitor.post(path, { id: visitor.field('id'), ...fields }))!
}
