/** Sends bytes that no HTTP client would send, and records the bytes of the answers. */
import { connect } from 'node:net'
import { type Book, type Case, marked } from './book.ts'
import type { Outcome } from './exchanges.ts'
import type { Gateway } from './gateway.ts'
import { Normaliser } from './normalise.ts'
import type { Upstream } from './upstream.ts'

/** A case of a book of raw bytes. */
interface Bytes extends Case {
  /** The bytes to send, in Latin-1: one character for each byte. */
  bytes: string
  /** How many answers to wait for. Absent: wait until the gateway closes the connection. */
  answers?: number
}

const PATIENCE_MS = 30_000

export async function speak(book: Book, gateway: Gateway, upstream: Upstream): Promise<Outcome[]> {
  const outcomes: Outcome[] = []
  for (const entry of book.entries) {
    const one = entry.case as Bytes
    const normaliser = new Normaliser([[upstream.address, '‹upstream›']])
    upstream.replies = []
    await gateway.time(0)
    const { text, closed } = await exchange(gateway.address, Buffer.from(one.bytes, 'latin1'), one.answers)
    const normal = normaliser.text(text).replaceAll(/^(date: ).*(?=\r$)/gim, '$1‹date›')
    const lines = [...(normal === '' ? [] : marked('|', normal)), closed ? 'closed' : 'open']
    for (const { method, path, body } of upstream.taken())
      lines.push(...marked('upstream', `${method} ${path} ${body}`))
    outcomes.push({ lines, requestId: undefined, normaliser })
  }
  return outcomes
}

function exchange(address: string, bytes: Buffer, answers?: number): Promise<{ text: string; closed: boolean }> {
  const [host, port] = address.split(':') as [string, string]
  return new Promise((resolve, reject) => {
    let text = ''
    const socket = connect(Number(port), host)
    const late = setTimeout(() => {
      socket.destroy()
      reject(new Error(`no end within ${PATIENCE_MS} ms; so far ${JSON.stringify(text)}`))
    }, PATIENCE_MS)
    const end = (closed: boolean) => {
      clearTimeout(late)
      socket.destroy()
      resolve({ text: Buffer.from(text, 'latin1').toString('utf8'), closed })
    }
    socket.on('data', data => {
      text += data.toString('latin1')
      if (answers !== undefined && wholeAnswers(text) >= answers) end(false)
    })
    // A reset counts as closing.
    socket.on('error', () => {})
    socket.on('close', () => end(true))
    socket.write(bytes)
  })
}

/** How many complete answers the text has. The gateway answers such bytes only with a content-length. */
function wholeAnswers(text: string): number {
  let count = 0
  for (let at = 0; ; count++) {
    const head = text.indexOf('\r\n\r\n', at)
    if (head === -1) return count
    const length = /^content-length: (\d+)\r$/im.exec(text.slice(at, head + 2))
    at = head + 4 + Number(length?.[1] ?? 0)
    if (at > text.length) return count
  }
}
