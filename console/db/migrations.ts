/**
 * The versions of the console's database, in order. A migration that was released is never changed: what comes later is
 * one more. They run at the start, each in a transaction; of several consoles on one PostgreSQL one runs them while the
 * others wait.
 */
import type { CreateTableBuilder, Kysely } from 'kysely'
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
}
