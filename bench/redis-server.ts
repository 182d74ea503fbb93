/** A redis server for one run, on the load's core: elsewhere it is another machine's. It keeps nothing on disk. */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { findProgram } from '../test/ensure-deps.ts'
import { freePort } from '../test/ports.ts'
import { start, stop, temporaryFolder } from './children.ts'
import { listens } from './contenders/index.ts'
import { LOAD } from './machine.ts'

export interface RedisServer {
  /** As gateway.yaml's `store` wants it. */
  url: string
  stop(): Promise<void>
}

/** The program must be there (`ensurePrograms`). */
export async function startRedis(): Promise<RedisServer> {
  const folder = join(temporaryFolder(), 'redis')
  mkdirSync(folder)
  const port = await freePort()
  const options = ['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--save', '', '--daemonize', 'no']
  const server = start(LOAD, findProgram(['redis-server'])!, options, { stdio: 'ignore' })
  await listens(server, port)
  return { url: `redis://127.0.0.1:${port}/0`, stop: () => stop(server) }
}
