/** The package of npm: what `npm pack` makes, unpacked below node_modules and used from an empty folder. */
import assert from 'node:assert/strict'
import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { Ajv } from 'ajv'
import { freePort } from '../ports.ts'

const ROOT = join(import.meta.dirname, '../..')
const { bundleDependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  bundleDependencies: string[]
}
/** Folders of node_modules that the tarball must bring. */
const BUNDLED = bundleDependencies.map(name => name.split('/')[0]!)
const { NODE_OPTIONS: _, NODE_TEST_CONTEXT: __, ...ENV } = process.env

/** The tarball, and another one that was packed elsewhere. */
const tarballs: string[] = []
/** A folder with the package installed in it, and nothing else. */
let app: string
let installed: string
/** Paths in the tarball. */
let packed: string[]
const folders: string[] = []
const folder = () => {
  const made = mkdtempSync(join(tmpdir(), 'sluice-package-'))
  folders.push(made)
  return made
}
after(() => {
  for (const made of folders) rmSync(made, { recursive: true, force: true })
})

/** Every package of the checkout but the bundled ones. */
function linkPackages(to: string): void {
  mkdirSync(to, { recursive: true })
  for (const name of readdirSync(join(ROOT, 'node_modules')))
    if (!BUNDLED.includes(name) && name !== '.bin' && name !== '.cache')
      symlinkSync(join(ROOT, 'node_modules', name), join(to, name))
}

/** Packs in a copy, so that no test beside this one sees the files that are made for the package. */
async function pack(copy: string, umask: string): Promise<string> {
  mkdirSync(copy, { recursive: true })
  const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '-z'], { cwd: ROOT, encoding: 'utf8' })
  for (const file of files.split('\0').filter(Boolean)) {
    if (/^(test|bench)\//.test(file) || !existsSync(join(ROOT, file))) continue
    mkdirSync(dirname(join(copy, file)), { recursive: true })
    cpSync(join(ROOT, file), join(copy, file))
  }
  linkPackages(join(copy, 'node_modules'))
  // npm packs what the bundled packages need too, and follows no links.
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'))
  for (const [path, { inBundle }] of Object.entries<{ inBundle?: boolean }>(packages)) {
    if (!inBundle) continue
    rmSync(join(copy, path), { force: true })
    cpSync(join(ROOT, path), join(copy, path), { recursive: true })
  }
  const { stdout } = await promisify(execFile)('sh', ['-c', `umask ${umask} && npm pack --silent`], {
    cwd: copy,
    env: ENV,
  })
  assert.deepEqual(globSync('core/**/*.js', { cwd: copy }), [], 'what is made for the package is gone again')
  return join(copy, stdout.trim().split('\n').at(-1)!)
}

before(async () => {
  tarballs.push(...(await Promise.all([pack(folder(), '022'), pack(join(folder(), 'else/where'), '077')])))
  app = folder()
  installed = join(app, 'node_modules', 'sluice')
  mkdirSync(installed, { recursive: true })
  const [tarball] = tarballs as [string, string]
  packed = execFileSync('tar', ['tzf', tarball], { encoding: 'utf8' }).trim().split('\n')
  execFileSync('tar', ['xzf', tarball, '--strip-components=1', '-C', installed])
  linkPackages(join(app, 'node_modules'))
})

const sluice = (args: string[], cwd = app, env = {}) =>
  spawnSync(process.execPath, [join(installed, 'bin/sluice.mjs'), ...args], {
    cwd,
    encoding: 'utf8',
    env: { ...ENV, ...env },
  })

/** Runs the gateway of the folder until `use` is done. */
async function serving(cwd: string, args: string[], use: (base: string) => Promise<void>): Promise<string> {
  const port = await freePort()
  const child = spawn(process.execPath, [join(installed, 'bin/sluice.mjs'), 'start', ...args], {
    cwd,
    env: { ...ENV, SLUICE_LISTEN: `127.0.0.1:${port}` },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let said = ''
  const ended = once(child, 'close')
  const up = new Promise<void>((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', text => {
        said += text
        if (said.includes('Sluice listens on')) resolve()
      })
    }
    void ended.then(() => reject(new Error(`the gateway ended: ${said}`)))
  })
  try {
    await up
    await use(`http://127.0.0.1:${port}`)
  } finally {
    child.kill('SIGTERM')
    await ended
  }
  return said
}

const chat = (base: string) =>
  fetch(`${base}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: 'Bearer sk-demo', 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'eb1-preview', messages: [{ role: 'user', content: 'Hello' }] }),
  })

/** The admin pages of two tests at once would want one port. */
const withAnyAdminPort = (file: string) =>
  writeFileSync(file, readFileSync(file, 'utf8').replace('listen: 127.0.0.1:9090', 'listen: 127.0.0.1:0'))

test('it has JavaScript, types and validators, and nothing that only the checkout needs', () => {
  const names = packed.map(path => path.slice('package/'.length))
  const strangers = names.filter(
    name =>
      /^(test|bench|docs\/.*)\//.test(name) ||
      (name.endsWith('.ts') && !name.endsWith('.d.ts') && !name.startsWith('node_modules/')),
  )
  assert.deepEqual(strangers, [])
  const some = [
    'cli/main.js',
    'core/plugin.d.ts',
    'plugins/testing.d.ts',
    'providers/dialect.d.ts',
    'gateway.yaml',
    'LICENSE',
  ]
  // The file of `init` and messages name pages.
  for (const name of [...some, 'docs/configuration.md', 'docs/admin-api.yaml']) assert.ok(names.includes(name), name)
  // So does the page on deployment, of files.
  const files = [...readFileSync(join(ROOT, 'docs/deploy.md'), 'utf8').matchAll(/\]\(\.\.\/(deploy\/[^)#]*\w)\)/g)]
  assert.ok(files.length > 5)
  for (const [, file] of files)
    assert.ok(
      names.some(name => name === file || name.startsWith(`${file}/`)),
      file,
    )
  for (const name of globSync('stores/redis/lua/*.lua', { cwd: ROOT })) assert.ok(names.includes(name), name)
  assert.ok(names.some(name => /^core\/tools\/validators\/written\/.*\.cjs$/.test(name)))
  assert.ok(names.some(name => name.startsWith('node_modules/@uwsjs/') && name.endsWith('.node')))
  // npm warns of packages whose engine is not the Node that it runs on. It does not look at bundled ones.
  for (const name of bundleDependencies) assert.ok(names.includes(`node_modules/${name}/package.json`), name)
})

test('whoever packs the same sources gets the same bytes, in another folder, at another time, with other rights', () => {
  const [one, other] = tarballs.map(file => createHash('sha256').update(readFileSync(file)).digest('hex'))
  assert.equal(one, other)
})

/** CycloneDX's own library, for its schemas. It is no dependency: 7 MB for one test. */
const LIBRARY = '@cyclonedx/cyclonedx-library@10.3.0'
test('the bill of materials is one of CycloneDX 1.6, and lists what npm says is installed', async t => {
  const cache = join(ROOT, 'node_modules/.cache/sluice-cyclonedx')
  const schemas = join(cache, 'node_modules', LIBRARY.slice(0, LIBRARY.lastIndexOf('@')), 'res/schema')
  if (!existsSync(schemas)) {
    mkdirSync(cache, { recursive: true })
    const args = ['install', '--prefix', cache, '--ignore-scripts', '--omit=peer', '--no-audit', '--no-fund', LIBRARY]
    const { status, stderr } = spawnSync('npm', args, { cwd: cache, encoding: 'utf8', env: ENV, timeout: 120_000 })
    if (status !== 0) return t.skip(`npm could not install ${LIBRARY}: ${stderr.trim().split('\n').at(-1)}`)
  }
  const print = [join(ROOT, 'bin/sluice.mjs'), '--run', join(ROOT, 'bin/sbom.ts')]
  const bom: any = JSON.parse(execFileSync(process.execPath, print, { encoding: 'utf8', env: ENV }))
  const schema = (name: string) => JSON.parse(readFileSync(join(schemas, `${name}.SNAPSHOT.schema.json`), 'utf8'))
  const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: true })
  for (const name of ['spdx', 'jsf-0.82', 'cryptography-defs'])
    ajv.addSchema(schema(name), `http://cyclonedx.org/schema/${name}.SNAPSHOT.schema.json`)
  const valid = ajv.compile<any>(schema('bom-1.6'))
  assert.ok(valid(bom), ajv.errorsText(valid.errors))
  assert.equal(valid({ ...bom, components: [{ ...bom.components[0], scope: 'needed' }] }), false)

  interface Node {
    version?: string
    dependencies?: Record<string, Node>
  }
  const { stdout } = spawnSync('npm', ['ls', '--all', '--omit=dev', '--json'], {
    cwd: ROOT,
    encoding: 'utf8',
    env: ENV,
  })
  const installed = new Set<string>()
  const visit = ({ dependencies = {} }: Node): void => {
    for (const [name, node] of Object.entries(dependencies)) {
      if (node.version !== undefined) installed.add(`pkg:npm/${name.replace('@', '%40')}@${node.version}`)
      visit(node)
    }
  }
  visit(JSON.parse(stdout))
  assert.ok(installed.size > 30)
  const listed = new Set(bom.components.map(({ purl }: { purl: string }) => purl))
  assert.deepEqual(
    [...installed].filter(purl => !listed.has(purl)),
    [],
  )
})

test('lines and columns of a module are those of its source', () => {
  for (const file of globSync('{core,cli,http}/**/*.js', { cwd: installed })) {
    const [made, source] = [join(installed, file), join(ROOT, file.replace(/js$/, 'ts'))].map(path =>
      readFileSync(path, 'utf8')
        .split('\n')
        .map(line => line.length),
    )
    assert.deepEqual(made, source, file)
  }
})

test('in an empty folder, start writes the quickstart and serves it', async () => {
  const empty = folder()
  const file = join(empty, 'gateway.yaml')
  // Its admin pages have a fixed port, which another process may hold: what counts first is the file.
  const first = sluice(['start'], empty, { SLUICE_LISTENER: 'none' })
  assert.match(first.stderr, /There was no gateway.yaml here. Now there is the quickstart's/)
  assert.equal(first.status, 1)
  const text = readFileSync(join(installed, 'gateway.yaml'), 'utf8')
  assert.equal(readFileSync(file, 'utf8'), text.slice(text.indexOf('\n') + 1))
  withAnyAdminPort(file)
  const said = await serving(empty, [], async base => {
    const reply = await chat(base)
    assert.equal(reply.status, 200)
    assert.equal(((await reply.json()) as { object: string }).object, 'chat.completion')
  })
  assert.doesNotMatch(said, /There was no gateway.yaml/)
  const compiled = globSync('node_modules/.cache/sluice/**/*.cjs', { cwd: installed })
  assert.deepEqual(compiled, [], 'the validators of the package are used')
})

test('init writes a file that checks; plugins are files beside it and packages of npm', async () => {
  const mine = join(app, 'mine')
  mkdirSync(mine)
  const made = sluice(['init', '--provider', 'simulator'], mine)
  assert.equal(made.status, 0, made.stderr)
  assert.equal(sluice(['check'], mine).status, 0)

  const file = join(mine, 'gateway.yaml')
  writeFileSync(file, readFileSync(join(installed, 'gateway.yaml')))
  withAnyAdminPort(file)
  const stamp = (name: string) =>
    `import { definePlugin } from 'sluice'
export default definePlugin({
  name: '${name}',
  summary: 'Adds a header.',
  create: () => ({ onResponseHead(_x, head) { head.headers.set('x-${name}', 'seen') } }),
})
`
  writeFileSync(join(mine, 'ours.ts'), stamp('ours'))
  const theirs = join(mine, 'node_modules', 'sluice-plugin-theirs')
  mkdirSync(theirs, { recursive: true })
  writeFileSync(
    join(theirs, 'package.json'),
    '{"name":"sluice-plugin-theirs","version":"1.0.0","type":"module","exports":{"import":"./index.js"}}',
  )
  writeFileSync(join(theirs, 'index.js'), stamp('theirs'))
  const plugins = (list: string) =>
    writeFileSync(
      file,
      `${readFileSync(file, 'utf8')
        .replace(/\nplugins: .*\n/, '')
        .replace('- header-stamp', '- header-stamp\n    - ours\n    - theirs')}\nplugins: ${list}\n`,
    )
  plugins('[./ours.ts, npm:sluice-plugin-theirs]')
  await serving(mine, [], async base => {
    const reply = await chat(base)
    assert.deepEqual([reply.status, reply.headers.get('x-ours'), reply.headers.get('x-theirs')], [200, 'seen', 'seen'])
  })
  writeFileSync(file, readFileSync(file, 'utf8').replace('npm:sluice-plugin-theirs', 'npm:sluice-plugin-absent'))
  const refused = sluice(['check'], mine)
  assert.equal(refused.status, 1)
  assert.match(
    refused.stdout + refused.stderr,
    /sluice-plugin-absent: the package is not installed .* `npm install sluice-plugin-absent`/,
  )
})

test('`plugin new` makes a plugin whose test runs and whose types are found; so are those of a dialect', () => {
  const made = folder()
  symlinkSync(join(app, 'node_modules'), join(made, 'node_modules'))
  assert.equal(sluice(['init', '--provider', 'simulator'], made).status, 0)
  const created = sluice(['plugin', 'new', 'shout'], made)
  assert.equal(created.status, 0, created.stderr)
  writeFileSync(
    join(made, 'my-plugins/mine.ts'),
    `import { defineDialect, openaiChat, varied } from 'sluice/dialect'
export default defineDialect(varied(openaiChat, { path: ({ model }) => \`/\${model}/chat\` }, { name: 'mine' }))
`,
  )
  writeFileSync(
    join(made, 'my-plugins/mine.test.ts'),
    `import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runDialect } from 'sluice/testing'
import mine from './mine.ts'

test('mine', () => assert.equal(runDialect(mine).request?.path, '/small/chat'))
`,
  )
  const tested = sluice(['plugin', 'test', 'my-plugins/shout.test.ts', 'my-plugins/mine.test.ts'], made)
  assert.equal(tested.status, 0, tested.stdout + tested.stderr)
  const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
  const checked = spawnSync(process.execPath, [tsc, '--noEmit', '-p', join(made, 'my-plugins')], { encoding: 'utf8' })
  assert.equal(checked.status, 0, checked.stdout)
})
