/** Random ids and secrets, their digests, and comparing them. */
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto'

/** 256 bits that nobody guesses, for cookies and links. */
export const newSecret = (): string => randomBytes(32).toString('base64url')

/** What is stored of a secret: whoever reads the database can use none. */
export const digestOf = (secret: string): string => createHash('sha256').update(secret).digest('base64url')

/** An id that sorts by the time of its making. @param now Unix ms */
export function newId(now: number): string {
  return now.toString(36).padStart(9, '0') + randomBytes(10).toString('hex')
}

/** The token in the forms of a session: derived from its secret, so that nothing more is stored. */
export const formToken = (secret: string): string => createHmac('sha256', secret).update('form').digest('base64url')

export function sameText(a: string, b: string): boolean {
  const [x, y] = [Buffer.from(a), Buffer.from(b)]
  return x.length === y.length && timingSafeEqual(x, y)
}
