/**
 * Embeddings of the simulator: vectors that depend on the input alone, so that equal texts are near and others are not.
 * They mean nothing else.
 */
import { hash } from 'node:crypto'
import type { Body } from './dialect.ts'

const DIMENSIONS = 64

/** Whether a path is that of embeddings; a version prefix, or a deployment of Azure's, may come first. */
export const isEmbeddings = (path: string): boolean =>
  /^(\/openai)?(\/v1)?(\/deployments\/[^/]+)?\/embeddings$/.test(path)

export function simulatedEmbeddings(asked: Body | undefined): { status: number; body: unknown } {
  const { input, model, dimensions, encoding_format: format } = asked ?? {}
  const inputs = typeof input === 'string' || typeof (input as unknown[])?.[0] === 'number' ? [input] : input
  if (!Array.isArray(inputs) || typeof model !== 'string')
    return {
      status: 400,
      body: { error: { message: "'input' and 'model' are required.", type: 'invalid_request_error' } },
    }
  const size = typeof dimensions === 'number' ? dimensions : DIMENSIONS
  const data = inputs.map((each, index) => {
    const vector = vectorOf(JSON.stringify(each), size)
    const bytes = Buffer.from(Float32Array.from(vector).buffer)
    return { object: 'embedding', index, embedding: format === 'base64' ? bytes.toString('base64') : vector }
  })
  const tokens = inputs.reduce((sum, each) => sum + tokensOf(each), 0)
  return {
    status: 200,
    body: { object: 'list', data, model, usage: { prompt_tokens: tokens, total_tokens: tokens } },
  }
}

/** An id is one token, and four characters of a text. */
const tokensOf = (input: string | unknown[]): number =>
  typeof input === 'string' ? Math.ceil(input.length / 4) : input.length

/** Numbers of length 1 together, from the digests of the text. */
function vectorOf(text: string, size: number): number[] {
  const raw: number[] = []
  for (let block = 0; raw.length < size; block++)
    for (const byte of hash('sha256', `${block}\0${text}`, 'buffer')) raw.push(byte - 127.5)
  raw.length = size
  const length = Math.hypot(...raw)
  return raw.map(each => Math.fround(each / length))
}
