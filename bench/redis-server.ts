/**
 * A Redis server for one run. It runs on the load's core, because in a deployment it runs on another machine. It stores
 * nothing on disk.
 */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { findProgram } from '../test/ensure-deps.ts'
import { freePort } from '../test/ports.ts'
import { start, stop, temporaryFolder } from './children.ts'
import { listens } from './contenders/index.ts'
import { LOAD } from './machine.ts'

export interface RedisServer {
  /** The address, as `store` of gateway.yaml takes it. */
  url: string
  pid: number
  stop(): Promise<void>
}

/** Starts the server. The program must be installed (`ensurePrograms`). */
export async function startRedis(): Promise<RedisServer> {
  const folder = join(temporaryFolder(), 'redis')
  mkdirSync(folder)
  const port = await freePort()
  const options = ['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--save', '', '--daemonize', 'no']
  const server = start(LOAD, findProgram(['redis-server'])!, options, { stdio: 'ignore' })
  await listens(server, port)
  return { url: `redis://127.0.0.1:${port}/0`, pid: server.pid!, stop: () => stop(server) }
}
