/** The native part of uWebSockets.js: which file it is, and whether it is the one we tested (reliability 2.1, row 53). */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/**
 * SHA-256 of the files that this version of Sluice was tested with (uws-pack 20.0.8, Node 22, glibc). A prebuilt binary from a third party is
 * pinned by its bytes, not by a version number alone. docs/listeners.md says how to pin another.
 */
const pinned: ReadonlyMap<string, string> = new Map([
  ['uws_linux_x64_127.node', '8cabc918bbf9a07323e54f89a33882491080b2eb35df0607f473ccdb1f3c31af'],
  ['uws_linux_arm64_127.node', 'd4c4f8b2c28c5f6544b49e36d91b0beee238a5b90a07904a947f77061c8b814d'],
])

/** What decides which file is loaded; an argument so that tests can be on another machine. */
export interface Platform {
  platform: string
  arch: string
  /** `process.versions.modules` */
  abi: string
}

const wayOut = 'Set `listener: node` in gateway.yaml: the same contract on node:http, on any Node and any system'

/** The start-up error of decisions 38. It names the way out. */
export class NoUwsBinary extends Error {
  override readonly name = 'NoUwsBinary'
  constructor(reason: string, options?: ErrorOptions) {
    super(`listener: uws can't start: ${reason}. ${wayOut}.`, options)
  }
}

/**
 * Checks the file that uWebSockets.js is about to load. Throws NoUwsBinary when there is none for this machine or its bytes are not the pinned
 * ones. Returns its name.
 */
export function checkNativeFile(
  on: Platform = { platform: process.platform, arch: process.arch, abi: process.versions.modules },
  read: (name: string) => Uint8Array = name =>
    readFileSync(fileURLToPath(new URL(`bin/${name}`, import.meta.resolve('uWebSockets.js')))),
): string {
  const name = `uws_${on.platform}_${on.arch}_${on.abi}.node`
  const want = pinned.get(name)
  if (want === undefined) {
    throw new NoUwsBinary(
      `there is no tested binary of uWebSockets.js for ${on.platform} ${on.arch} with Node ABI ${on.abi} (tested: Linux x64 and arm64, glibc, Node 22)`,
    )
  }
  let bytes: Uint8Array
  try {
    bytes = read(name)
  } catch (cause) {
    throw new NoUwsBinary(`the native file ${name} can't be read`, { cause })
  }
  const have = createHash('sha256').update(bytes).digest('hex')
  if (have !== want) throw new NoUwsBinary(`the native file ${name} has SHA-256 ${have}, pinned is ${want}`)
  return name
}
