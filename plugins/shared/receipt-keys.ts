/**
 * The keys that receipts are signed with. In a folder each is a PEM file; names sort by age. A new key is published at
 * once and signs a while later, so that whoever has fetched the published keys meets no signature of one that is not
 * among them. What was published stays: private keys of before become public ones.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import type { ReceiptsConfig } from '../../config/types.ts'
import type { Logger, SharedState } from '../../core/plugin.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { token } from '../../core/tools/ids.ts'
import { type PublishedKey, publishedOf, type SigningKey } from './receipt.ts'
import { receiptKeysKey } from './state.ts'

/** The folder is read again after this time at the earliest. */
const READ_MS = 60_000
/** A folder that cannot be used is looked at again after this time. */
const FAILED_MS = 5000
/** A key signs once it has been there for so long, where there is another one. */
const SIGNS_AFTER_MS = 300_000

/** The keys as they are at a moment, the newest first. */
interface Keys {
  signing: SigningKey
  published: PublishedKey[]
}

/** The keys of one configuration. */
export class ReceiptKeys {
  readonly #config: ReceiptsConfig
  readonly #clock: Clock
  readonly #log: Logger | undefined
  #keys: Keys | undefined
  #readAt = 0
  #failed: { error: Error; at: number } | undefined

  /** @throws Error for a listed key that is none */
  constructor(config: ReceiptsConfig, clock: Clock, log?: Logger) {
    this.#config = config
    this.#clock = clock
    this.#log = log
    if (config.keys.length > 0) this.#keys = ofList(config.keys)
  }

  /** @throws Error that names the file and the cure, which the log has, too */
  get signing(): SigningKey {
    return this.#now().signing
  }

  get published(): PublishedKey[] {
    return this.#now().published
  }

  #now(): Keys {
    const { folder } = this.#config
    if (folder === null) return (this.#keys ??= ofList([made()]))
    const now = this.#clock.mono()
    if (this.#keys && now - this.#readAt < READ_MS) return this.#keys
    if (this.#failed && now - this.#failed.at < FAILED_MS) throw this.#failed.error
    try {
      this.#keys = ofFolder(folder)
      this.#readAt = now
      this.#failed = undefined
      return this.#keys
    } catch (error) {
      this.#failed = { error: error as Error, at: now }
      // The line of a failed request has no message: it might quote a prompt.
      this.#log?.error({ fault: (error as Error).message }, 'the keys of receipts cannot be used')
      throw error
    }
  }
}

/** The keys of a configuration, the same for all plugins and over reloads. @throws Error for a listed key that is none */
export function receiptKeys(config: ReceiptsConfig, shared: SharedState, clock: Clock, log: Logger): ReceiptKeys {
  const all = shared.use(receiptKeysKey, () => new Map<string, ReceiptKeys>())
  const id = JSON.stringify([config.folder, config.keys])
  let keys = all.get(id)
  if (!keys) {
    keys = new ReceiptKeys(config, clock, log)
    // What a configuration before had is not needed any more.
    if (all.size > 1) all.delete(all.keys().next().value!)
    all.set(id, keys)
  }
  return keys
}

function ofList(list: readonly string[]): Keys {
  const keys = list.map((text, i) => read(text, `receipts.keys[${i}]`))
  const [first] = keys
  if (first!.type !== 'private')
    throw new Error('receipts.keys[0] is a public key; the first one signs, so it is a private one')
  const published = keys.map(publishedOf)
  return { signing: { id: published[0]!.kid, key: first! }, published }
}

function read(text: string, where: string): KeyObject {
  try {
    const key = text.includes('PRIVATE KEY') ? createPrivateKey(text) : createPublicKey(text)
    publishedOf(key)
    return key
  } catch {
    throw new Error(`${where} is no Ed25519 key as PEM; make one: openssl genpkey -algorithm ed25519`)
  }
}

interface File {
  file: string
  key: KeyObject
  /** Unix ms. */
  made: number
}

/** The files of a folder, the newest first. */
function filesOf(folder: string): File[] {
  const names = fs.existsSync(folder) ? fs.readdirSync(folder).filter(name => name.endsWith('.pem')) : []
  return names
    .sort()
    .reverse()
    .map(name => {
      const file = path.join(folder, name)
      const key = read(fs.readFileSync(file, 'utf8'), file)
      const { mode, mtimeMs, uid } = fs.statSync(file)
      // What is mounted for the gateway is somebody else's, and readable to its group.
      const others = uid === process.getuid?.() ? 0o077 : 0o007
      if (key.type === 'private' && (mode & others) !== 0)
        throw new Error(`${file} is a private key that others may read; run: chmod 600 ${file}`)
      return { file, key, made: mtimeMs }
    })
}

function ofFolder(folder: string): Keys {
  let files = filesOf(folder)
  if (!files.some(({ key }) => key.type === 'private')) {
    add(folder, files.length === 0)
    files = filesOf(folder)
  }
  const { key } = signingOf(files.filter(({ key }) => key.type === 'private'))!
  return { signing: { id: publishedOf(key).kid, key }, published: files.map(file => publishedOf(file.key)) }
}

const made = (): string => generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }) as string

/** Writes a new key. Of several processes that make the first one of a folder, one does. @returns its file */
function add(folder: string, first: boolean): string {
  fs.mkdirSync(folder, { recursive: true, mode: 0o700 })
  // Sorts behind the first one, and behind all that were made before.
  const name = first ? 'first.pem' : `key-${new Date().toISOString().replace(/[-:.]/g, '')}.pem`
  const file = path.join(folder, name)
  const whole = `${file}.${token(8)}`
  fs.writeFileSync(whole, made(), { mode: 0o600, flag: 'wx' })
  try {
    fs.linkSync(whole, file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    fs.rmSync(whole)
  }
  return file
}

/** The key that signs: the newest that has been there for long enough, else the oldest. `own`: the newest first. */
const signingOf = (own: readonly File[]): File | undefined =>
  // Whether a key has been there for long is told by its file, so by the clock of the system.
  own.find(({ made }) => Date.now() - made >= SIGNS_AFTER_MS) ?? own.at(-1)

/**
 * Adds a key to a folder. The one that signs goes on until the new one does; those before it are no longer needed, and
 * become public keys.
 * @returns the new key's id, and the ids of those that became public
 */
export function rotate(folder: string): { added: string; retired: string[] } {
  const files = filesOf(folder)
  const own = files.filter(({ key }) => key.type === 'private')
  const file = add(folder, files.length === 0)
  const retired = own.slice(own.indexOf(signingOf(own)!) + 1)
  for (const { file, key } of retired) {
    const open = `${file}.${token(8)}`
    fs.writeFileSync(open, createPublicKey(key).export({ type: 'spki', format: 'pem' }), { mode: 0o600 })
    fs.renameSync(open, file)
  }
  return {
    added: publishedOf(read(fs.readFileSync(file, 'utf8'), file)).kid,
    retired: retired.map(({ key }) => publishedOf(key).kid),
  }
}
