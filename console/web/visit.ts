/** What a handler of a page gets and gives. */
import type { HtmlEscapedString } from 'hono/utils/html'
import type { ConsoleConfig } from '../config.ts'
import type { Database } from '../db/tables.ts'
import type { Gateway, SendRequest } from '../gateway.ts'
import type { Mailer } from '../mail.ts'
import type { Membership } from '../people/memberships.ts'
import type { Right } from '../people/roles.ts'
import type { Session } from '../people/sessions.ts'
import type { Assets } from '../views/assets.ts'

export type Html = HtmlEscapedString | Promise<HtmlEscapedString>

/** What the console is made of. Everything that a page needs beyond its request is here. */
export interface Parts {
  config: ConsoleConfig
  db: Database
  mail: Mailer
  /** Sends to the admin API with the token that acts for one organization; a page has `visit.gateway` instead. */
  send: SendRequest
  assets: Assets
  /** The entries of the menu. */
  menu: readonly MenuEntry[]
  /** Unix ms. */
  now(): number
  /** A line of the log. */
  tell(line: string): void
  /** Does something after the answer, which then does not tell by its time what was done. */
  later(work: () => Promise<void>): void
}

/** The fields of a form that was sent; none for a GET. */
export type Form = URLSearchParams

/** Any request. */
export interface Visit {
  parts: Parts
  db: Database
  now: number
  /** The path with its query. */
  url: URL
  /** What stands in the path for `:name`. */
  params: Record<string, string>
  form: Form
  /** Who is signed in, with every factor. */
  session: Session | null
  /** Who has given the first factor, and is asked for the second. */
  pending: Session | null
  /** The value of the field `form` in every form of the answer. */
  formToken: string
  address: string
  agent: string
  /** What was wrong with the form that was sent: the page shows it. */
  fault: string | null
  /** The organizations of who is signed in. */
  memberships: readonly Membership[]
  /** Gives the answer the cookie of a session, or takes it away (null). */
  setSession(secret: string | null): void
}

/** The request of somebody who is signed in. */
export interface PersonVisit extends Visit {
  session: Session
}

/** The request of a member, about the organization of the path. */
export interface MemberVisit extends PersonVisit {
  organization: Membership
  /** Whether the member's role has a right, for what a page offers. */
  may(right: Right): boolean
  /** The admin API, for this organization and this person. */
  gateway: Gateway
}

/** A request of a program, such as a webhook: no session, no form, the bytes as they came. */
export interface MachineVisit {
  parts: Parts
  db: Database
  now: number
  params: Record<string, string>
  headers: Headers
  body: Buffer
}

export interface Answer {
  status: number
  headers: Record<string, string>
  /** A stream goes on as it comes, and is cancelled when its reader leaves. */
  body: Html | string | Buffer | ReadableStream<Uint8Array>
}

/** A refusal that people see as a page. */
export class Refusal extends Error {
  readonly status: number
  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

/** A field of the form is not as it must be; the page is shown again, with these words. */
export class FormFault extends Error {}

export interface MenuEntry {
  label: string
  /** Below the organization (`/keys`), or from the root for pages of staff. */
  path: string
  /** Who sees it. */
  right: Right | 'staff'
}

type Handler<V> = (visit: V) => Promise<Answer> | Answer

interface Base {
  method: 'GET' | 'POST'
  /** As Hono writes it, with `:name` for what varies. */
  path: string
}

/**
 * A route says by itself who may use it. The test of tenants, paths, roles and methods is made from this list, so a new
 * route is in it without being named there.
 */
export type Route =
  | (Base & { scope: 'public'; handle: Handler<Visit>; again?: Handler<Visit> })
  | (Base & { scope: 'person'; handle: Handler<PersonVisit>; again?: Handler<PersonVisit> })
  | (Base & { scope: 'member'; right: Right; handle: Handler<MemberVisit>; again?: Handler<MemberVisit> })
  | (Base & { scope: 'staff'; handle: Handler<PersonVisit>; again?: Handler<PersonVisit> })
  | (Base & { scope: 'machine'; handle: Handler<MachineVisit> })

/** A page, in a folder of its own: what it answers, and its place in the menu. */
export interface Page {
  name: string
  menu?: MenuEntry
  routes: readonly Route[]
  /** Files that it serves under /assets/: by name, absolute paths. */
  assets?: Record<string, string>
}

/** Below an organization. `again` shows the form of a POST once more, when what it had was refused. */
const member =
  (method: 'GET' | 'POST') =>
  (path: string, right: Right, handle: Handler<MemberVisit>, again?: Handler<MemberVisit>): Route => ({
    ...{ method, path: `/o/:organization${path}`, scope: 'member', right, handle },
    ...(again && { again }),
  })

const of =
  <S extends 'public' | 'person' | 'staff'>(scope: S, method: 'GET' | 'POST') =>
  (
    path: string,
    handle: Handler<S extends 'public' ? Visit : PersonVisit>,
    again?: Handler<S extends 'public' ? Visit : PersonVisit>,
  ): Route =>
    ({ method, path, scope, handle, ...(again && { again }) }) as Route

/** Pages of an organization: `get.member('/keys', 'keys.see', show)` answers /o/ORGANIZATION/keys. */
export const get = {
  member: member('GET'),
  person: of('person', 'GET'),
  public: of('public', 'GET'),
  staff: of('staff', 'GET'),
}
/** Forms. Each has the field `form`, which views/parts.ts puts into it. */
export const post = {
  member: member('POST'),
  person: of('person', 'POST'),
  public: of('public', 'POST'),
  staff: of('staff', 'POST'),
  /** For programs that sign what they send; the handler checks the signature. */
  machine: (path: string, handle: Handler<MachineVisit>): Route => ({ method: 'POST', path, scope: 'machine', handle }),
}

// ---- answers --------------------------------------------------------------------------------------------------------

/**
 * Goes on to a path of the console, as a GET.
 * @param done a word that the page there shows as a sentence: `NOTES` of views/notes.ts
 */
export function see(path: string, done?: string): Answer {
  const location = done === undefined ? path : `${path}${path.includes('?') ? '&' : '?'}done=${done}`
  return { status: 303, headers: { location }, body: '' }
}

export const json = (body: unknown, status = 200): Answer => ({
  ...{ status, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) },
})

/** A path of this console to which a form or a link may send its reader; anything else is `/`. */
export function ownPath(text: string | null | undefined): string {
  if (!text || !/^\/(?![/\\])[\x21-\x7e]*$/.test(text) || text.includes('\\')) return '/'
  const base = 'http://own.invalid'
  return URL.canParse(text, base) && new URL(text, base).origin === base ? text : '/'
}
