/** WebSocket frames between the gateway and the target of a tunnel on `uws`. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { clientFrame, TargetFrames } from '../../http/uws/frames.ts'

interface Frame {
  opcode: number
  fin: boolean
  payload: Uint8Array
}

/** A frame as a server sends it. */
function serverFrame({ opcode, fin, payload }: Frame): Buffer {
  const { length } = payload
  const head = [(fin ? 0x80 : 0) | opcode]
  if (length < 126) head.push(length)
  else if (length <= 0xffff) head.push(126, length >> 8, length & 255)
  else head.push(127, 0, 0, 0, 0, 0, length >> 16, (length >> 8) & 255, length & 255)
  return Buffer.concat([Buffer.from(head), payload])
}

/** What is heard of these bytes, in pieces of these sizes: whole messages and control frames, in order. */
function heard(bytes: Uint8Array, sizes: number[]): { fault: string | undefined; told: string[] } {
  const told: string[] = []
  let open: { binary: boolean; data: Buffer[] } | undefined
  const frames = new TargetFrames({
    part(data, binary, first, last) {
      assert.equal(first, open === undefined, 'the first part, and only that, is marked')
      open ??= { binary, data: [] }
      assert.equal(binary, open.binary)
      open.data.push(Buffer.from(data))
      if (!last) return
      told.push(`${binary} ${Buffer.concat(open.data).toString('hex')}`)
      open = undefined
    },
    control: (opcode, payload) => void told.push(`${opcode} ${Buffer.from(payload).toString('hex')}`),
  })
  let fault: string | undefined
  for (let at = 0, i = 0; at < bytes.length && fault === undefined; i++) {
    const size = sizes[i % sizes.length]!
    fault = frames.push(bytes.subarray(at, at + size))
    at += size
  }
  return { fault, told }
}

const payload = fc.oneof(
  { weight: 5, arbitrary: fc.uint8Array({ maxLength: 200 }) },
  { weight: 1, arbitrary: fc.constantFrom(65_535, 65_536, 70_000).map(size => Buffer.alloc(size, 7)) },
)
const control = fc.record({
  opcode: fc.constantFrom(9, 10),
  fin: fc.constant(true),
  payload: fc.uint8Array({ maxLength: 125 }),
})
/** A message in fragments, with control frames between them. */
const message = fc
  .record({
    binary: fc.boolean(),
    parts: fc.array(payload, { minLength: 1, maxLength: 4 }),
    between: fc.array(control),
  })
  .map(({ binary, parts, between }) => {
    const frames: Frame[] = []
    parts.forEach((part, i) => {
      frames.push({ opcode: i > 0 ? 0 : binary ? 2 : 1, fin: i === parts.length - 1, payload: part })
      const other = between[i]
      if (other) frames.push(other)
    })
    return { frames, text: `${binary} ${Buffer.concat(parts).toString('hex')}` }
  })

test('frames of a target, cut anywhere, are the messages that it sent', () => {
  fc.assert(
    fc.property(
      fc.array(message, { maxLength: 4 }),
      fc.array(fc.integer({ min: 1, max: 5000 }), { minLength: 1, maxLength: 5 }),
      (messages, sizes) => {
        const all = messages.flatMap(({ frames }) => frames)
        const { fault, told } = heard(Buffer.concat(all.map(serverFrame)), sizes)
        assert.equal(fault, undefined)
        assert.deepEqual(
          told.filter(one => one.startsWith('true') || one.startsWith('false')),
          messages.map(({ text }) => text),
        )
        assert.equal(told.length - messages.length, all.filter(({ opcode }) => opcode > 2).length)
      },
    ),
    { numRuns: 200 },
  )
})

test('what is no frame of a server is a fault, however it is cut', () => {
  for (const [bytes, fault] of [
    [[0xc1, 0], /extension/],
    [[0x81, 0x81, 0, 0, 0, 0, 65], /masked/],
    [[0x83, 0], /opcode/],
    [[0x8b, 0], /opcode/],
    [[0x80, 0], /out of order/],
    [[0x01, 1, 65, 0x81, 1, 65], /out of order/],
    [[0x09, 0], /control/],
    [[0x89, 126, 0, 126], /control/],
    [[0x88, 1, 3], /close code/],
    [[0x82, 127, 255, 255, 255, 255, 255, 255, 255, 255], /too long/],
  ] as const)
    for (const size of [1, 100]) assert.match(heard(Buffer.from(bytes), [size]).fault ?? '', fault)
})

test('a frame of the gateway is masked, with another mask each time, and holds its payload', () => {
  const masks = new Set<string>()
  for (const length of [0, 1, 125, 126, 65_535, 65_536, ...Array<number>(2000).fill(3)]) {
    const payload = Buffer.alloc(length, 'abc')
    const frame = Buffer.from(clientFrame(2, payload))
    assert.equal(frame[0], 0x82)
    const size = length < 126 ? 2 : length <= 0xffff ? 4 : 10
    const told = size === 2 ? frame[1]! & 127 : size === 4 ? frame.readUInt16BE(2) : Number(frame.readBigUInt64BE(2))
    assert.equal(told, length)
    assert.equal(frame[1]! & 0x80, 0x80)
    const mask = frame.subarray(size, size + 4)
    masks.add(mask.toString('hex'))
    assert.ok(frame.subarray(size + 4).every((byte, i) => (byte ^ mask[i & 3]!) === payload[i]))
  }
  assert.ok(masks.size > 1990)
})
