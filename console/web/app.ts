/**
 * Answers requests: finds the route, checks who asks, and gives the handler what it may use. Every check that pages
 * have in common is here, before any handler: host, session, second factor, membership, right, origin, form token.
 */
import type { HttpBindings } from '@hono/node-server'
import { type Context, Hono } from 'hono'
import { html } from 'hono/html'
import { isLoopback, isTrial } from '../config.ts'
import { Gateway, GatewayDown, GatewayRefused } from '../gateway.ts'
import { membershipsOf } from '../people/memberships.ts'
import { mayDo, type Right } from '../people/roles.ts'
import { formToken, newSecret, sameText } from '../people/secrets.ts'
import { findSession } from '../people/sessions.ts'
import { page } from '../views/layout.ts'
import { addressOf } from './address.ts'
import { cookieNames, readCookie, writeCookie } from './cookies.ts'
import {
  type Answer,
  FormFault,
  type MemberVisit,
  type Page,
  type Parts,
  type PersonVisit,
  Refusal,
  type Route,
  see,
  type Visit,
} from './visit.ts'

type Request = Context<{ Bindings: HttpBindings }>

/** Bytes of a form. A webhook may be larger. */
const MOST_FORM = 64 * 1024
const MOST_MACHINE = 1024 * 1024

const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ')

/** `same-origin` and not `no-referrer`, with which browsers send `Origin: null` with a form. */
const HEADERS: Record<string, string> = {
  'content-security-policy': CONTENT_SECURITY_POLICY,
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
}

export function createApp(parts: Parts, pages: readonly Page[]): Hono<{ Bindings: HttpBindings }> {
  const app = new Hono<{ Bindings: HttpBindings }>()
  const own = new URL(parts.config.url)
  app.get('/healthz', c => c.text('ok\n'))
  app.use(async (c, next) => {
    // Another name is a page of another site that lets its name point to this machine, or a mistake.
    const host = c.req.header('host')?.toLowerCase()
    if (host !== own.host) {
      const local = isLoopback(own.hostname) && host !== undefined && isLoopback(host.replace(/:\d+$/, ''))
      if (!local || c.req.method !== 'GET')
        return c.text(`this console answers at ${own.origin}\n`, 421, { 'cache-control': 'no-store' })
      return c.redirect(`${own.origin}${new URL(c.req.url).pathname}`, 302)
    }
    return next()
  })
  app.get('/assets/:name', c => {
    const file = parts.assets.files.get(c.req.param('name'))
    if (!file) return c.notFound()
    const kept = c.req.query('v') ? 'public, max-age=31536000, immutable' : 'no-cache'
    return c.body(file.body as never, 200, { ...HEADERS, 'content-type': file.type, 'cache-control': kept })
  })
  const methods = new Map<string, string[]>()
  for (const route of pages.flatMap(({ routes }) => routes)) {
    methods.set(route.path, [...(methods.get(route.path) ?? []), route.method])
    app.on(route.method, route.path, c => answer(parts, route, c))
  }
  for (const [path, known] of methods)
    app.all(path, async c => {
      const visit = await visitOf(parts, c)
      return respond(parts, visit, fault(visit, 405, 'this address does not take that'), { allow: known.join(', ') })
    })
  app.notFound(async c => {
    const visit = await visitOf(parts, c)
    return respond(parts, visit, fault(visit, 404, NOT_YOURS))
  })
  app.onError((error, c) => {
    parts.tell(`${c.req.method} ${c.req.routePath}: ${error.stack ?? error.message}`)
    return c.text('The console has a fault; it is in its log.\n', 500, HEADERS)
  })
  return app
}

async function answer(parts: Parts, route: Route, c: Request): Promise<Response> {
  if (route.scope === 'machine') {
    const body = await bodyOf(c, MOST_MACHINE)
    if (body === null) return c.text('too large\n', 413, HEADERS)
    const { db } = parts
    const given = await route.handle({
      parts,
      db,
      now: parts.now(),
      params: c.req.param(),
      headers: c.req.raw.headers,
      body,
    })
    return respond(parts, null, given)
  }
  const visit = await visitOf(parts, c)
  try {
    const handle = admitted(route, visit)
    if (route.method === 'POST') await readForm(visit, c)
    return respond(parts, visit, await handle())
  } catch (error) {
    return respond(parts, visit, refused(visit, error))
  }
}

/** What a request is, before it is known who may send it. */
async function visitOf(parts: Parts, c: Request): Promise<VisitWithCookies> {
  const { config, db } = parts
  const now = parts.now()
  const names = cookieNames(config.url)
  const cookie = readCookie(c, names.session)
  const session = cookie === undefined ? null : await findSession(db, cookie, config.sessions, now)
  // Forms of who is not signed in have a secret of their own, so that no other site can make a form that is taken.
  const formSecret = session ? cookie! : (readCookie(c, names.form) ?? newSecret())
  const complete = session?.complete === 1 ? session : null
  const visit: VisitWithCookies = {
    ...{ parts, db, now, url: new URL(c.req.url), params: c.req.param(), form: new URLSearchParams() },
    ...{ session: complete, pending: complete ? null : session, formToken: formToken(formSecret), fault: null },
    address: addressOf(c, config.proxies),
    agent: c.req.header('user-agent') ?? '',
    memberships: complete ? await membershipsOf(db, complete.person) : [],
    cookies: [],
    setSession(secret) {
      visit.cookies.push(writeCookie(config.url, names.session, secret, config.sessions.life))
    },
  }
  if (!session && readCookie(c, names.form) === undefined)
    visit.cookies.push(writeCookie(config.url, names.form, formSecret, null))
  return visit
}

type VisitWithCookies = Visit & { cookies: string[] }

/** Reads the fields of a form that this console made. @throws Refusal for any other */
async function readForm(visit: Visit, c: Request): Promise<void> {
  const origin = c.req.header('origin')
  const site = c.req.header('sec-fetch-site')
  // A browser says where a form comes from by one header or the other.
  if (origin === undefined ? site !== 'same-origin' : origin !== visit.parts.config.url)
    throw new Refusal(403, 'This form came from another site.')
  if (!/^application\/x-www-form-urlencoded\b/i.test(c.req.header('content-type') ?? ''))
    throw new Refusal(415, 'This is not a form.')
  const body = await bodyOf(c, MOST_FORM)
  if (body === null) throw new Refusal(413, 'This form is too large.')
  const form = new URLSearchParams(body.toString('utf8'))
  if (!sameText(form.get('form') ?? '', visit.formToken))
    throw new Refusal(
      403,
      'This form is too old, or you have signed in or out meanwhile. Go back, reload and try again.',
    )
  visit.form = form
}

async function bodyOf(c: Request, most: number): Promise<Buffer | null> {
  const pieces: Uint8Array[] = []
  let size = 0
  for await (const piece of c.req.raw.body ?? []) {
    size += piece.length
    if (size > most) return null
    pieces.push(piece)
  }
  return Buffer.concat(pieces)
}

/** What answers, if the visitor may. Nothing has been read of a form yet. @throws Refusal where not */
function admitted(route: Exclude<Route, { scope: 'machine' }>, visit: Visit): () => Promise<Answer> {
  if (route.scope === 'public') return () => tried(visit, route, visit)
  if (!visit.session) {
    const next = route.method === 'GET' ? `?next=${encodeURIComponent(visit.url.pathname + visit.url.search)}` : ''
    throw new GoTo(visit.pending ? '/sign-in/second' : `/sign-in${next}`)
  }
  const person = visit as PersonVisit
  if (route.scope === 'person') return () => tried(visit, route, person)
  if (route.scope === 'staff') {
    // Whether there are pages of staff is nobody else's business.
    if (person.session.who.staff !== 1) throw new Refusal(404, NOT_YOURS)
    return () => tried(visit, route, person)
  }
  const organization = visit.memberships.find(({ id }) => id === visit.params['organization'])
  if (!organization) throw new Refusal(404, NOT_YOURS)
  const may = (right: Right) => mayDo(organization.role, right)
  const member: MemberVisit = Object.assign(person, {
    ...{ organization, may },
    gateway: new Gateway(visit.parts.send, organization.id, person.session.person),
  })
  if (!may(route.right))
    throw new Refusal(403, `Your role in ${organization.name} is ${organization.role}; ask an owner for another one.`)
  return () => tried(visit, route, member)
}

/** The same for what is not there and for what is somebody else's. */
const NOT_YOURS = 'There is no such page, or it is not yours to see.'

/** Sends the visitor elsewhere, in place of an answer. */
class GoTo extends Error {
  readonly path: string
  constructor(path: string) {
    super(path)
    this.path = path
  }
}

/** Calls the handler; shows the form once more when what it had is refused. */
async function tried<V extends Visit>(
  visit: Visit,
  { handle, again }: { handle(visit: V): Promise<Answer> | Answer; again?: (visit: V) => Promise<Answer> | Answer },
  given: V,
): Promise<Answer> {
  try {
    return await handle(given)
  } catch (error) {
    const refusal =
      error instanceof FormFault || (error instanceof GatewayRefused && [400, 409, 412].includes(error.status))
    if (!refusal || !again) throw error
    visit.fault = wordsOf(error as Error)
    return { ...(await again(given)), status: 400 }
  }
}

/** What a refusal says to people. The gateway's file is its operator's business, and so is its path. */
const wordsOf = (error: Error): string =>
  error instanceof GatewayRefused && error.code === 'in_file'
    ? 'This organization stands in the gateway’s file, and its operator changes it there.'
    : sentence(error.message)

const sentence = (words: string) => words.charAt(0).toUpperCase() + words.slice(1) + (/[.!?]$/.test(words) ? '' : '.')

/** The page of a refusal or of an outage. @throws what is neither */
function refused(visit: Visit, error: unknown): Answer {
  if (error instanceof GoTo) return see(error.path)
  if (error instanceof Refusal) return fault(visit, error.status, error.message)
  if (error instanceof FormFault) return fault(visit, 400, sentence(error.message))
  if (error instanceof GatewayDown) {
    const { config, tell } = visit.parts
    tell(error.message)
    // On one machine with it, before others use it: whoever reads this can start it.
    const ownMachine = isTrial(config) && config.gateway.token_file !== undefined
    return page(
      visit,
      'The gateway does not answer',
      html`<p>What was asked for stands at the gateway, and it does not answer at the moment. If you were changing
        something, look whether it is changed before you try again.</p>
        ${ownMachine ? html`<p>Start it with <code>npm start</code>, and leave it running.</p>` : ''}
        <p>Signing in, members, invitations and your account go on working. Requests with API keys do not depend on this
        console.</p>`,
      { status: 503, headers: { 'retry-after': '10' } },
    )
  }
  if (error instanceof GatewayRefused) {
    if (error.status === 404) return fault(visit, 404, 'There is no such thing, or it is gone.')
    // A refusal of the token is the operator's matter, and its words are for the log.
    if (error.status === 401 || error.status === 403) {
      visit.parts.tell(`the gateway refuses the console: ${error.status} ${error.code} ${error.message}`)
      return fault(visit, 502, 'The gateway does not let this console in. Its operator finds the reason in the log.')
    }
    return fault(visit, 400, wordsOf(error))
  }
  throw error
}

const TITLES: Record<number, string> = { 403: 'Not allowed', 404: 'Not found', 429: 'Too many attempts' }

function fault(visit: Visit, status: number, words: string): Answer {
  return page(
    visit,
    TITLES[status] ?? 'That did not work',
    html`<p>${words}</p><p><a href="/">Go to the start</a></p>`,
    {
      status,
    },
  )
}

async function respond(
  { config }: Parts,
  visit: VisitWithCookies | null,
  { status, headers, body }: Answer,
  more: Record<string, string> = {},
): Promise<Response> {
  const secure: Record<string, string> = config.url.startsWith('https:')
    ? { 'strict-transport-security': 'max-age=31536000' }
    : {}
  const given = body instanceof ReadableStream ? body : new Uint8Array(Buffer.from((await body) as string))
  const response = new Response(given, {
    status,
    headers: { ...HEADERS, ...secure, ...headers, ...more },
  })
  for (const cookie of visit?.cookies ?? []) response.headers.append('set-cookie', cookie)
  return response
}
