/**
 * Every command of the README and docs/, typed as it stands into a shell in a checkout: a page from its top to its end,
 * one command after the other. Only addresses change (a test can't have port 8080), the key that stands for the
 * reader's own, and what would leave this machine. Pages use curl and sqlite3.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { parse, stringify } from 'yaml'
import { startSimulator } from '../../providers/simulator/server.ts'
import { findProgram } from '../ensure-deps.ts'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'
import { PostgresServer, skipWithoutPostgres } from '../stores/postgres-server.ts'
import { commandsOf, type PageText, pages, QUICKSTART, ROOT } from './pages.ts'

/** Not run here, and what stands for it. */
const ELSEWHERE: readonly [RegExp, string][] = [
  [/^npm ci$/, 'how the project was installed'],
  [/^npm (?:test|run test:(?:long|golden))$/, 'continuous integration, and this run'],
  [/^npm run clients\b/, 'installs clients from registries and takes ten minutes'],
  [/^npm run screenshots$/, 'writes docs/screenshots; test/admin looks at the same pages'],
  [/^npm run size$/, 'installs the project twice; continuous integration runs it'],
  [/^npm run mutants\b/, 'runs the tests many times; test/mutants/mutations.test.ts tests what it draws'],
  [/^npm run spec\b/, 'test/spec tries the same rows'],
  [/^npm run attack\b/, 'test/attack/attack.long.test.ts runs it'],
  [/^npm run (?:check|fix)$/, 'continuous integration checks, beside this run; fix writes what check asks for'],
  [/^npm run console$/, 'console/test/start.test.ts runs it'],
  [/^ssh /, 'needs another machine'],
  [/ \| socat stdio /, 'test/deploy/deploy.test.ts says the same to a running HAProxy'],
]
const isElsewhere = (command: string) => ELSEWHERE.some(([pattern]) => pattern.test(command))
/** Pages that another test follows, in the folder that they describe. */
const FOLLOWED_ELSEWHERE = new Map([
  ['docs/plugins.md', 'test/e2e/plugins.test.ts'],
  ['docs/dialects.md', 'test/e2e/dialect-files.test.ts'],
])

/** Their first block of YAML is in the configuration. */
const CONFIGURED = new Set(['docs/receipts.md', 'docs/checked-bill.md'])

/** The pages whose `npx sluice` goes through npm, as a reader's does. */
const VIA_NPM = new Set(['README.md', 'docs/quickstart.md'])
/** Runs until it is stopped. */
const SERVES = /^(?:npm start|npx sluice start\b.*)$/

const REQUEST = '{"model":"eb1-preview","messages":[{"role":"user","content":"Hello"}]}'

/** A key as `init` and `key new` print it, on a line of its own. */
const KEY = /^ *(sk-\S{40,})$/m

/** Where pages have a PostgreSQL with the user and the database `billing`. */
const DATABASE = '127.0.0.1:5432'

const simulator = await startSimulator({ port: 0 })
after(() => simulator.close())

/** A folder like a fresh checkout, with its own configuration and data. */
class Checkout {
  readonly dir = mkdtempSync(join(tmpdir(), 'sluice-docs-'))
  /** Addresses that pages name, and what is there instead. */
  readonly addresses = new Map<string, string>()
  readonly env: Record<string, string>
  readonly #children: { child: ChildProcess; ended: Promise<unknown>; said(): string; reloads: number }[] = []
  #secret = ''

  constructor(viaNpm: boolean) {
    for (const name of readdirSync(ROOT))
      if (!['gateway.yaml', 'data', '.git'].includes(name)) symlinkSync(join(ROOT, name), join(this.dir, name))
    // `sluice` as an installed package has it.
    mkdirSync(join(this.dir, 'installed'))
    symlinkSync(join(ROOT, 'bin/sluice.mjs'), join(this.dir, 'installed/sluice'))
    // npm takes five times as long to start as what it starts, and pages have some 130 such commands.
    if (!viaNpm) {
      const npx = findProgram(['npx'])!
      const script = `#!/bin/sh\nif [ "$1" = sluice ]; then exec "$@"; fi\nexec "${npx}" "$@"\n`
      writeFileSync(join(this.dir, 'installed/npx'), script, { mode: 0o755 })
    }
    const { NODE_OPTIONS: _, NODE_TEST_CONTEXT: __, SLUICE_API_KEY: ___, ...inherited } = process.env
    this.env = {
      ...(inherited as Record<string, string>),
      PATH: [join(this.dir, 'installed'), process.env['PATH']].join(delimiter),
      OPENAI_API_KEY: 'sk-of-the-provider',
    }
  }

  async configure(): Promise<void> {
    const free = async (address: string) => this.addresses.set(address, `127.0.0.1:${await freePort()}`)
    for (const address of ['127.0.0.1:8080', '127.0.0.1:9090']) await free(address)
    writeFileSync(join(this.dir, 'gateway.yaml'), this.here(QUICKSTART))
  }

  /** Adds what a page says to add to the configuration. */
  add(text: string): void {
    const file = join(this.dir, 'gateway.yaml')
    const config = parse(readFileSync(file, 'utf8'))
    for (const [name, section] of Object.entries<any>(parse(text)))
      config[name] = Array.isArray(section) ? [...config[name], ...section] : { ...config[name], ...section }
    writeFileSync(file, stringify(config))
  }

  here(text: string): string {
    for (const [named, real] of this.addresses) text = text.replaceAll(named, real)
    return text.replaceAll('YOUR_KEY', this.#secret)
  }

  /** Types one command. @returns what it printed */
  async run(command: string): Promise<string> {
    const { stdout, stderr } = await promisify(execFile)('bash', ['-euo', 'pipefail', '-c', this.here(command)], {
      cwd: this.dir,
      env: this.env,
      timeout: 60_000,
    })
    return stdout + stderr
  }

  /** Types a command that serves. Resolves when it does. */
  async serve(command: string): Promise<void> {
    await this.stop()
    const child = spawn('bash', ['-c', `exec ${this.here(command)}`], {
      cwd: this.dir,
      env: this.env,
      // Its own group: npm and the launcher are parents of the gateway.
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const over = Promise.withResolvers<void>()
    const up = Promise.withResolvers<void>()
    let said = ''
    const hear = (data: Buffer) => {
      said += data
      if (said.includes('Sluice listens on')) up.resolve()
    }
    child.stdout.on('data', hear)
    child.stderr.on('data', hear)
    child.on('close', code => {
      up.reject(new Error(`${command} ended with ${code}:\n${said}`))
      over.resolve()
    })
    this.#children.push({ child, ended: over.promise, said: () => said, reloads: 0 })
    await up.promise
  }

  /** `init` has written a file: the provider is the simulator here, and the key is the reader's. */
  adopt(file: string, said: string): void {
    const path = join(this.dir, file)
    const written = readFileSync(path, 'utf8')
    const changed = this.here(written).replace('https://api.openai.com/v1', `${simulator.url}/v1`)
    assert.notEqual(changed, written)
    writeFileSync(path, changed)
    this.#secret = KEY.exec(said)![1]!
  }

  /** `key new` has printed a key: it is the reader's from now on. A gateway that runs takes it by a reload. */
  async use(said: string): Promise<void> {
    this.#secret = KEY.exec(said)![1]!
    await this.reloaded()
  }

  /** `org create` has printed a key, which a gateway that runs finds in its store a moment later. */
  async stored(said: string): Promise<void> {
    this.#secret = KEY.exec(said)![1]!
    if (this.#children.length === 0) return
    const models = `${this.here('http://127.0.0.1:8080')}/v1/models`
    await eventually(async () => (await fetch(models, { headers: { authorization: `Bearer ${this.#secret}` } })).ok)
  }

  /** Resolves when a gateway that runs has reloaded its file once more. */
  async reloaded(): Promise<void> {
    const running = this.#children.at(-1)
    if (!running) return
    const before = running.reloads
    await eventually(() => running.said().split('configuration reloaded').length - 1 > before)
    running.reloads++
  }

  async stop(): Promise<void> {
    for (const { child, ended } of this.#children.splice(0)) {
      process.kill(-child.pid!, 'SIGTERM')
      await ended
    }
  }

  async remove(): Promise<void> {
    await this.stop()
    rmSync(this.dir, { recursive: true, force: true })
  }
}

function follow(page: PageText): void {
  describe(page.file, () => {
    const checkout = new Checkout(VIA_NPM.has(page.file))
    before(() => checkout.configure())
    if (CONFIGURED.has(page.file))
      before(() => checkout.add(page.blocks.find(({ language }) => language === 'yaml')!.text))
    after(() => checkout.remove())
    if (page.text.includes(DATABASE) && !skipWithoutPostgres) {
      let server: PostgresServer
      before(async () => {
        server = await PostgresServer.start()
        await server.query('CREATE ROLE billing LOGIN')
        await server.query('CREATE DATABASE billing OWNER billing')
        checkout.addresses.set(DATABASE, `127.0.0.1:${server.port}`)
      })
      after(() => server.stop())
    }

    // What pages take for granted: a gateway that has served, one that runs, a request in a file.
    const first = page.blocks.flatMap(commandsOf)[0]!
    if (page.text.includes('data/gateway.db')) {
      before(async () => {
        await checkout.serve('npm start')
        await checkout.run(
          `curl -sS --fail-with-body http://127.0.0.1:8080/v1/chat/completions -H 'Authorization: Bearer sk-demo' -H 'Content-Type: application/json' -d '${REQUEST}'`,
        )
        // Its last rows are written when it stops.
        await checkout.stop()
      })
    }
    if (first.startsWith('curl ')) before(() => checkout.serve('npm start'))
    if (page.text.includes('body.json')) before(() => writeFileSync(join(checkout.dir, 'body.json'), REQUEST))

    for (const block of page.blocks) {
      let exported = ''
      for (const line of commandsOf(block)) {
        for (const command of line.split(' && ')) {
          if (isElsewhere(command)) continue
          if (command.startsWith('export ')) {
            exported += `${command}\n`
            continue
          }
          const program = command.split(' ', 1)[0]!
          const skip = findProgram([program], checkout.env['PATH'])
            ? command.includes(DATABASE) && skipWithoutPostgres
            : `${program} is not installed`
          test(`${block.at} ${command.split('\n', 1)[0]}`, { skip }, async () => {
            if (SERVES.test(command)) return checkout.serve(command)
            const curl = command.startsWith('curl ')
            const files = readdirSync(checkout.dir).length
            const said = await checkout.run(curl ? `${command} -sS --fail-with-body --max-time 10` : command)
            assert.ok(
              said.trim() !== '' || readdirSync(checkout.dir).length > files,
              'it says something or makes a file',
            )
            if (curl) assert.doesNotMatch(said, /"error":\s*\{/)
            const made = /sluice init (\S+)/.exec(command)
            if (made) checkout.adopt(made[1]!, said)
            if (command.startsWith('npx sluice key new ')) await checkout.use(said)
            if (/^npx sluice org create .*--key/.test(command)) await checkout.stored(said)
            if (command.startsWith('npx sluice plugin new ')) await checkout.reloaded()
          })
        }
      }
      if (exported !== '') variables(block.at, exported, checkout)
    }
  })
}

/** Variables that a client reads: the official SDK with nothing else, as Claude Code has it, is answered. */
function variables(at: string, exported: string, checkout: Checkout): void {
  test(`${at} export …: a client that is told nothing else is answered`, async () => {
    await checkout.serve('npm start')
    const script = `import Anthropic from '@anthropic-ai/sdk'
for (const model of [process.env.ANTHROPIC_MODEL, process.env.ANTHROPIC_DEFAULT_HAIKU_MODEL]) {
  const stream = new Anthropic().messages.stream({ model, max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] })
  console.log(await stream.finalText())
}`
    writeFileSync(join(checkout.dir, 'agent.mjs'), script)
    const said = await checkout.run(`${exported}\n"${process.execPath}" agent.mjs`)
    assert.ok(said.trim().split('\n').length >= 2, said)
  })
}

for (const page of pages) {
  const commands = page.blocks.flatMap(commandsOf).flatMap(line => line.split(' && '))
  if (!FOLLOWED_ELSEWHERE.has(page.file) && commands.some(command => !isElsewhere(command))) follow(page)
}

test('what is not run has a reason that still holds', () => {
  for (const [page, test] of FOLLOWED_ELSEWHERE) assert.ok(readFileSync(join(ROOT, test), 'utf8').includes(page), page)
  const ci = readFileSync(join(ROOT, '.ci/run'), 'utf8')
  for (const command of ['npm ci', 'npm run check', 'npm test', 'npm run test:long', 'npm run size'])
    assert.ok(ci.includes(command), command)
  assert.ok(readFileSync(join(ROOT, 'test/deploy/deploy.test.ts'), 'utf8').includes('server gateways'))
})
