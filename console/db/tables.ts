/**
 * The tables of the console. Times are Unix milliseconds, flags 0 or 1, and digests SHA-256 in base64url: the same columns
 * on SQLite and PostgreSQL. A page that keeps something of its own adds its tables here, and to migrations.ts.
 */
import type { Kysely } from 'kysely'
import type { Role } from '../people/roles.ts'

export type Database = Kysely<Tables>

export interface Tables {
  person: PersonTable
  passkey: PasskeyTable
  recovery_code: RecoveryCodeTable
  session: SessionTable
  link: LinkTable
  challenge: ChallengeTable
  attempt: AttemptTable
  organization: OrganizationTable
  member: MemberTable
  invitation: InvitationTable
  waiting: WaitingTable
  event: EventTable
}

export interface PersonTable {
  id: string
  /** In lower case. */
  email: string
  name: string
  /** 1 for a member of the operator's staff. */
  staff: number
  /** The secret of TOTP in base32; null where it is off. */
  totp: string | null
  /** The last step of TOTP that was accepted: each code works once. */
  totp_step: number
  created: number
}

export interface PasskeyTable {
  /** The credential's id. */
  id: string
  person: string
  label: string
  /** COSE, in base64url. */
  public_key: string
  counter: number
  /** JSON. */
  transports: string
  created: number
  used: number | null
}

export interface RecoveryCodeTable {
  person: string
  digest: string
}

export interface SessionTable {
  /** By which a session is listed and revoked; the cookie has another secret. */
  id: string
  digest: string
  person: string
  /** How its person signed in: link, passkey, or the id of an OpenID provider. */
  means: string
  /** 0 while a second factor is still asked for. */
  complete: number
  created: number
  seen: number
  address: string
  agent: string
}

/** Links of mails, each of which works once. */
export interface LinkTable {
  digest: string
  purpose: 'sign-in' | 'first' | 'email'
  email: string
  /** The person whose address changes. */
  person: string | null
  /** Where to go afterwards. */
  next: string
  created: number
  expires: number
}

/** What an authenticator or an OpenID provider is asked to answer, each once. */
export interface ChallengeTable {
  digest: string
  purpose: 'register' | 'sign-in' | 'second' | 'openid'
  person: string | null
  /** JSON. */
  content: string
  expires: number
}

export interface AttemptTable {
  /** What is counted, such as `sign-in address 192.0.2.1`. */
  name: string
  /** When its window began. */
  since: number
  count: number
}

export interface OrganizationTable {
  /** The gateway's id of it. */
  id: string
  name: string
  created: number
  creator: string | null
  /** When its owner deleted it. */
  deleted: number | null
}

export interface MemberTable {
  organization: string
  person: string
  role: Role
  created: number
}

/** Known by its address alone: whoever signs in with it finds the invitation. */
export interface InvitationTable {
  id: string
  email: string
  /** Null: to open an organization of one's own. */
  organization: string | null
  role: Role
  inviter: string
  created: number
  expires: number
  /** When it was accepted or taken back. */
  ended: number | null
}

export interface WaitingTable {
  email: string
  note: string
  created: number
}

/** What people did in the console; what they changed at the gateway is in the gateway's audit, too. */
export interface EventTable {
  /** In the order of time. */
  id: string
  time: number
  organization: string | null
  person: string | null
  action: string
  /** For people, without secrets. */
  detail: string
  address: string
}
