import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { after, test } from 'node:test'
import { adversarial } from '../../bench/meter-corpora.ts'
import { CountCache, digest, digestInSlices, digestRow } from '../../meter/cache.ts'
import { countTokens, createMeterPool, MeterBusy, parseJson } from '../../meter/index.ts'

const pool = createMeterPool({ workers: 2 })
after(() => pool.close())

const large = 'The quick brown fox jumps over the lazy dog. '.repeat(20_000)

test('workers count as the event loop does, texts cut into messages included', async () => {
  const texts = adversarial.map(({ make }) => make(1 << 15))
  texts.push('', large, '😀'.repeat(200_000), 'x', '\ud83d', `a${'\ud83d\ude00'.repeat(131_072)}`)
  const counts = await pool.count(texts)
  assert.deepEqual(
    counts,
    texts.map(text => countTokens(text)),
  )
  assert.deepEqual(await pool.count([]), [])
})

test('texts of more bytes than a worker’s memory are counted in parts, and begin and end beside others', async () => {
  const long = large.repeat(3)
  assert.ok(long.length > 1 << 21)
  const wide = `${'的模型'.repeat(500_000)}x${'😀'.repeat(300_000)}`
  const texts = ['a b', long, 'c', wide, '', ...Array.from({ length: 5000 }, (_, i) => `${i}`), large, large, large]
  assert.deepEqual(
    await pool.count(texts),
    texts.map(text => countTokens(text)),
  )
})

// The memory of a thread is written anew for each job: what a job that was given up had in it must not come into the
// next one's counts.
test('a job given up in the middle of a text leaves nothing to the next', async () => {
  const narrow = createMeterPool({ workers: 1 })
  for (const turns of [0, 1, 2, 3, 5, 8, 13]) {
    const gone = new AbortController()
    const given = assert.rejects(narrow.count([large.repeat(4), 'x'], gone.signal), { name: 'AbortError' })
    for (let i = 0; i < turns; i++) await new Promise(resolve => setImmediate(resolve))
    const next = narrow.count(['b c', large])
    gone.abort()
    await given
    assert.deepEqual(await next, [2, countTokens(large)])
  }
  await narrow.close()
})

// A thread knew one text that was counted in part, of whichever job. Beside another job a text of two million bytes was
// counted without its beginning, or with that of another.
test('texts that are counted in parts are exact beside each other', async () => {
  for (const workers of [1, 2, 3]) {
    const some = createMeterPool({ workers })
    const texts = Array.from({ length: 12 }, (_, i) => `${i}${large.slice(0, (i % 4) * 200_000 + 1000)}`)
    const body = JSON.stringify('a'.repeat(5 << 20))
    const gone = new AbortController()
    const [counts, given, { value }] = await Promise.all([
      Promise.all(texts.map((text, i) => some.count([text, 'x', text], undefined, `owner ${i % 3}`))),
      // One that is given up leaves the others as they are.
      some.count([large], gone.signal).catch((error: Error) => error.name),
      some.parse(Buffer.from(body)),
      new Promise<void>(resolve => setImmediate(resolve)).then(() => gone.abort()),
    ])
    assert.deepEqual(
      counts,
      texts.map(text => [countTokens(text), 1, countTokens(text)]),
    )
    assert.equal(given, 'AbortError')
    assert.equal(JSON.stringify(value), body)
    assert.deepEqual(some.jobs, { running: 0, waiting: 0 })
    await some.close()
  }
})

test('closing ends jobs that wait for the thread with their text', async () => {
  const closing = createMeterPool({ workers: 2 })
  const counted = Promise.allSettled(Array.from({ length: 8 }, () => closing.count([large])))
  await closing.count(['a'], undefined, 'another')
  await closing.close()
  for (const each of await counted) assert.ok(each.status === 'rejected' && each.reason instanceof MeterBusy)
})

test('several jobs run at once and answer in any order', async () => {
  const results = await Promise.all([
    pool.count([large]),
    pool.count(['a']),
    pool.count(['b c']),
    pool.parse(Buffer.from('[1]')).then(({ value }) => value),
  ])
  assert.deepEqual(results, [[countTokens(large)], [1], [2], [1]])
  assert.deepEqual(pool.jobs, { running: 0, waiting: 0 })
})

test('the event loop goes on while a large text is counted', async () => {
  let turns = 0
  let done = false
  const counted = pool.count(['a'.repeat(1 << 20)]).then(() => {
    done = true
  })
  while (!done) {
    turns++
    await new Promise(resolve => setImmediate(resolve))
  }
  await counted
  assert.ok(turns > 10, `${turns} turns`)
})

test('an abort frees a place in the line, and a running job’s thread at its next message', async () => {
  const narrow = createMeterPool({ workers: 1 })
  const running = new AbortController()
  const waiting = new AbortController()
  const first = narrow.count([large.repeat(4)], running.signal)
  const second = narrow.count(['a'], waiting.signal)
  const third = narrow.count(['b'])
  assert.deepEqual(narrow.jobs, { running: 1, waiting: 2 })

  waiting.abort()
  await assert.rejects(second, { name: 'AbortError' })
  assert.deepEqual(narrow.jobs, { running: 1, waiting: 1 })
  const fourth = narrow.count(['d d'])

  // A running job is given up at its next message, and the thread goes on to the next job.
  running.abort()
  await assert.rejects(first, { name: 'AbortError' })
  assert.deepEqual(await third, [1])
  assert.deepEqual(await fourth, [2])
  await assert.rejects(narrow.count(['e'], AbortSignal.abort()), { name: 'AbortError' })
  assert.deepEqual(narrow.jobs, { running: 0, waiting: 0 })
  await narrow.close()
})

// One line for all: an organization with 40 large prompts made every other organization wait for all of them, and from
// 32 on refused them.
test('owners take turns: a short job of one waits for one load of another’s long ones', async () => {
  const narrow = createMeterPool({ workers: 1 })
  const ended: string[] = []
  const flood = Array.from({ length: 40 }, (_, i) =>
    narrow.count([large.repeat(i === 0 ? 8 : 1)], undefined, 'flood').then(() => ended.push(`flood ${i}`)),
  )
  assert.deepEqual(narrow.jobs, { running: 1, waiting: 39 })
  const victim = narrow.count(['a b'], undefined, 'victim').then(() => ended.push('victim'))
  const parsed = narrow.parse(Buffer.from('[1]'), undefined, 'another').then(() => ended.push('another'))
  await Promise.all([victim, parsed])
  assert.deepEqual(ended, ['victim', 'another'])
  await Promise.all(flood)
  await narrow.close()
})

// A flood of images of 6 MiB made everybody else's large prompts wait for a thread that parsed one, and then for the start
// of the next thread: 280 ms instead of 35.
test('large bodies have threads of their own, and nobody waits for them but with another one', async () => {
  const narrow = createMeterPool({ workers: 1 })
  const body = Buffer.from(JSON.stringify('a'.repeat(5 << 20)))
  const flood = [1, 2].map(() => narrow.parse(Buffer.from(body), undefined, 'flood'))
  assert.deepEqual(narrow.jobs, { running: 1, waiting: 1 })
  const [count, small] = [
    narrow.count(['a b'], undefined, 'victim'),
    narrow.parse(Buffer.from('[1]'), undefined, 'other'),
  ]
  assert.deepEqual(narrow.jobs, { running: 2, waiting: 2 })
  assert.deepEqual(await count, [2])
  assert.deepEqual((await small).value, [1])
  for (const { value } of await Promise.all(flood)) assert.equal((value as string).length, 5 << 20)
  assert.deepEqual(narrow.jobs, { running: 0, waiting: 0 })
  const waiting = [1, 2].map(() => assert.rejects(narrow.parse(Buffer.from(body)), MeterBusy))
  await narrow.close()
  await Promise.all(waiting)
})

test('closing ends what is under way and refuses what comes after', async () => {
  const closing = createMeterPool({ workers: 1 })
  const running = closing.count([large])
  const waiting = closing.count(['a'])
  const refused = Promise.all([assert.rejects(running, MeterBusy), assert.rejects(waiting, MeterBusy)])
  await closing.close()
  await refused
  await assert.rejects(closing.count(['a']), MeterBusy)
})

// Nothing kept the process alive until a thread had ended whose answer came while it was being ended.
test('closing resolves, though an answer comes meanwhile', async () => {
  const closing = createMeterPool({ workers: 1 })
  await closing.count(['a'])
  const last = closing.count(['b'])
  await new Promise(resolve => setImmediate(resolve))
  // The thread answers, and this one does not hear of it before it closes the pool.
  for (const end of 'abcde') countTokens(large + end)
  const closed = closing.close()
  // Whether it answered in time does not matter here.
  await last.catch(() => {})
  await closed
})

test('parsing gives the value that JSON.parse gives, or its SyntaxError', async () => {
  for (const text of ['{"a":[1,"é😀",null],"__proto__":{"x":1},"a":2}', '"\\ud83d"', '[]', 'true']) {
    const body = Buffer.from(text)
    const { value } = await pool.parse(body)
    assert.deepEqual(value, parseJson(body))
    assert.equal(JSON.stringify(value), JSON.stringify(JSON.parse(text)))
  }
  for (const text of ['', '{', '{"a":1}x', 'nul']) {
    await assert.rejects(pool.parse(Buffer.from(text)), SyntaxError)
    assert.throws(() => parseJson(Buffer.from(text)), SyntaxError)
  }
})

test('a body that has its memory for itself goes to the thread and back, and any other stays', async () => {
  const own = Buffer.allocUnsafeSlow(300_000).fill(' ')
  own.write('{"a":1}')
  const moved = await pool.parse(own)
  assert.equal(own.buffer.byteLength, 0)
  assert.deepEqual([moved.value, Buffer.from(moved.body).toString().trim()], [{ a: 1 }, '{"a":1}'])

  const part = Buffer.allocUnsafeSlow(300_000).fill('[2]').subarray(0, 3)
  const copied = await pool.parse(part)
  assert.deepEqual([copied.value, Buffer.from(copied.body).toString(), part.toString()], [[2], '[2]', '[2]'])
})

test('a process exits although its workers live on', () => {
  const script = `import { createMeterPool } from '${new URL('../../meter/index.ts', import.meta.url).href}'
    const pool = createMeterPool({ workers: 2 })
    console.log((await pool.count(['a b c'])).join())`
  const { stdout, status } = spawnSync(process.execPath, [...process.execArgv, '--input-type=module', '-e', script], {
    encoding: 'utf8',
    timeout: 120_000,
  })
  assert.equal(stdout.trim(), '3')
  assert.equal(status, 0)
})

test('the cache forgets the least recently used, and stays in its bytes', () => {
  const cache = new CountCache(128 * 3)
  for (const key of ['a', 'b', 'c']) cache.set(key, key.charCodeAt(0))
  assert.equal(cache.get('a'), 97)
  cache.set('d', 100)
  assert.deepEqual(
    ['a', 'b', 'c', 'd'].map(key => cache.get(key)),
    [97, undefined, 99, 100],
  )
  cache.set('d', 101)
  assert.equal(cache.size, 3)
  assert.equal(cache.get('d'), 101)
})

test('a digest made in slices is the digest, wherever pairs stand', async () => {
  const rest = () => Promise.resolve()
  for (const text of [
    '',
    'abc',
    '😀'.repeat(10),
    `a${'😀'.repeat(10)}`,
    '\ud83d'.repeat(9),
    `${'x'.repeat(9)}\ude00`,
  ]) {
    for (const slice of [2, 3, 4, 7, 100]) assert.equal(await digestInSlices(text, slice, rest), digest(text))
  }
  assert.notEqual(digest('a😀'), digest('a😁'))
  // Longer than is turned into bytes at once, with a pair where that would cut.
  for (const pad of [65_534, 65_535, 65_536, 131_071]) {
    const [a, b] = ['😀', '😁'].map(face => `${'x'.repeat(pad)}${face}tail`)
    assert.notEqual(digest(a!), digest(b!))
    assert.equal(await digestInSlices(a!, 1000, rest), digest(a!))
  }
  assert.equal(digest('').length, 16)
})

test('the digest of a row tells its texts, their borders and their order apart, and a row from a text', () => {
  const row = (...texts: string[]) => digestRow(texts, 0, texts.length)
  const rows = [['ab', 'c'], ['a', 'bc'], ['abc'], ['c', 'ab'], ['ab', 'c', ''], ['', 'ab', 'c'], ['ab', '', 'c']]
  const digests = new Set(rows.map(texts => row(...texts)))
  assert.equal(digests.size, rows.length)
  // A text of the very bytes that stand for a row: two lengths, doubled, and two texts.
  assert.notEqual(digest('\x04\0\0\0ab\x02\0\0\0c'), row('ab', 'c'))
  // Texts of the same bytes in memory, one byte a character and two.
  assert.notEqual(digest('ab'), digest('\u6261'))
  assert.notEqual(row('ab', 'c'), row('\u6261', 'c'))
  assert.equal(digestRow(['x', 'ab', 'c', 'y'], 1, 3), row('ab', 'c'))
  // More than is turned into bytes at once.
  const many = Array.from({ length: 100 }, (_, i) => `${i}的`.repeat(3000))
  assert.equal(row(...many), row(...structuredClone(many)))
  assert.notEqual(row(...many), row(...many.with(99, `${many[99]}.`)))
  assert.notEqual(row(...many), row(...many.with(0, `${many[0]}.`)))
})
