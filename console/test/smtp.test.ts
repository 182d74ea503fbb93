/** Mail by SMTP, through the real transport, to a small server of the test. */
import assert from 'node:assert/strict'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { after, before, beforeEach, test } from 'node:test'
import { eventually } from '../../test/eventually.ts'
import { type Mailer, mailer } from '../mail.ts'

interface Taken {
  /** The commands before the mail. */
  envelope: string[]
  /** Headers in their order, unfolded. */
  headers: [name: string, value: string][]
  body: string
}

let taken: Taken[] = []
/** What MAIL is answered, one for each attempt; 250 when there is none. */
let answers: string[] = []
const lines: string[] = []

const server = createServer(serve)
let mail: Mailer
before(async () => {
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const from = 'Example <console@example.com>'
  mail = mailer({ smtp: `smtp://127.0.0.1:${port}`, from }, line => void lines.push(line))
})
after(async () => {
  await mail?.close()
  await new Promise(resolve => server.close(resolve))
})
beforeEach(() => {
  taken = []
  answers = []
  lines.length = 0
})

/** RFC 5321, as far as a client needs it that sends one mail. */
function serve(socket: Socket): void {
  let text = ''
  let envelope: string[] = []
  let data = false
  const say = (line: string) => socket.write(`${line}\r\n`)
  socket.on('error', () => {})
  socket.setEncoding('latin1').on('data', chunk => {
    text += chunk
    for (;;) {
      const end = text.indexOf(data ? '\r\n.\r\n' : '\r\n')
      if (end < 0) return
      const line = text.slice(0, end)
      text = text.slice(end + (data ? 5 : 2))
      if (data) {
        data = false
        taken.push({ envelope, ...parsed(line) })
        envelope = []
        say('250 taken')
        continue
      }
      const word = line.split(' ')[0]!.toUpperCase()
      if (word === 'MAIL' || word === 'RCPT') envelope.push(line)
      data = word === 'DATA'
      if (word === 'MAIL') say(answers.shift() ?? '250 fine')
      else say(data ? '354 go on' : word === 'QUIT' ? '221 bye' : '250 fine')
    }
  })
  say('220 mail.test')
}

function parsed(mail: string): Pick<Taken, 'headers' | 'body'> {
  const at = mail.indexOf('\r\n\r\n')
  const headers = mail
    .slice(0, at)
    .replace(/\r\n[ \t]+/g, ' ')
    .split('\r\n')
    .map((line): [string, string] => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()])
  return { headers, body: mail.slice(at + 4) }
}

const valuesOf = ({ headers }: Taken, name: string) =>
  headers.flatMap(([each, value]) => (each.toLowerCase() === name ? [value] : []))

test('a whole mail: sender, receiver, subject, Message-ID, text', async () => {
  const text = 'Sign in:\n\nhttps://console.example.com/sign-in/link/abc\n.\nThe line before is a dot.\n'
  await mail.deliver({ to: 'ada@example.org', subject: 'Sign in to Example', text, messageId: '<one@example.com>' })
  assert.equal(taken.length, 1)
  const [one] = taken as [Taken]
  assert.deepEqual(
    one.envelope.map(line => line.split(' ').slice(0, 2).join(' ')),
    ['MAIL FROM:<console@example.com>', 'RCPT TO:<ada@example.org>'],
  )
  for (const [name, value] of [
    ['from', 'Example <console@example.com>'],
    ['to', 'ada@example.org'],
    ['subject', 'Sign in to Example'],
    ['message-id', '<one@example.com>'],
    ['content-type', 'text/plain; charset=utf-8'],
  ] as const)
    assert.deepEqual(valuesOf(one, name), [value])
  assert.equal(one.body.replaceAll('\r\n', '\n').replace(/^\.\./gm, '.').trimEnd(), text.trimEnd())
})

test('what people wrote makes no header, and no second receiver', async () => {
  const subject = 'Invitation to Oak\r\nBcc: eve@example.net\r\n\r\nAnother body'
  await mail.deliver({ to: 'ada@example.org', subject, text: 'Hello' })
  const [one] = taken as [Taken]
  assert.deepEqual(valuesOf(one, 'bcc'), [])
  const known = /^(From|To|Subject|Message-ID|Content-Transfer-Encoding|Date|MIME-Version|Content-Type)$/
  for (const [name] of one.headers) assert.match(name, known)
  assert.match(valuesOf(one, 'subject')[0]!, /^Invitation to Oak\s+Bcc: eve@example\.net\s+Another body$/)
  assert.equal(one.body.trim(), 'Hello')
  assert.equal(one.envelope.length, 2)
})

test('names and subjects of any alphabet are encoded, and come back whole', async () => {
  const subject = 'Einladung: Übermut & 水'
  await mail.deliver({ to: 'ada@example.org', subject, text: 'Grüße' })
  const [one] = taken as [Taken]
  const decoded = valuesOf(one, 'subject')[0]!
    .replace(/\?= =\?/g, '?==?')
    .replace(/=\?UTF-8\?([BQ])\?([^?]*)\?=/gi, (_, kind: string, words: string) =>
      kind.toUpperCase() === 'B'
        ? Buffer.from(words, 'base64').toString('latin1')
        : words.replaceAll('_', ' ').replace(/=([0-9A-F]{2})/g, (_, hex) => String.fromCharCode(Number(`0x${hex}`))),
    )
  assert.equal(Buffer.from(decoded, 'latin1').toString(), subject)
})

test('what the server does not take now is sent again, and told', async t => {
  // The pauses of mail.ts are over at once. Timers of the transport stay as they are.
  const real = globalThis.setTimeout
  const pauses: number[] = []
  t.mock.method(globalThis, 'setTimeout', (work: () => void, ms = 0, ...rest: unknown[]) => {
    const pause = new Error().stack!.includes('/console/mail.ts')
    if (pause) pauses.push(ms)
    return real(work, pause ? 0 : ms, ...(rest as []))
  })
  answers = ['451 greylisted, come again', '421 busy']
  const other = mailer(
    { smtp: `smtp://127.0.0.1:${(server.address() as AddressInfo).port}`, from: 'console@example.com' },
    line => void lines.push(line),
  )
  other.send({ to: 'ada@example.org', subject: 'Sign in', text: 'Hello' })
  await eventually(() => taken.length === 1)
  await other.close()
  assert.deepEqual(pauses, [5000, 10_000])
  assert.equal(lines.length, 2)
  assert.match(lines[0]!, /^mail "Sign in" could not be sent \(attempt 1\): .*451 greylisted/)
  assert.match(lines[1]!, /^mail "Sign in" could not be sent \(attempt 2\): .*421 busy/)

  // `deliver` leaves that to its caller, who has a table of what is to be sent.
  answers = ['451 not now']
  await assert.rejects(mail.deliver({ to: 'ada@example.org', subject: 'x', text: 'y' }), /451 not now/)
  assert.equal(taken.length, 1)
})
