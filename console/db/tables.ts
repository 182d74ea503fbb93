/**
 * The tables of the console. Times are Unix milliseconds, flags 0 or 1, and digests SHA-256 in base64url: the same
 * columns on SQLite and PostgreSQL. A page that keeps something of its own adds its tables here, and to migrations.ts.
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
  payment: PaymentTable
  customer: CustomerTable
  billing_work: BillingWorkTable
  tier_move: TierMoveTable
  hold: HoldTable
  review: ReviewTable
  credit: CreditTable
  metered: MeteredTable
  notice: NoticeTable
  lease: LeaseTable
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

/**
 * Money that arrived, and what became of it. Rows are added and never changed: the database itself refuses it. What
 * counts is worked out of them in billing/payments.ts.
 */
export interface PaymentTable {
  /** The provider's id of the event; one of our own for a row by hand. */
  id: string
  /** `stripe`, `hand`, or the name of another biller. */
  provider: string
  kind: 'settled' | 'refund' | 'dispute' | 'adjustment'
  /** As of this event: a refund is `made` or `failed`, a dispute `open`, `won` or `lost`; anything else is ''. */
  state: '' | 'made' | 'failed' | 'open' | 'won' | 'lost'
  /** Null where it follows from the customer or from the payment. */
  organization: string | null
  /** The provider's id of the customer. */
  customer: string | null
  /** The payment that it is, or is about. */
  payment: string | null
  /** The refund, dispute or payment itself: events with one object are about one thing. */
  object: string
  /** In the smallest unit of the currency; below zero for adjustments alone. */
  amount: number
  /** In lower case; usd alone counts. */
  currency: string
  /** When it happened, by the provider. */
  time: number
  received: number
  /** Who of staff wrote it. */
  person: string | null
  note: string
}

/** Which customer of the provider is which organization. */
export interface CustomerTable {
  customer: string
  organization: string
  created: number
}

/** Organizations whose tier or balance has to be looked at: the outbox to the gateway. */
export interface BillingWorkTable {
  organization: string
  /** Another one each time that there is something new. */
  stamp: string
  due: number
  /** Until when a console works at it. */
  claimed: number
  attempts: number
  /** Why the last attempt failed. */
  fault: string | null
}

export interface TierMoveTable {
  id: string
  organization: string
  from_plan: string
  to_plan: string
  because: 'paid' | 'review' | 'fell'
  /** What counted then, in cents. */
  counted: number
  created: number
  /** When the gateway had it. */
  applied: number | null
  /** When it was given up, because something else came first. */
  dropped: number | null
}

export interface HoldTable {
  id: string
  organization: string
  /** `fell` was set by the console itself. */
  why: 'fell' | 'staff'
  note: string
  person: string | null
  created: number
  ended: number | null
  /** Who lifted it. */
  ender: string | null
}

export interface ReviewTable {
  id: string
  organization: string
  plan: string
  /** A hold ends reviews: after it they are due again. */
  state: 'open' | 'granted' | 'refused' | 'ended'
  created: number
  decided: number | null
  person: string | null
}

/** What was given to the balances of prepaid organizations. */
export interface CreditTable {
  /** By which the gateway knows it. */
  id: string
  organization: string
  payment: string
  /** In cents; below zero for what is taken back, 0 for a payment that is no credit. */
  amount: number
  created: number
  /** When the gateway had it. */
  given: number | null
}

/** Usage that is reported to the provider's meters: each row is one event. */
export interface MeteredTable {
  /** The identifier by which the provider takes it once. */
  id: string
  organization: string
  /** '' where it is not to be reported. */
  customer: string
  model: string
  /** The beginning of the hour. */
  hour: number
  event_name: string
  /** What is reported now, and the sum of the hour with it. */
  amount: number
  total: number
  created: number
  /** When it was first sent without a clear answer. */
  tried: number | null
  /** When it may be sent again. */
  due: number
  sent: number | null
  fault: string | null
  /** When staff gave it up: the provider did not take it, and does not bill it. */
  dropped: number | null
}

/** Mails that are sent once. The address is that of the person when it is sent. */
export interface NoticeTable {
  /** What it is about, and to whom. */
  id: string
  person: string
  subject: string
  body: string
  created: number
  due: number
  attempts: number
  sent: number | null
}

/** Which of several consoles does a work that comes back, and where it stands. */
export interface LeaseTable {
  name: string
  holder: string
  until: number
  /** JSON. */
  state: string
}
