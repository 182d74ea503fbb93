/**
 * An image counted 85 tokens and a PDF 1,500, whatever their size, while providers count pixels and pages. Here the
 * size is read from the head of the file.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { imageTokens, pdfTokens } from '../../meter/media-size.ts'

const source = (bytes: Uint8Array) => ({
  kind: 'data' as const,
  mediaType: 'any',
  data: Buffer.from(bytes).toString('base64'),
})
const be = (value: number, bytes: number): number[] =>
  Array.from({ length: bytes }, (_, i) => (value >>> (8 * (bytes - 1 - i))) & 255)
const le = (value: number, bytes: number) => be(value, bytes).reverse()
const ascii = (text: string) => [...Buffer.from(text, 'latin1')]
const file = (...parts: number[][]) => {
  const bytes = parts.flat()
  return Uint8Array.from([...bytes, ...new Array(Math.max(0, 40 - bytes.length)).fill(0)])
}

const png = (w: number, h: number) => file([0x89], ascii('PNG\r\n\x1a\n'), be(13, 4), ascii('IHDR'), be(w, 4), be(h, 4))
const gif = (w: number, h: number) => file(ascii('GIF89a'), le(w, 2), le(h, 2))
const webp = (kind: string, rest: number[]) => file(ascii('RIFF'), le(99, 4), ascii('WEBP'), ascii(kind), rest)
const jpeg = (w: number, h: number, metadata: number) =>
  file(
    [0xff, 0xd8, 0xff, 0xe1],
    be(metadata + 2, 2),
    new Array(metadata).fill(7),
    [0xff, 0xc4],
    be(4, 2),
    [0, 0],
    [0xff, 0xc2],
    be(17, 2),
    [8],
    be(h, 2),
    be(w, 2),
  )

const IMAGES: [what: string, bytes: Uint8Array, tokens: number][] = [
  ['a PNG', png(750, 300), 300],
  ['a GIF', gif(150, 50), 10],
  ['a lossy WebP', webp('VP8 ', [...new Array(6).fill(0), 0, 0, 0, 0, ...le(750, 2), ...le(400, 2)]), 400],
  ['a lossless WebP', webp('VP8L', [...le(9, 4), 0x2f, ...le((749 | (199 << 14)) >>> 0, 4)]), 200],
  ['an extended WebP', webp('VP8X', [...le(10, 4), 0, 0, 0, 0, ...le(749, 3), ...le(499, 3)]), 500],
  ['a JPEG', jpeg(750, 600, 10), 600],
  ['a JPEG whose size comes after 60 KB of metadata', jpeg(750, 600, 60_000), 600],
  ['a small one, by its pixels alone', png(10, 10), 1],
  ['one that providers scale down', png(20_000, 20_000), 1600],
  ['one whose head tells nothing, by its bytes', new Uint8Array(256 * 70), 70],
  ['a large one of that kind', new Uint8Array(2_000_000), 1600],
  ['a JPEG that never comes to its frame', file([0xff, 0xd8], ...new Array(100).fill([0xff, 0xe1, 0, 2])), 2],
]
for (const [what, bytes, tokens] of IMAGES)
  test(`[METER-3] the size of an image: ${what}`, () => assert.equal(imageTokens(source(bytes)), tokens))

test('[METER-3] a PDF counts by its bytes; what is only a URL has no size yet', () => {
  assert.equal(pdfTokens(source(new Uint8Array(1_000_000))), 5000)
  assert.equal(pdfTokens({ kind: 'url', url: 'https://a.example/b.pdf' }), 0)
  assert.equal(imageTokens({ kind: 'url', url: 'https://a.example/b.png' }), 0)
})
