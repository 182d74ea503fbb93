import { RedisServer } from '../test/stores/redis-server.ts'
import { LOAD, pin } from './machine.ts'

/**
 * Starts a Redis server for one run. It runs on the load's core, because in a deployment it runs on another machine. The
 * program must be installed (`ensurePrograms`).
 */
export async function startRedis(): Promise<RedisServer> {
  const server = await RedisServer.start()
  pin(LOAD, server.pid)
  return server
}
