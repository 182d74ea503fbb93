/**
 * Large uploads on `uws` are read one after the other. Read as they came, forty of 24 MB brought 168 MB in one turn of
 * the event loop, and everybody else waited for 208 ms.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ManualClock } from '../../core/tools/clock.ts'
import { type BodyOwner, pacedReads, UwsBody } from '../../http/uws/body.ts'

const MIB = 1024 * 1024
const turn = () => new Promise(resolve => setImmediate(resolve))
const piece = () => new ArrayBuffer(MIB / 8)

const clock = new ManualClock()
const reads = pacedReads(clock)
/** An upload whose socket is a list of what was done to it. */
function upload(tenant: string, length: number | undefined) {
  const socket: string[] = []
  let deliver: (chunk: ArrayBuffer, last: boolean) => void
  const exchange = {
    res: {
      onData: (each: typeof deliver) => (deliver = each),
      pause: () => socket.push('pause'),
      resume: () => socket.push('resume'),
    },
    tenant,
    headers: new Map(length === undefined ? [] : [['content-length', String(length)]]),
    shared: { clock, reads },
    settled: false,
    over: false,
    startTicking() {},
    endOfTurn() {},
    bodyEnded() {},
  }
  const body = new UwsBody(exchange as unknown as BodyOwner)
  let whole: Uint8Array | undefined
  body.announced()
  body.read({ maxBytes: 32 * MIB, timeoutMs: 60_000 }, (_, bytes) => void (whole = bytes))
  return {
    socket,
    exchange,
    arrives: (last = false) => deliver(piece(), last),
    get paused() {
      return body.paused
    },
    get length() {
      return whole?.length
    },
  }
}

test('of large uploads one is read in a turn of the event loop, tenants by turns', async () => {
  const flood = Array.from({ length: 4 }, () => upload('flood', 24 * MIB))
  for (const each of flood) each.arrives()
  const victim = upload('victim', MIB / 2)
  victim.arrives()
  const read: string[] = []
  for (let i = 0; i < 5; i++) {
    await turn()
    read.push([...flood, victim].map(({ socket }) => (socket.at(-1) === 'resume' ? 'r' : '-')).join(''))
  }
  assert.deepEqual(read, ['r----', 'r---r', 'rr--r', 'rrr-r', 'rrrrr'])
  // What the kernel already had comes although the socket is paused, and does not enter the line twice.
  for (let i = 0; i < 3; i++) victim.arrives(i === 2)
  assert.equal(victim.length, MIB / 2)
  assert.deepEqual(victim.socket, ['pause', 'resume', 'pause', 'resume'], 'read on, for the next request')
  await turn()
  await turn()
  assert.equal(victim.socket.length, 4)
})

test('a body without a length waits once it is large; a small one never does', async () => {
  const unknown = upload('a', undefined)
  unknown.arrives()
  unknown.arrives()
  assert.deepEqual(unknown.socket, [])
  unknown.arrives()
  assert.deepEqual(unknown.socket, ['pause'])
  assert.ok(unknown.paused, 'the tick that keeps slow uploads alive must not resume it')
  const small = upload('a', MIB / 4)
  small.arrives()
  small.arrives(true)
  assert.deepEqual(small.socket, [])
  await turn()
  await turn()
  assert.deepEqual(unknown.socket, ['pause', 'resume'])
})

test('after a long read all large uploads rest, so that others have the loop', async () => {
  const [a, b] = [upload('a', 24 * MIB), upload('a', 24 * MIB)]
  a.arrives()
  b.arrives()
  await turn()
  assert.equal(a.socket.at(-1), 'resume')
  a.arrives()
  clock.advance(15)
  await turn()
  const late = upload('b', 24 * MIB)
  late.arrives()
  clock.advance(29)
  for (let i = 0; i < 3; i++) await turn()
  assert.deepEqual(
    [a, b, late].map(each => each.socket.at(-1)),
    ['pause', 'pause', 'pause'],
  )
  clock.advance(1)
  for (let i = 0; i < 3; i++) await turn()
  assert.deepEqual(
    [a, b, late].map(each => each.socket.at(-1)),
    ['resume', 'resume', 'resume'],
  )
})

test('the socket of an exchange that is over is left alone', async () => {
  const gone = upload('a', 24 * MIB)
  gone.arrives()
  gone.exchange.over = true
  await turn()
  await turn()
  assert.deepEqual(gone.socket, ['pause'])
})
