/** Runs a gateway like an operator: by the command line, in its own process, with a configuration. */
import { type ChildProcess, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

export const ROOT = join(import.meta.dirname, '..', '..', '..')
const SLUICE = join(ROOT, 'bin', 'sluice.mjs')
const STARTED = /^Sluice listens on (http:\S+)$/m
/** Timeout of starting and reloading. Starting takes a second, but more on a busy machine. */
const PATIENCE_MS = 60_000

/** Gateways whose clocks run, because their recordings show what happens after a timeout. */
const RUNNING = ['impatient']

const FIXED = pathToFileURL(join(import.meta.dirname, 'fixed.mjs'))

/** The environment of every process. From the caller's environment it has only the search path of programs. */
export const environment = (): Record<string, string> => ({
  PATH: process.env['PATH'] ?? '',
  HOME: process.env['HOME'] ?? '',
  TZ: 'UTC',
  NO_COLOR: '1',
  NODE_OPTIONS: `--disable-warning=ExperimentalWarning --import=${FIXED}`,
})

export const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')

/** The text of gateways/NAME.yaml, with its placeholders replaced. */
export function configuration(name: string, folder: string, upstream: string): string {
  return readFileSync(join(import.meta.dirname, '..', 'gateways', `${name}.yaml`), 'utf8').replaceAll(
    /\{\{(folder|upstream|sha256 ([^}]+))\}\}/g,
    (_, place: string, secret: string) =>
      place === 'folder' ? folder : place === 'upstream' ? upstream : sha256(secret),
  )
}

export class Gateway {
  readonly folder: string
  readonly file: string
  /** Host and port on which it listens. */
  address = ''
  /** The log so far, one line of JSON for each entry. */
  log = ''
  readonly #process: ChildProcess
  readonly #ended: Promise<number | null>
  #wake: () => void = () => {}
  #out = ''
  #clock: Socket | undefined

  private constructor(folder: string, clock: string | undefined) {
    this.folder = folder
    this.file = join(folder, 'gateway.yaml')
    this.#process = spawn(process.execPath, [SLUICE, 'start', '--no-watch', '--config', this.file], {
      cwd: folder,
      env: { ...environment(), ...(clock !== undefined && { GOLDEN_CLOCK: clock }) },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.#process.stdout!.setEncoding('utf8').on('data', text => {
      this.#out += text
      this.#wake()
    })
    this.#process.stderr!.setEncoding('utf8').on('data', text => {
      this.log += text
      this.#wake()
    })
    this.#ended = new Promise(resolve => this.#process.once('exit', resolve))
    void this.#ended.then(() => this.#wake())
  }

  static start(name: string, upstream: string): Promise<Gateway> {
    return Gateway.with(folder => configuration(name, folder, upstream), !RUNNING.includes(name))
  }

  /**
   * @param text the configuration, for a folder that is the gateway's own
   * @param still whether its clocks stand still
   */
  static async with(text: (folder: string) => string, still = true): Promise<Gateway> {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-golden-'))
    writeFileSync(join(folder, 'gateway.yaml'), text(folder))
    const clock = still ? join(folder, 'clock') : undefined
    const gateway = new Gateway(folder, clock)
    await gateway.#until(() => STARTED.test(gateway.#out), 'does not start')
    gateway.address = new URL(STARTED.exec(gateway.#out)![1]!).host
    if (clock !== undefined) {
      gateway.#clock = connect(clock)
      await once(gateway.#clock, 'connect')
    }
    return gateway
  }

  /**
   * Sets the wall clock, and moves the monotonic clock by a minute, which ends cooldowns and breakers of earlier
   * exchanges.
   * @param past the wall clock's new time, in ms after the start
   */
  time(past: number): Promise<void> {
    return this.pass(60_000, past)
  }

  /**
   * Moves the monotonic clock forward.
   * @param past as in `time`
   * @param chance what Math.random() returns from now on
   */
  async pass(ms: number, past = 0, chance = 0): Promise<void> {
    if (!this.#clock) return
    this.#clock.write(`${past} ${ms} ${chance}\n`)
    await once(this.#clock, 'data')
  }

  /**
   * Makes the gateway reload its file. @returns the log lines about it: one for each fault, or one that it was reloaded
   */
  async reload(): Promise<{ level: string; msg: string }[]> {
    const from = this.log.length
    this.#process.kill('SIGHUP')
    await this.#until(() => /configuration (not )?reloaded[^\n]*\n/.test(this.log.slice(from)), 'does not reload')
    // Each fault is one line, and nothing marks the last one. So a second reload, of a missing file, is logged behind
    // them.
    renameSync(this.file, `${this.file}.kept`)
    this.#process.kill('SIGHUP')
    const last = /^.*there is no such file; name one with --config FILE.*\n/m
    await this.#until(() => last.test(this.log.slice(from)), 'does not reload')
    renameSync(`${this.file}.kept`, this.file)
    const lines = this.log.slice(from).replace(last, '').split('\n').slice(0, -1)
    return lines.map(line => JSON.parse(line)).filter(({ msg }) => /reloaded|take effect/.test(msg))
  }

  /** Shuts the gateway down gracefully, so that the ledger is complete. The folder stays until `remove`. */
  async stop(): Promise<void> {
    this.#clock?.destroy()
    this.#process.kill('SIGTERM')
    await this.#ended
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true })
  }

  async #until(done: () => boolean, fault: string): Promise<void> {
    const late = AbortSignal.timeout(PATIENCE_MS)
    for (;;) {
      if (done()) return
      if (this.#process.exitCode !== null || late.aborted) {
        this.#process.kill('SIGKILL')
        throw new Error(`the gateway ${fault}:\n${this.#out}${this.log}`)
      }
      await new Promise<void>(resolve => {
        this.#wake = resolve
        late.addEventListener('abort', () => resolve(), { once: true })
      })
    }
  }
}

/** Runs a verb of the command line to its end. */
export function sluice(
  args: readonly string[],
  cwd: string,
  input = '',
): Promise<{ code: number | null; out: string; err: string }> {
  const child = spawn(process.execPath, [SLUICE, ...args], { cwd, env: environment(), stdio: 'pipe' })
  let out = ''
  let err = ''
  child.stdout.setEncoding('utf8').on('data', text => void (out += text))
  child.stderr.setEncoding('utf8').on('data', text => void (err += text))
  child.stdin.on('error', () => {}).end(input)
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', code => resolve({ code, out, err }))
  })
}
