/** A client of Responses over WebSocket, watched for leaks (GEN-7) like the others. */
import { once } from 'node:events'
import { WS } from '../listener/web-socket.ts'
import { KEY, type TestGateway } from './harness.ts'

export const TERMINAL = ['response.completed', 'response.incomplete', 'response.failed']

export interface Frame {
  type: string
  [member: string]: any
}

export class SocketClient {
  readonly ws: any
  /** Every frame, parsed, and as it came. */
  readonly frames: Frame[] = []
  readonly texts: string[] = []
  /** Headers of the handshake's answer. */
  headers: Record<string, string> = {}
  closed: { code: number; reason: string } | undefined
  pings = 0
  #taken = 0
  #wake: () => void = () => {}

  private constructor(ws: any, t: TestGateway) {
    this.ws = ws
    ws.on('upgrade', (response: any) => {
      this.headers = response.headers
      t.leaks.look(JSON.stringify(response.headers), 'WebSocket handshake')
    })
    ws.on('message', (data: Buffer, binary: boolean) => {
      if (binary) throw new Error('a binary frame')
      const text = data.toString()
      t.leaks.look(text, 'WebSocket frame')
      this.texts.push(text)
      this.frames.push(JSON.parse(text))
      this.#wake()
    })
    ws.on('ping', () => this.pings++)
    ws.on('error', () => {})
    ws.on('close', (code: number, reason: Buffer) => {
      this.closed = { code, reason: reason.toString() }
      this.#wake()
    })
  }

  static async open(
    t: TestGateway,
    options: { headers?: Record<string, string>; path?: string } = {},
  ): Promise<SocketClient> {
    const ws = new WS(`${t.url.replace('http', 'ws')}${options.path ?? '/v1/responses'}`, {
      headers: { authorization: `Bearer ${KEY}`, ...options.headers },
      perMessageDeflate: true,
    })
    const client = new SocketClient(ws, t)
    await once(ws, 'open')
    return client
  }

  send(message: object | string): void {
    this.ws.send(typeof message === 'string' ? message : JSON.stringify(message))
  }

  create(input: unknown, more: object = {}): void {
    this.send({ type: 'response.create', model: 'eb1-preview', input, ...more })
  }

  /** The next frame that nobody has taken. */
  async next(): Promise<Frame> {
    while (this.#taken === this.frames.length) {
      if (this.closed) throw new Error(`closed: ${this.closed.code} ${this.closed.reason}`)
      await new Promise<void>(resolve => (this.#wake = resolve))
    }
    return this.frames[this.#taken++]!
  }

  /** Frames up to the end of a response, or an error that is no part of one. */
  async response(): Promise<Frame[]> {
    const frames: Frame[] = []
    for (;;) {
      const frame = await this.next()
      frames.push(frame)
      if (TERMINAL.includes(frame.type) || (frame.type === 'error' && frame['status'] !== undefined)) return frames
    }
  }

  async ended(): Promise<{ code: number; reason: string }> {
    while (!this.closed) await new Promise<void>(resolve => (this.#wake = resolve))
    return this.closed
  }

  close(): void {
    this.ws.terminate()
  }
}

/** What a handshake that is refused is answered with. An empty header is left out. */
export async function refusal(
  t: TestGateway,
  headers: Record<string, string> = {},
  path = '/v1/responses',
): Promise<{ status: number; headers: Record<string, string>; body: any }> {
  const sent = Object.entries({ authorization: `Bearer ${KEY}`, ...headers }).filter(([, value]) => value !== '')
  const ws = new WS(`${t.url.replace('http', 'ws')}${path}`, { headers: Object.fromEntries(sent) })
  ws.on('error', () => {})
  const [, response] = await once(ws, 'unexpected-response')
  let text = ''
  for await (const chunk of response) text += chunk
  t.leaks.look(text, 'WebSocket refusal')
  return { status: response.statusCode, headers: response.headers, body: JSON.parse(text) }
}

export const textOf = (frames: Frame[]): string =>
  frames
    .filter(frame => frame.type === 'response.output_text.delta')
    .map(frame => frame['delta'])
    .join('')
