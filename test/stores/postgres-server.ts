/**
 * A real PostgreSQL (Debian's package postgresql) for tests: on a free port, with its data in a temporary folder, never
 * as root. Every user of 127.0.0.1 is let in without a password, but for `locked`.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import pg from 'pg'
import { findProgram } from '../ensure-deps.ts'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'

/** The folder of initdb and postgres; undefined where they are not installed. */
function programs(): string | undefined {
  const versions = fs.globSync('/usr/lib/postgresql/*/bin/initdb').sort()
  const found = versions.at(-1) ?? findProgram(['initdb'])
  return found && path.dirname(fs.realpathSync(found))
}

const folder = programs()
export const skipWithoutPostgres = folder ? false : 'postgresql is not installed'

/** PostgreSQL refuses to run as root. */
function plainUser(): { uid: number; gid: number } | Record<string, never> {
  if (process.getuid?.() !== 0) return {}
  const id = (flag: string) => Number(execFileSync('id', [flag, 'nobody'], { encoding: 'utf8' }))
  return { uid: id('-u'), gid: id('-g') }
}

const running = new Set<ChildProcess>()
process.on('exit', () => {
  for (const child of running) child.kill('SIGQUIT')
})

export class PostgresServer {
  readonly port: number
  readonly dir = fs.mkdtempSync(path.join(os.tmpdir(), 'sluice-pg-'))
  readonly #user = plainUser()
  #process: ChildProcess | undefined

  private constructor(port: number) {
    this.port = port
  }

  static async start(): Promise<PostgresServer> {
    const server = new PostgresServer(await freePort())
    const { dir } = server
    if ('uid' in server.#user) fs.chownSync(dir, server.#user.uid, server.#user.gid)
    execFileSync(
      path.join(folder!, 'initdb'),
      ['-D', `${dir}/data`, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '-N'],
      {
        ...server.#user,
        cwd: dir,
        stdio: ['ignore', 'ignore', 'inherit'],
      },
    )
    const hba = `${dir}/data/pg_hba.conf`
    fs.writeFileSync(hba, `host all locked all scram-sha-256\n${fs.readFileSync(hba, 'utf8')}`)
    await server.up()
    return server
  }

  /** The URL of a database, for the superuser unless another user is named. */
  url(database = 'postgres', user = 'postgres'): string {
    return `postgres://${user}@127.0.0.1:${this.port}/${database}`
  }

  async up(): Promise<void> {
    // After a kill -9 a new server waits for what the old one left; it then ends at once, and is started again.
    await eventually(async () => {
      const { dir } = this
      const settings = {
        port: this.port,
        unix_socket_directories: dir,
        listen_addresses: '127.0.0.1',
        shared_buffers: '16MB',
      }
      const child = spawn(
        path.join(folder!, 'postgres'),
        ['-D', `${dir}/data`, ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])],
        { ...this.#user, cwd: dir, stdio: 'ignore' },
      )
      running.add(child)
      const over = new Promise<void>(resolve => child.once('exit', () => resolve()))
      void over.then(() => running.delete(child))
      child.unref()
      this.#process = child
      await eventually(async () => child.exitCode !== null || child.signalCode !== null || (await this.#answers()))
      return child.exitCode === null && child.signalCode === null
    })
  }

  async #answers(): Promise<boolean> {
    return this.query('SELECT 1').then(
      () => true,
      () => false,
    )
  }

  /** Offers TLS from now on, with this certificate; connections without it go on. */
  async useTls({ cert, key }: { cert: Buffer; key: Buffer }): Promise<void> {
    for (const [name, content] of Object.entries({ cert, key })) {
      const file = `${this.dir}/${name}.pem`
      fs.writeFileSync(file, content, { mode: 0o600 })
      if ('uid' in this.#user) fs.chownSync(file, this.#user.uid, this.#user.gid)
    }
    for (const [name, value] of [
      ['ssl_cert_file', `${this.dir}/cert.pem`],
      ['ssl_key_file', `${this.dir}/key.pem`],
      ['ssl', 'on'],
    ])
      await this.query(`ALTER SYSTEM SET ${name} = '${value}'`)
    await this.query('SELECT pg_reload_conf()')
    // The server reads its settings after it has answered.
    await eventually(async () => (await this.query('SHOW ssl'))[0]!['ssl'] === 'on')
  }

  /** Kills the server. The processes of its connections end when they notice. */
  async down(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#process
    if (!child) return
    this.#process = undefined
    await new Promise<void>(resolve => {
      child.ref()
      child.once('exit', () => resolve())
      if (child.exitCode !== null || child.signalCode !== null) resolve()
      child.kill(signal)
    })
  }

  async stop(): Promise<void> {
    await this.down('SIGQUIT')
    fs.rmSync(this.dir, { recursive: true, force: true })
  }

  /** Rows of the last statement. */
  async query(sql: string, database?: string, user?: string): Promise<Record<string, any>[]> {
    const client = new pg.Client({ connectionString: this.url(database, user) })
    client.on('error', () => {})
    try {
      await client.connect()
      const result = (await client.query(sql)) as unknown as pg.QueryResult | pg.QueryResult[]
      return (Array.isArray(result) ? result.at(-1)! : result).rows
    } finally {
      await client.end().catch(() => {})
    }
  }
}
