/**
 * Prints the software bill of materials (SBOM) of a production install: CycloneDX 1.6 as JSON, made of package-lock.json
 * alone, so that the same sources make the same bytes. It lists what an install on any processor may hold, each with the
 * digest that npm checks. `npm sbom` leaves out packages that development needs as well, such as undici, and `npm ls`
 * knows only those of the machine that it runs on.
 *
 *   npm run -s sbom > sluice.cdx.json
 *   npm run -s sbom -- console         of the console, which has packages of its own
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const ROOT = dirname(import.meta.dirname)

interface Package {
  name?: string
  version: string
  license: string
  integrity?: string
  dev?: boolean
  optional?: boolean
  dependencies?: Record<string, string>
  optionalDependencies?: Record<string, string>
  peerDependencies?: Record<string, string>
}

const lock = JSON.parse(readFileSync(join(ROOT, process.argv[2] ?? '', 'package-lock.json'), 'utf8')) as {
  packages: Record<string, Package>
}
const { '': root, ...others } = lock.packages as { '': Package }
const packages = new Map(Object.entries<Package>(others).filter(([, { dev }]) => !dev))

const purl = (name: string, version: string) => `pkg:npm/${name.replace('@', '%40')}@${version}`
const nameOf = (path: string) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
const refOf = (path: string) =>
  path === '' ? purl(root.name!, root.version) : purl(nameOf(path), packages.get(path)!.version)

/** Where a package that is asked for at `path` is found, as Node looks for it; undefined where it is not installed. */
function found(name: string, path: string): string | undefined {
  for (let folder = path; ; folder = folder.slice(0, Math.max(0, folder.lastIndexOf('/node_modules/')))) {
    const candidate = `${folder === '' ? '' : `${folder}/`}node_modules/${name}`
    if (packages.has(candidate)) return candidate
    if (folder === '') return undefined
  }
}

/** Digest and licence as CycloneDX has them. */
function component(path: string, { version, license, integrity, optional }: Package) {
  const name = nameOf(path)
  const [group, rest] = name.startsWith('@') ? name.split('/') : [undefined, name]
  const [, digest] = /^sha512-(.+)$/.exec(integrity ?? '') ?? []
  if (digest === undefined) throw new Error(`package-lock.json has no sha512 digest of ${path}`)
  return {
    type: 'library',
    'bom-ref': purl(name, version),
    ...(group && { group }),
    name: rest,
    version,
    scope: optional ? 'optional' : 'required',
    hashes: [{ alg: 'SHA-512', content: Buffer.from(digest, 'base64').toString('hex') }],
    // One that is no single licence of SPDX is an expression of several.
    licenses: [/[ ()]/.test(license) ? { expression: license } : { license: { id: license } }],
    purl: purl(name, version),
  }
}

const needs = ({ dependencies, optionalDependencies, peerDependencies }: Package) =>
  Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies })
const bom = {
  metadata: {
    lifecycles: [{ phase: 'build' }],
    component: {
      type: 'application',
      'bom-ref': refOf(''),
      name: root.name,
      version: root.version,
      licenses: [{ license: { id: root.license } }],
      purl: refOf(''),
    },
  },
  components: Array.from(packages, ([path, of]) => component(path, of)),
  dependencies: [['', root] as const, ...packages].map(([path, of]) => ({
    ref: refOf(path),
    dependsOn: [...new Set(needs(of).flatMap(name => found(name, path) ?? []))].map(refOf).sort(),
  })),
}

/** A UUID (version 8) of the content: a bill that says the same has the same number. */
const digest = createHash('sha256').update(JSON.stringify(bom)).digest('hex')
const uuid = `${digest.slice(0, 8)}-${digest.slice(8, 12)}-8${digest.slice(13, 16)}-8${digest.slice(17, 20)}-${digest.slice(20, 32)}`
process.stdout.write(
  `${JSON.stringify({ bomFormat: 'CycloneDX', specVersion: '1.6', serialNumber: `urn:uuid:${uuid}`, version: 1, ...bom }, null, 2)}\n`,
)
