/** What a console has where its url is https: a proxy before it does TLS, and passes `Host` on. */
import assert from 'node:assert/strict'
import { request } from 'node:http'
import { after, before, test } from 'node:test'
import { freePort } from '../../test/ports.ts'
import { parseConfig } from '../config.ts'
import { type Console, openConsole } from '../console.ts'
import { ensurePerson } from '../people/persons.ts'
import { beginSession } from '../people/sessions.ts'

const HOST = 'console.example.com'
const ORIGIN = `https://${HOST}`

let c: Console
let port: number
before(async () => {
  port = await freePort()
  const config = parseConfig(
    `listen: 127.0.0.1:${port}
url: ${ORIGIN}
database: "sqlite::memory:"
gateway: { admin: "http://127.0.0.1:1", token: a, staff_token: b }
mail: { smtp: "smtp://127.0.0.1:1", from: console@example.com }`,
    'console.yaml',
  )
  const mail = { send() {}, deliver: async () => {}, close: async () => {} }
  c = await openConsole(config, { mail, tell() {} })
})
after(() => c?.close())

interface Seen {
  status: number
  headers: Record<string, string | string[] | undefined>
  cookies: string[]
  body: string
}

/** As the proxy asks. */
function ask(path: string, headers: Record<string, string> = {}, form?: Record<string, string>): Promise<Seen> {
  const { promise, resolve, reject } = Promise.withResolvers<Seen>()
  const type = form ? { 'content-type': 'application/x-www-form-urlencoded', origin: ORIGIN } : {}
  const asked = request(
    { host: '127.0.0.1', port, path, method: form ? 'POST' : 'GET', headers: { host: HOST, ...type, ...headers } },
    async response => {
      const pieces: Buffer[] = []
      for await (const piece of response) pieces.push(piece)
      const { statusCode, headers } = response
      const body = Buffer.concat(pieces).toString()
      resolve({ status: statusCode!, headers, cookies: headers['set-cookie'] ?? [], body })
    },
  )
  asked.on('error', reject)
  asked.end(form && new URLSearchParams(form).toString())
  return promise
}

async function session(): Promise<string> {
  const { db } = c.parts
  const { id } = await ensurePerson(db, { email: 'ada@example.com' }, Date.now())
  return beginSession(db, { person: id, means: 'link', complete: true }, { address: '', agent: '' }, Date.now())
}

const ATTRIBUTES = '; Path=/; HttpOnly; SameSite=Lax; Secure'

test('cookies are __Host- with what browsers ask for such a name, and a plain name is none', async () => {
  const { cookies, body } = await ask('/sign-in')
  assert.equal(cookies.length, 1)
  const [cookie] = cookies
  const [, secret] = /^__Host-sluice-form=([\w-]{43})(.*)$/.exec(cookie!)!
  assert.equal(cookie!.replace(`__Host-sluice-form=${secret}`, ''), ATTRIBUTES)
  assert.ok(!/domain/i.test(cookie!))

  // The form is taken with this cookie, and not with what another host of the domain could set.
  const fields = { form: /name="form" value="([^"]+)"/.exec(body)![1]!, email: 'nobody@example.com' }
  const taken = await ask('/sign-in', { cookie: `__Host-sluice-form=${secret}` }, fields)
  assert.equal(taken.status, 200)
  // With a mail server nothing is printed, and no page leads into the terminal.
  assert.match(taken.body, /<h1>Look into your mail<\/h1>.*spam/s)
  assert.doesNotMatch(taken.body, /terminal/)
  assert.equal((await ask('/sign-in', { cookie: `sluice-form=${secret}` }, fields)).status, 403)
})

test('a session has such a cookie, which ends with its name', async () => {
  const secret = await session()
  const account = await ask('/account', { cookie: `__Host-sluice-session=${secret}` })
  assert.equal(account.status, 200)
  const plain = await ask('/account', { cookie: `sluice-session=${secret}` })
  assert.deepEqual([plain.status, plain.headers['location']], [303, '/sign-in?next=%2Faccount'])
  const form = /name="form" value="([^"]+)"/.exec(account.body)![1]!
  const out = await ask('/sign-out', { cookie: `__Host-sluice-session=${secret}` }, { form })
  assert.equal(out.status, 303)
  assert.deepEqual(out.cookies, [`__Host-sluice-session=${ATTRIBUTES}; Max-Age=0`])
  assert.equal((await ask('/account', { cookie: `__Host-sluice-session=${secret}` })).status, 303)
})

test('browsers are told to come by https alone: on pages, redirections and refusals', async () => {
  const cookie = `__Host-sluice-session=${await session()}`
  for (const [path, status] of [
    ['/sign-in', 303],
    ['/account', 200],
    ['/staff', 404],
    ['/nowhere', 404],
  ] as const) {
    const seen = await ask(path, { cookie })
    assert.equal(seen.status, status, path)
    assert.equal(seen.headers['strict-transport-security'], 'max-age=31536000', path)
  }
  assert.equal((await ask('/account')).headers['strict-transport-security'], 'max-age=31536000')
})
