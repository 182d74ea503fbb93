/** Addresses of people. */

/**
 * An address as it is stored and compared, or null for what is none. It has no character that means something in a
 * header of a mail, so that a form cannot add one.
 */
export function emailOf(text: unknown): string | null {
  const email = typeof text === 'string' ? text.trim().toLowerCase() : ''
  return email.length <= 254 && /^[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[a-z0-9-]+(\.[a-z0-9-]+)*$/.test(email)
    ? email
    : null
}

/** A name as people write it, in one line; null when it is empty or too long. */
export function nameOf(text: unknown, most = 80): string | null {
  const name = typeof text === 'string' ? text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ').trim() : ''
  return name !== '' && name.length <= most ? name : null
}
