/** Ports for servers that a test starts in another process, where "any free one" (0) can't be asked for. */
import net from 'node:net'

// Below the ports that the system gives to outgoing connections and to listeners on port 0 (from 32768 on Linux): one
// of those may be taken again between its choice and its use. A Redis Cluster node listens 10,000 higher as well.
const FIRST = 12_000
const LAST = 22_000

const isFree = (port: number) =>
  new Promise<boolean>(resolve => {
    const server = net.createServer().once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })

/** The first of `count` ports of 127.0.0.1 in a row on which nothing listens. */
export async function freePort(count = 1): Promise<number> {
  for (;;) {
    const first = FIRST + Math.floor(Math.random() * (LAST - FIRST))
    const free = await Promise.all(Array.from({ length: count }, (_, i) => isFree(first + i)))
    if (free.every(Boolean)) return first
  }
}
