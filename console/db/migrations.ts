/**
 * The versions of the console's database, in order. A migration that was released is never changed: what comes later is
 * one more. They run at the start, each in a transaction; of several consoles on one PostgreSQL one runs them while the
 * others wait.
 */
import { type CreateTableBuilder, type Kysely, PostgresAdapter, sql } from 'kysely'
import type { Migration } from 'kysely/migration'

type Columns = Record<string, 'text' | 'bigint'>

/** A table whose columns are all needed but for those with `?` at the end of their names. */
function table(db: Kysely<any>, name: string, columns: Columns): CreateTableBuilder<any, any> {
  let made: CreateTableBuilder<any, any> = db.schema.createTable(name)
  for (const [column, type] of Object.entries(columns))
    made = column.endsWith('?')
      ? made.addColumn(column.slice(0, -1), type)
      : made.addColumn(column, type, one => one.notNull())
  return made
}

const index = (db: Kysely<any>, table: string, columns: string[]) =>
  db.schema
    .createIndex(`${table}_${columns.join('_')}`)
    .on(table)
    .columns(columns)
    .execute()

/** Lets the database refuse to change or delete rows of a table. */
async function appendOnly(db: Kysely<any>, table: string): Promise<void> {
  const name = sql.id(`${table}_append_only`)
  const words = sql.lit(`rows of ${table} are added, and never changed`)
  if (db.getExecutor().adapter instanceof PostgresAdapter) {
    await sql`CREATE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql AS
      ${sql.lit(`BEGIN RAISE EXCEPTION 'rows of ${table} are added, and never changed'; END`)}`.execute(db)
    await sql`CREATE TRIGGER ${name} BEFORE UPDATE OR DELETE ON ${sql.table(table)}
      FOR EACH ROW EXECUTE FUNCTION ${name}()`.execute(db)
    return
  }
  for (const change of ['update', 'delete'])
    await sql`CREATE TRIGGER ${sql.id(`${table}_no_${change}`)} BEFORE ${sql.raw(change)} ON ${sql.table(table)}
      BEGIN SELECT RAISE(ABORT, ${words}); END`.execute(db)
}

export const MIGRATIONS: Record<string, Migration> = {
  '0001-people': {
    async up(db: Kysely<any>) {
      await table(db, 'person', {
        ...{ id: 'text', email: 'text', name: 'text', staff: 'bigint' },
        ...{ 'totp?': 'text', totp_step: 'bigint', created: 'bigint' },
      })
        .addPrimaryKeyConstraint('person_key', ['id'])
        .addUniqueConstraint('person_email', ['email'])
        .execute()
      await table(db, 'passkey', {
        ...{ id: 'text', person: 'text', label: 'text', public_key: 'text', counter: 'bigint' },
        ...{ transports: 'text', created: 'bigint', 'used?': 'bigint' },
      })
        .addPrimaryKeyConstraint('passkey_key', ['id'])
        .execute()
      await index(db, 'passkey', ['person'])
      await table(db, 'recovery_code', { person: 'text', digest: 'text' })
        .addPrimaryKeyConstraint('recovery_code_key', ['person', 'digest'])
        .execute()
      await table(db, 'session', {
        ...{ id: 'text', digest: 'text', person: 'text', means: 'text', complete: 'bigint' },
        ...{ created: 'bigint', seen: 'bigint', address: 'text', agent: 'text' },
      })
        .addPrimaryKeyConstraint('session_key', ['id'])
        .addUniqueConstraint('session_digest', ['digest'])
        .execute()
      await index(db, 'session', ['person'])
      await index(db, 'session', ['seen'])
      await table(db, 'link', {
        ...{ digest: 'text', purpose: 'text', email: 'text', 'person?': 'text', next: 'text' },
        ...{ created: 'bigint', expires: 'bigint' },
      })
        .addPrimaryKeyConstraint('link_key', ['digest'])
        .execute()
      await index(db, 'link', ['expires'])
      await table(db, 'challenge', {
        ...{ digest: 'text', purpose: 'text', 'person?': 'text', content: 'text', expires: 'bigint' },
      })
        .addPrimaryKeyConstraint('challenge_key', ['digest'])
        .execute()
      await index(db, 'challenge', ['expires'])
      await table(db, 'attempt', { name: 'text', since: 'bigint', count: 'bigint' })
        .addPrimaryKeyConstraint('attempt_key', ['name', 'since'])
        .execute()
      await index(db, 'attempt', ['since'])
      await table(db, 'organization', {
        ...{ id: 'text', name: 'text', created: 'bigint', 'creator?': 'text', 'deleted?': 'bigint' },
      })
        .addPrimaryKeyConstraint('organization_key', ['id'])
        .execute()
      await table(db, 'member', { organization: 'text', person: 'text', role: 'text', created: 'bigint' })
        .addPrimaryKeyConstraint('member_key', ['organization', 'person'])
        .execute()
      await index(db, 'member', ['person'])
      await table(db, 'invitation', {
        ...{ id: 'text', email: 'text', 'organization?': 'text', role: 'text', inviter: 'text' },
        ...{ created: 'bigint', expires: 'bigint', 'ended?': 'bigint' },
      })
        .addPrimaryKeyConstraint('invitation_key', ['id'])
        .execute()
      await index(db, 'invitation', ['organization'])
      await index(db, 'invitation', ['email'])
      await table(db, 'waiting', { email: 'text', note: 'text', created: 'bigint' })
        .addPrimaryKeyConstraint('waiting_key', ['email'])
        .execute()
      await table(db, 'event', {
        ...{ id: 'text', time: 'bigint', 'organization?': 'text', 'person?': 'text', action: 'text' },
        ...{ detail: 'text', address: 'text' },
      })
        .addPrimaryKeyConstraint('event_key', ['id'])
        .execute()
      await index(db, 'event', ['organization', 'id'])
      await index(db, 'event', ['person', 'id'])
    },
  },
  '0002-billing': {
    async up(db: Kysely<any>) {
      await table(db, 'payment', {
        ...{ id: 'text', provider: 'text', kind: 'text', state: 'text', 'organization?': 'text', 'customer?': 'text' },
        ...{ 'payment?': 'text', object: 'text', amount: 'bigint', currency: 'text' },
        ...{ time: 'bigint', received: 'bigint', 'person?': 'text', note: 'text' },
      })
        .addPrimaryKeyConstraint('payment_key', ['id'])
        .execute()
      await index(db, 'payment', ['organization'])
      await index(db, 'payment', ['customer'])
      await index(db, 'payment', ['payment'])
      await index(db, 'payment', ['received'])
      await appendOnly(db, 'payment')
      await table(db, 'customer', { customer: 'text', organization: 'text', created: 'bigint' })
        .addPrimaryKeyConstraint('customer_key', ['customer'])
        .execute()
      await index(db, 'customer', ['organization'])
      await table(db, 'billing_work', {
        ...{
          organization: 'text',
          stamp: 'text',
          due: 'bigint',
          claimed: 'bigint',
          attempts: 'bigint',
          'fault?': 'text',
        },
      })
        .addPrimaryKeyConstraint('billing_work_key', ['organization'])
        .execute()
      await index(db, 'billing_work', ['due'])
      await table(db, 'tier_move', {
        ...{ id: 'text', organization: 'text', from_plan: 'text', to_plan: 'text', because: 'text' },
        ...{ counted: 'bigint', created: 'bigint', 'applied?': 'bigint', 'dropped?': 'bigint' },
      })
        .addPrimaryKeyConstraint('tier_move_key', ['id'])
        .execute()
      await index(db, 'tier_move', ['organization', 'created'])
      await table(db, 'hold', {
        ...{ id: 'text', organization: 'text', why: 'text', note: 'text', 'person?': 'text' },
        ...{ created: 'bigint', 'ended?': 'bigint', 'ender?': 'text' },
      })
        .addPrimaryKeyConstraint('hold_key', ['id'])
        .execute()
      await index(db, 'hold', ['organization'])
      await index(db, 'hold', ['ended'])
      await table(db, 'review', {
        ...{ id: 'text', organization: 'text', plan: 'text', state: 'text' },
        ...{ created: 'bigint', 'decided?': 'bigint', 'person?': 'text' },
      })
        .addPrimaryKeyConstraint('review_key', ['id'])
        .execute()
      await index(db, 'review', ['organization'])
      await index(db, 'review', ['state'])
      await table(db, 'credit', {
        ...{
          id: 'text',
          organization: 'text',
          payment: 'text',
          amount: 'bigint',
          created: 'bigint',
          'given?': 'bigint',
        },
      })
        .addPrimaryKeyConstraint('credit_key', ['id'])
        .execute()
      await index(db, 'credit', ['organization'])
      await table(db, 'metered', {
        ...{ id: 'text', organization: 'text', customer: 'text', model: 'text', hour: 'bigint', event_name: 'text' },
        ...{ amount: 'bigint', total: 'bigint', created: 'bigint', 'tried?': 'bigint', due: 'bigint' },
        ...{ 'sent?': 'bigint', 'fault?': 'text' },
      })
        .addPrimaryKeyConstraint('metered_key', ['id'])
        .execute()
      await index(db, 'metered', ['hour'])
      await index(db, 'metered', ['sent', 'due'])
      await table(db, 'notice', {
        ...{ id: 'text', person: 'text', subject: 'text', body: 'text', created: 'bigint' },
        ...{ due: 'bigint', attempts: 'bigint', 'sent?': 'bigint' },
      })
        .addPrimaryKeyConstraint('notice_key', ['id'])
        .execute()
      await index(db, 'notice', ['sent', 'due'])
      await index(db, 'notice', ['person'])
      await table(db, 'lease', { name: 'text', holder: 'text', until: 'bigint', state: 'text' })
        .addPrimaryKeyConstraint('lease_key', ['name'])
        .execute()
    },
  },
  '0003-metered-dropped': {
    async up(db: Kysely<any>) {
      await db.schema.alterTable('metered').addColumn('dropped', 'bigint').execute()
    },
  },
}
