/** Ports for servers that a test starts in another process, which can't be asked to listen on "any free one" (0). */
import { once } from 'node:events'
import net from 'node:net'

/**
 * The first of `count` ports of 127.0.0.1 in a row that the system gave, and gives to nobody else for a minute.
 *
 * A port that was listened on and let go may be taken by an outgoing connection before its server comes. So a connection
 * is made to it and ended by the listener's side first. That leaves the port in TIME_WAIT: Linux then gives it neither
 * to outgoing connections nor to listeners on port 0, only to a server that asks for it by number.
 */
export async function freePort(count = 1): Promise<number> {
  for (;;) {
    const first = (await hold(0))!
    const rest = await Promise.all(Array.from({ length: count - 1 }, (_, i) => hold(first + 1 + i)))
    if (rest.every(port => port !== undefined)) return first
  }
}

/** Leaves a port in TIME_WAIT; 0 is one of the system's choice. @returns it, or undefined when it is taken */
async function hold(wanted: number): Promise<number | undefined> {
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
  // Who sends the first FIN keeps the TIME_WAIT.
  server.resume().end()
  await once(client, 'end')
  client.end()
  await Promise.all([once(client, 'close'), once(server, 'close')])
  await once(listener.close(), 'close')
  return port
}
