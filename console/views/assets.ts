/** Style sheet, scripts and icon, read once and served from memory. Nothing is fetched from elsewhere. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { basename, join } from 'node:path'

const TYPES: Record<string, string> = {
  css: 'text/css; charset=utf-8',
  mjs: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
}

export interface Assets {
  /** By name. */
  files: ReadonlyMap<string, { type: string; body: Buffer }>
  /** The address of a file; another one when its content changes, so that a browser may keep it. */
  path(name: string): string
}

const HERE = import.meta.dirname
/** What the dashboard of the gateway has, too: colours, icon, and the button for the theme. */
const SHARED = join(HERE, '../../admin/dashboard')

/** @param more files of pages: by name, absolute paths */
export function loadAssets(more: Record<string, string>): Assets {
  const files = new Map<string, { type: string; body: Buffer }>()
  const add = (name: string, body: Buffer) =>
    files.set(name, { type: TYPES[name.slice(name.lastIndexOf('.') + 1)]!, body })
  const style = [join(SHARED, 'tokens.css'), join(HERE, 'style.css')].map(file => readFileSync(file))
  add('style.css', Buffer.concat(style))
  for (const file of [join(SHARED, 'icon.svg'), join(HERE, 'page.mjs'), join(HERE, 'passkey.mjs')])
    add(basename(file), readFileSync(file))
  for (const [name, file] of Object.entries(more)) add(name, readFileSync(file))
  const versions = new Map([...files].map(([name, { body }]) => [name, versionOf(body)]))
  return { files, path: name => `/assets/${name}?v=${versions.get(name) ?? ''}` }
}

const versionOf = (body: Buffer) => createHash('sha256').update(body).digest('base64url').slice(0, 12)
