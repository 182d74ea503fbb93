/**
 * The console's cookies. With TLS their names begin with `__Host-`, so that no other host of the domain can set them.
 * A browser takes such a name from https alone; on loopback without TLS the names are plain, and everything else is
 * the same.
 */
import type { Context } from 'hono'

export function cookieNames(url: string): { session: string; form: string } {
  const prefix = url.startsWith('https:') ? '__Host-' : ''
  return { session: `${prefix}sluice-session`, form: `${prefix}sluice-form` }
}

/** A secret of 43 characters; anything else under that name is none. One that is there twice is none. */
export function readCookie(c: Context, name: string): string | undefined {
  const found = (c.req.header('cookie') ?? '').split(';').flatMap(pair => {
    const at = pair.indexOf('=')
    return at > 0 && pair.slice(0, at).trim() === name ? [pair.slice(at + 1).trim()] : []
  })
  return found.length === 1 && /^[A-Za-z0-9_-]{43}$/.test(found[0]!) ? found[0] : undefined
}

/** @param secret null takes the cookie away. @param life ms; null: until the browser closes */
export function writeCookie(url: string, name: string, secret: string | null, life: number | null): string {
  const age = secret === null ? '; Max-Age=0' : life === null ? '' : `; Max-Age=${Math.floor(life / 1000)}`
  return `${name}=${secret ?? ''}; Path=/; HttpOnly; SameSite=Lax${url.startsWith('https:') ? '; Secure' : ''}${age}`
}
