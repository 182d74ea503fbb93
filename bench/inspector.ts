/** Node's inspector in another process, over which a benchmark reads and steers it. */
import { readFileSync } from 'node:fs'

export interface Inspector {
  call(method: string, params?: object): Promise<unknown>
  close(): void
}

/**
 * Connects to the inspector of a gateway that was started with `--inspect`. Node writes its address to stderr, which is
 * in the gateway's log.
 */
export async function inspect(log: string): Promise<Inspector> {
  const url = /ws:\/\/127\.0\.0\.1:\d+\/[\w-]+/.exec(readFileSync(log, 'utf8'))?.[0]
  if (!url) throw new Error('the gateway’s inspector does not listen')
  const socket = new WebSocket(url)
  await new Promise((resolve, reject) => {
    socket.addEventListener('open', resolve, { once: true })
    socket.addEventListener('error', () => reject(new Error('no connection to the inspector')), { once: true })
  })
  const waiting = new Map<number, (result: unknown) => void>()
  socket.addEventListener('message', ({ data }) => {
    const { id, result } = JSON.parse(String(data)) as { id?: number; result?: unknown }
    if (id === undefined) return
    waiting.get(id)?.(result)
    waiting.delete(id)
  })
  let last = 0
  return {
    call: (method, params = {}) =>
      new Promise(resolve => {
        waiting.set(++last, resolve)
        socket.send(JSON.stringify({ id: last, method, params }))
      }),
    close: () => socket.close(),
  }
}
