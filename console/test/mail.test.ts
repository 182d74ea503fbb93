/** Mail by SMTP, to a server of the test. */
import assert from 'node:assert/strict'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { test } from 'node:test'
import { ATTEMPT_MS, mailer } from '../mail.ts'
import { CLAIM_MS } from '../notices/outbox.ts'

const MAIL = { to: 'owner@example.com', subject: 'A notice', text: 'Once.', messageId: '<1@example.com>' }
/** Commands of SMTP that come before the text, in their order. */
const COMMANDS = ['EHLO', 'MAIL', 'RCPT', 'DATA']

/** @param silentAt what the server does not answer: it takes it, and keeps the connection */
async function startServer(silentAt: string) {
  const reached = Promise.withResolvers<Socket>()
  const taken: string[] = []
  const server = createServer(socket => {
    socket.on('error', () => {})
    let text: string | null = null
    const answer = (what: string, words: string) => {
      if (what === silentAt) reached.resolve(socket)
      else socket.write(`${words}\r\n`)
    }
    answer('greeting', '220 test')
    socket.on('data', piece => {
      const line = String(piece)
      if (text === null) {
        const command = line.slice(0, 4).toUpperCase()
        if (command === 'DATA') text = ''
        return answer(command, { DATA: '354 go on', QUIT: '221 bye' }[command] ?? '250 ok')
      }
      text += line
      if (!text.endsWith('\r\n.\r\n')) return
      taken.push(text)
      text = null
      answer('text', '250 taken')
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return { reached: reached.promise, taken, url: `smtp://127.0.0.1:${port}`, close: () => server.close() }
}

// The library waits ten minutes for an answer, and a notice is another console's after two: a server that answered
// after five minutes got it twice, or more often.
test('an attempt ends before another console tries, wherever the server stands still', async t => {
  assert.ok(ATTEMPT_MS < CLAIM_MS)
  const asked: number[] = []
  let clock = new AbortController()
  t.mock.method(AbortSignal, 'timeout', (ms: number) => {
    asked.push(ms)
    return clock.signal
  })
  for (const place of ['greeting', ...COMMANDS, 'text']) {
    clock = new AbortController()
    const server = await startServer(place)
    t.after(server.close)
    const mail = mailer({ smtp: server.url, from: 'a@example.com' }, () => {})
    const sent = assert.rejects(mail.deliver(MAIL), /the mail server had not taken it after \d+ s/, place)
    const socket = await server.reached
    const closed = new Promise(resolve => socket.once('close', resolve))
    clock.abort()
    await sent
    // Nothing goes on behind the attempt's back.
    await closed
    await mail.close()
  }
  assert.deepEqual(
    asked,
    asked.map(() => ATTEMPT_MS),
  )
})

test('a server that answers takes the mail', async t => {
  const server = await startServer('nothing')
  t.after(server.close)
  const lines: string[] = []
  const mail = mailer({ smtp: server.url, from: 'a@example.com' }, line => lines.push(line))
  await mail.deliver(MAIL)
  mail.send({ ...MAIL, subject: 'A link' })
  await mail.close()
  assert.deepEqual(
    server.taken.map(text => /^Subject: (.*)\r$/m.exec(text)![1]),
    ['A notice', 'A link'],
  )
  assert.match(server.taken[0]!, /^Message-ID: <1@example\.com>\r$/m)
  assert.deepEqual(lines, [])
})
