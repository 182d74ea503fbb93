import assert from 'node:assert/strict'
import { type ChildProcess, execFileSync, type SpawnOptions, spawn } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { YAML } from './capture.ts'

const LAUNCHER = join(import.meta.dirname, '../../bin/sluice.mjs')
const { NODE_OPTIONS: _, NODE_TEST_CONTEXT: __, ...ENV } = process.env

function folder(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-launch-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

interface Run {
  child: ChildProcess
  /** Everything printed so far on both streams. */
  text(): string
  /** Resolves when the output contains `word`. */
  says(word: string | RegExp): Promise<RegExpMatchArray>
  ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>
}

function launch(
  t: TestContext,
  node: string,
  args: string[],
  { cwd, env }: Pick<SpawnOptions, 'cwd' | 'env'> = {},
): Run {
  const child = spawn(node, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...ENV, ...env }, cwd })
  let text = ''
  let look = () => {}
  for (const stream of [child.stdout!, child.stderr!]) {
    stream.setEncoding('utf8').on('data', piece => {
      text += piece
      look()
    })
  }
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>(resolve =>
    child.on('close', (code, signal) => {
      resolve({ code, signal })
      look()
    }),
  )
  t.after(async () => {
    child.kill('SIGTERM')
    await ended
  })
  const says = (word: string | RegExp) =>
    new Promise<RegExpMatchArray>((resolve, reject) => {
      look = () => {
        const match = text.match(word)
        if (match) resolve(match)
        else if (child.exitCode !== null) reject(new Error(`ended without saying ${word}:\n${text}`))
      }
      look()
    })
  return { child, text: () => text, says, ended }
}

test('the launcher runs a script under Node 22 and hands on arguments and exit code', async t => {
  const file = join(folder(t), 'script.ts')
  writeFileSync(
    file,
    'const args: string[] = process.argv.slice(2)\nconsole.log(process.version, JSON.stringify(args))\nprocess.exit(7)\n',
  )
  const run = launch(t, process.execPath, [LAUNCHER, '--run', file, 'a b', '--c'])
  assert.deepEqual(await run.ended, { code: 7, signal: null })
  assert.match(run.text(), /^v22\.\d+\.\d+ \["a b","--c"\]\n$/, 'nothing else: no warnings')
})

test('the launcher hands on signals, and ends as its child did', async t => {
  const file = join(folder(t), 'signals.ts')
  writeFileSync(
    file,
    "for (const s of ['SIGHUP', 'SIGTERM'] as const) process.on(s, () => { console.log(s); if (s === 'SIGTERM') process.exit(3) })\nsetInterval(() => {}, 1000)\nconsole.log('ready')\n",
  )
  const run = launch(t, process.execPath, [LAUNCHER, '--run', file])
  await run.says('ready')
  run.child.kill('SIGHUP')
  await run.says('SIGHUP')
  run.child.kill('SIGTERM')
  assert.deepEqual(await run.ended, { code: 3, signal: null })

  writeFileSync(file, "setInterval(() => {}, 1000)\nconsole.log('ready')\n")
  const killed = launch(t, process.execPath, [LAUNCHER, '--run', file])
  await killed.says('ready')
  killed.child.kill('SIGTERM')
  assert.deepEqual(await killed.ended, { code: null, signal: 'SIGTERM' })
})

test('below npx, whose shell passes no signal on, the end of the shell is one', async t => {
  const file = join(folder(t), 'signals.ts')
  writeFileSync(
    file,
    "process.on('SIGTERM', () => { console.log('drains'); process.exit(0) })\nsetInterval(() => {}, 1000)\nconsole.log('ready')\n",
  )
  // The shell waits for what it runs, as that of npx.
  const shell = ['-c', '"$0" "$@"; exit $?', process.execPath, LAUNCHER, '--run', file]
  const run = launch(t, 'sh', shell, { env: { npm_lifecycle_event: 'npx' } })
  await run.says('ready')
  run.child.kill('SIGTERM')
  await run.says('drains')
  assert.equal((await run.ended).signal, 'SIGTERM')
})

/** The Node on the PATH, when it is another major than ours: what an operator may start the launcher with. */
function otherNode(): string | undefined {
  try {
    const version = execFileSync('node', ['--version'], { encoding: 'utf8', env: ENV })
    return version.startsWith('v22.') ? undefined : 'node'
  } catch {
    return undefined
  }
}
const other = otherNode()

test('under another Node the packaged one is used', {
  skip: other ? false : 'the Node on the PATH is 22 itself',
}, async t => {
  const file = join(folder(t), 'version.ts')
  writeFileSync(file, 'console.log(process.version as string)\n')
  const run = launch(t, other!, [LAUNCHER, '--run', file])
  assert.deepEqual(await run.ended, { code: 0, signal: null })
  assert.match(run.text(), /^v22\./)
})

test('no binary that fits is a clear error', { skip: other ? false : 'the Node on the PATH is 22 itself' }, async t => {
  const dir = folder(t)
  mkdirSync(join(dir, 'bin'))
  copyFileSync(LAUNCHER, join(dir, 'bin/sluice.mjs'))
  copyFileSync(join(dirname(LAUNCHER), 'flags.mjs'), join(dir, 'bin/flags.mjs'))
  const run = launch(t, other!, [join(dir, 'bin/sluice.mjs'), 'start'])
  assert.deepEqual(await run.ended, { code: 1, signal: null })
  assert.match(run.text(), /^sluice: needs Node 22\.18.*without --omit=optional.*\n$/)
})

test('--run without a file is an error', async t => {
  const run = launch(t, process.execPath, [LAUNCHER, '--run'])
  assert.deepEqual(await run.ended, { code: 1, signal: null })
})

test('start serves, reloads on SIGHUP, drains on SIGTERM', async t => {
  const dir = folder(t)
  const file = join(dir, 'gateway.yaml')
  writeFileSync(file, YAML)
  const run = launch(t, process.execPath, [LAUNCHER, 'start', '--config', file, '--no-watch'])
  const [, address] = await run.says(/Sluice listens on (http:\/\/127\.0\.0\.1:\d+)/)
  await run.says(/demo key +sk-demo\n\nTry it:\n {2}curl -N http[^\n]*\/v1\/chat\/completions/)
  assert.deepEqual(
    run
      .text()
      .split('\n')
      .filter(line => line.length > 80),
    [],
  )

  const models = () =>
    fetch(`${address}/v1/models`, { headers: { authorization: 'Bearer sk-demo' } }).then(
      async r => (await r.json()) as { data: { id: string }[] },
    )
  assert.deepEqual(
    (await models()).data.map(m => m.id),
    ['eb1-preview'],
  )

  writeFileSync(file, YAML.replace('eb1-preview:', 'eb2-preview:'))
  run.child.kill('SIGHUP')
  await run.says('configuration reloaded')
  assert.deepEqual(
    (await models()).data.map(m => m.id),
    ['eb2-preview'],
  )

  writeFileSync(file, YAML.replace('- upstream ', '- upstraem '))
  run.child.kill('SIGHUP')
  await run.says(/not reloaded: .*there is no plugin 'upstraem'/)
  assert.deepEqual(
    (await models()).data.map(m => m.id),
    ['eb2-preview'],
  )

  run.child.kill('SIGTERM')
  assert.deepEqual(await run.ended, { code: 0, signal: null })
  assert.match(run.text(), /draining/)
})

// The section was read at the start alone: after a reload the log said "configuration reloaded" and went on as before.
// Here it would say nothing at all.
test('a reload applies the section log', async t => {
  const file = join(folder(t), 'gateway.yaml')
  const log = (level: string) => writeFileSync(file, `${YAML}log: { level: ${level} }\n`)
  log('silent')
  const run = launch(t, process.execPath, [LAUNCHER, 'start', '--config', file, '--no-watch'])
  await run.says(/Sluice listens on/)
  log('info')
  run.child.kill('SIGHUP')
  await run.says('configuration reloaded')
  run.child.kill('SIGTERM')
  assert.deepEqual(await run.ended, { code: 0, signal: null })
})

test('a gateway whose launcher was killed outright stops by itself', async t => {
  const file = join(folder(t), 'gateway.yaml')
  writeFileSync(file, YAML)
  const run = launch(t, process.execPath, [LAUNCHER, 'start', file])
  await run.says(/listens on/)
  run.child.kill('SIGKILL')
  // The output stays open as long as the gateway lives.
  assert.deepEqual(await run.ended, { code: null, signal: 'SIGKILL' })
  assert.match(run.text(), /draining/)
})

test('start tells what is wrong with the file, and that an address is taken', async t => {
  const dir = folder(t)
  const file = join(dir, 'gateway.yaml')
  writeFileSync(file, YAML.replace('plan: tier1', 'plan: tier0'))
  const bad = launch(t, process.execPath, [LAUNCHER, 'start', file])
  assert.deepEqual(await bad.ended, { code: 1, signal: null })
  assert.match(bad.text(), /no plan 'tier0'/)

  writeFileSync(file, YAML)
  const first = launch(t, process.execPath, [LAUNCHER, 'start', file])
  const [, port] = await first.says(/listens on http:\/\/127\.0\.0\.1:(\d+)/)
  writeFileSync(file, YAML.replace('listen: "127.0.0.1:0"', `listen: "127.0.0.1:${port}"`))
  const second = launch(t, process.execPath, [LAUNCHER, 'start', file])
  assert.deepEqual(await second.ended, { code: 1, signal: null })
  assert.match(second.text(), /cannot (listen|start)/)

  const elsewhere = launch(t, process.execPath, [LAUNCHER, 'start', '--config', 'gateway.yaml'], { cwd: folder(t) })
  assert.deepEqual(await elsewhere.ended, { code: 1, signal: null })
  assert.match(elsewhere.text(), /gateway\.yaml/)
})

test('the test that plugin new writes passes, outside the clone', async t => {
  const dir = folder(t)
  const file = join(dir, 'gateway.yaml')
  writeFileSync(file, YAML)
  const made = launch(t, process.execPath, [LAUNCHER, 'plugin', 'new', 'tenant-tag', '--config', file])
  assert.equal((await made.ended).code, 0, made.text())
  const run = launch(t, process.execPath, [LAUNCHER, 'plugin', 'test', join(dir, 'my-plugins/tenant-tag.test.ts')])
  assert.equal((await run.ended).code, 0, run.text())
  assert.match(run.text(), /pass 2/)
})
