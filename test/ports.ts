/** Free ports for servers that a test starts in another process and that cannot listen on port 0 (any free port). */
import { once } from 'node:events'
import net from 'node:net'

/**
 * Finds `count` consecutive free ports of 127.0.0.1, and keeps them free for a minute. @returns the first
 *
 * A port whose listener was closed may be taken by an outgoing connection before the test's server starts. So a
 * connection is made to each port, and the listener's side closes it first. That leaves the port in TIME_WAIT. Linux
 * then gives it neither to outgoing connections nor to listeners on port 0, but only to a server that asks for this
 * port number.
 */
export async function freePort(count = 1): Promise<number> {
  for (;;) {
    const first = (await leaveInTimeWait(0))!
    const rest = await Promise.all(Array.from({ length: count - 1 }, (_, i) => leaveInTimeWait(first + 1 + i)))
    if (rest.every(port => port !== undefined)) return first
  }
}

/** Leaves a port in TIME_WAIT. For 0 the system chooses one. @returns the port, or undefined when it is in use */
async function leaveInTimeWait(wanted: number): Promise<number | undefined> {
  const listener = net.createServer()
  try {
    await once(listener.listen(wanted, '127.0.0.1'), 'listening')
  } catch {
    return undefined
  }
  const { port } = listener.address() as net.AddressInfo
  const accepted = once(listener, 'connection') as Promise<[net.Socket]>
  const client = net.connect(port, '127.0.0.1').resume()
  const [server] = await accepted
  // The side that sends the first FIN is the one in TIME_WAIT.
  server.resume().end()
  await once(client, 'end')
  client.end()
  await Promise.all([once(client, 'close'), once(server, 'close')])
  await once(listener.close(), 'close')
  return port
}
