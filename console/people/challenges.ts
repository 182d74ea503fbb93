/** What somebody else is asked to answer, such as an authenticator: each challenge is answered once, within minutes. */
import type { ChallengeTable, Database } from '../db/tables.ts'
import { digestOf, newSecret } from './secrets.ts'

const LIFE_MS = 5 * 60_000

/** @returns the secret by which the answer names it */
export async function newChallenge(
  db: Database,
  { purpose, person, content }: Pick<ChallengeTable, 'purpose' | 'person'> & { content: unknown },
  now: number,
): Promise<string> {
  const secret = newSecret()
  await db
    .insertInto('challenge')
    .values({ digest: digestOf(secret), purpose, person, content: JSON.stringify(content), expires: now + LIFE_MS })
    .execute()
  return secret
}

/** Uses a challenge up. @returns its content; null when there is none of that purpose and person */
export async function useChallenge(
  db: Database,
  secret: string,
  { purpose, person }: Pick<ChallengeTable, 'purpose' | 'person'>,
  now: number,
): Promise<any> {
  const used = await db
    .deleteFrom('challenge')
    .where('digest', '=', digestOf(secret))
    .where('purpose', '=', purpose)
    .where('person', person === null ? 'is' : '=', person)
    .where('expires', '>', now)
    .returning('content')
    .executeTakeFirst()
  return used ? JSON.parse(used.content) : null
}
