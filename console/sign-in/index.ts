/** Signing in: by a link in a mail, by a passkey; the second factor; signing out. */
import { html } from 'hono/html'
import { isTrial } from '../config.ts'
import type { LinkTable, PersonTable } from '../db/tables.ts'
import { mayTry } from '../people/attempts.ts'
import { emailOf, nameOf } from '../people/email.ts'
import { note } from '../people/events.ts'
import { newLink, peekLink, useLink } from '../people/links.ts'
import { authenticationOptions, passkeysOf, passkeysWork, signedBy } from '../people/passkeys.ts'
import { ensurePerson, maySignUp, personByEmail, someStaff } from '../people/persons.ts'
import { beginSession, completeSession, endSessions, type Session } from '../people/sessions.ts'
import { takeCode, takeRecoveryCode } from '../people/totp.ts'
import { ensureFirst, hasDemo, takeOver } from '../staff/organizations.ts'
import { page } from '../views/layout.ts'
import { form, input, passkey } from '../views/parts.ts'
import { networkOf } from '../web/address.ts'
import { type Answer, FormFault, get, json, ownPath, type Page, post, Refusal, see, type Visit } from '../web/visit.ts'
import { answerOf, askProvider } from './openid.ts'

const MINUTE = 60_000
/** Of one network: an office shares an address. */
const BY_ADDRESS = { most: 30, per: 10 * MINUTE }
/** Mails to one address. Beyond it the answer is the same, and nothing is sent. */
const BY_ACCOUNT = { most: 5, per: 10 * MINUTE }
/** Codes for the second factor of one person. */
const CODES = { most: 10, per: 15 * MINUTE }

export const signIn: Page = {
  name: 'sign-in',
  routes: [
    get.public('/sign-in', show),
    post.public('/sign-in', ask, show),
    get.public('/sign-in/link/:secret', showLink),
    post.public('/sign-in/link/:secret', takeLink),
    get.public('/sign-in/openid/:provider', goToProvider),
    get.public('/sign-in/openid/:provider/callback', takeAnswer),
    post.public('/sign-in/passkey/options', passkeyOptions),
    post.public('/sign-in/passkey', takePasskey),
    get.public('/sign-in/second', showSecond),
    post.public('/sign-in/second', takeSecond, showSecond),
    get.public('/first/:secret', showFirst),
    post.public('/first/:secret', takeFirst, showFirst),
    get.public('/waiting', showWaiting),
    post.public('/waiting', joinWaiting, showWaiting),
    post.public('/sign-out', signOut),
  ],
}

// ---- by mail --------------------------------------------------------------------------------------------------------

const SIGNUP: Record<string, string> = {
  invite: 'New here? This service is by invitation; the address that was invited signs in here.',
  open: 'New here? Sign in with your address, and open your organization.',
}

function show(visit: Visit): Answer {
  if (visit.session) return see('/')
  const { config } = visit.parts
  const next = ownPath(visit.form.get('next') ?? visit.url.searchParams.get('next'))
  const email = visit.form.get('email') ?? visit.url.searchParams.get('email')
  return page(
    visit,
    'Sign in',
    html`<div class="card narrow">
      ${form(
        visit,
        '/sign-in',
        html`<input type="hidden" name="next" value="${next}" />
          ${input({
            name: 'email',
            label: 'Your e-mail address',
            type: 'email',
            value: email,
            required: true,
            more: { autocomplete: 'username webauthn' },
          })}
          <button type="submit" class="main">Send me a link</button>`,
      )}
      ${
        passkeysWork(config)
          ? passkey(visit, 'use', html`<button type="button">Sign in with a passkey</button>`, next)
          : ''
      }
      ${config.openid.map(
        ({ id, name }) => html`<p><a class="button"
        href="/sign-in/openid/${id}?next=${encodeURIComponent(next)}">Sign in with ${name}</a></p>`,
      )}
    </div>
    <p class="muted">${
      config.signup === 'waitlist'
        ? html`New here? <a href="/waiting">Ask for access</a>.`
        : (SIGNUP[config.signup] ?? '')
    }</p>`,
    { scripts: ['passkey.mjs'] },
  )
}

/** The answer is the same for every address, and comes before anything is looked up. */
async function ask(visit: Visit): Promise<Answer> {
  const { parts, db, now, form: sent, address } = visit
  const email = emailOf(sent.get('email'))
  if (email === null) throw new FormFault('this is no address of mail; write one such as ada@example.com')
  await throttle(visit, 'sign-in')
  if (await mayTry(db, `sign-in account ${email}`, BY_ACCOUNT, now))
    parts.later(() => sendLink(visit, email, ownPath(sent.get('next')), address))
  if (isTrial(parts.config))
    return page(
      visit,
      'Look into the terminal',
      html`<p>Without a mail server, mail is printed in the terminal in which the console runs. If
        <strong>${email}</strong> may sign in here, a link is there. It works once, for ten minutes.</p>
        <p class="muted">Nothing there? <a href="/sign-in">Try again</a>.</p>`,
    )
  return page(
    visit,
    'Look into your mail',
    html`<p>If <strong>${email}</strong> may sign in here, a link is on its way. It works once, for ten minutes.</p>
      <p class="muted">Nothing came? Look among the spam, or <a href="/sign-in">try again</a>.</p>`,
  )
}

/** @throws Refusal for a network that tries too often */
async function throttle({ db, address, now }: Visit, what: string): Promise<void> {
  if (!(await mayTry(db, `${what} network ${networkOf(address)}`, BY_ADDRESS, now)))
    throw new Refusal(429, 'There were too many attempts from your network. Wait ten minutes, and try again.')
}

async function sendLink({ parts, db, now }: Visit, email: string, next: string, address: string): Promise<void> {
  const { config, mail } = parts
  const person = await personByEmail(db, email)
  if (!person && !(await maySignUp(db, email, config.signup, now))) return
  const secret = await newLink(db, { purpose: 'sign-in', email, person: null, next }, now)
  mail.send({
    to: email,
    subject: `Sign in to ${config.name}`,
    text: `Open this link to sign in to ${config.name}:

${config.url}/sign-in/link/${secret}

It works once, for ten minutes. It was asked for from ${address}. If that was not you, ignore this mail:
nobody can sign in without it.
`,
  })
}

const PURPOSES = ['sign-in', 'email']

/** A mail's scanner opens links, too: opening does nothing, the button does. */
async function showLink(visit: Visit): Promise<Answer> {
  const { db, now, params } = visit
  const link = await peekLink(db, params['secret']!, now)
  if (!link || !PURPOSES.includes(link.purpose)) return tooOld(visit)
  const change = link.purpose === 'email'
  if (change && !isOwn(visit, link)) return elsewhere(visit)
  return page(
    visit,
    change ? 'Change your address' : 'Sign in',
    html`<div class="card narrow">
      <p>${change ? 'From now on you sign in as' : 'You sign in as'} <strong>${link.email}</strong>.</p>
      ${form(
        visit,
        `/sign-in/link/${params['secret']}`,
        html`<button type="submit" class="main">${change ? 'Change it' : 'Sign in'}</button>`,
      )}
    </div>`,
  )
}

/**
 * Whether the address that changes is that of who is signed in here. Otherwise somebody could give an account of their
 * own the address of a stranger who presses the button, and who would then sign in to that account.
 */
const isOwn = ({ session }: Visit, { person }: LinkTable) => session !== null && session.person === person

function elsewhere(visit: Visit): Answer {
  return page(
    visit,
    'Change your address',
    html`<p>Open this link in the browser in which you asked for it. If you have not asked for it, ignore the
      mail.</p>`,
    { status: 403 },
  )
}

/** Whoever is signed in stays so, whosever link it was. */
const stillSignedIn = ({ who }: Session) =>
  html`<p>You are signed in already as <strong>${who.email}</strong>. <a href="/">Go to the start</a>.</p>`

function tooOld(visit: Visit): Answer {
  return page(
    visit,
    'This link does not work any more',
    html`<p>It has been used, or is older than ten minutes.
      ${visit.session ? '' : html`<a href="/sign-in">Ask for another</a>.`}</p>
      ${visit.session ? stillSignedIn(visit.session) : ''}`,
    { status: 404 },
  )
}

async function takeLink(visit: Visit): Promise<Answer> {
  const { parts, db, now, params } = visit
  await throttle(visit, 'link')
  const secret = params['secret']!
  const seen = await peekLink(db, secret, now)
  if (!seen || !PURPOSES.includes(seen.purpose)) return tooOld(visit)
  if (seen.purpose === 'email' && !isOwn(visit, seen)) return elsewhere(visit)
  const link = await useLink(db, secret, now)
  if (!link) return tooOld(visit)
  if (link.purpose === 'email') return changeEmail(visit, link.person!, link.email)
  const known = await personByEmail(db, link.email)
  // An invitation may have been taken back since the link was sent.
  if (!known && !(await maySignUp(db, link.email, parts.config.signup, now))) return tooOld(visit)
  const person = known ?? (await ensurePerson(db, { email: link.email }, now))
  return begin(visit, person, 'link', ownPath(link.next))
}

/** The link was sent to the new address, so whoever has it reads that mail; and they asked for it themselves. */
async function changeEmail(visit: Visit, id: string, email: string): Promise<Answer> {
  const { db, now, address } = visit
  const taken = await personByEmail(db, email)
  const person = await db.selectFrom('person').selectAll().where('id', '=', id).executeTakeFirst()
  if (taken || !person) return tooOld(visit)
  await db.transaction().execute(async step => {
    await step.updateTable('person').set({ email }).where('id', '=', id).execute()
    await step.deleteFrom('link').where('email', '=', person.email).execute()
    await note(step, { person: id, action: 'account.email', address, now })
  })
  visit.parts.mail.send({
    to: person.email,
    subject: `Your address at ${visit.parts.config.name} has changed`,
    text: `From now on you sign in with another address. If that was not you, write to the operator at once.\n`,
  })
  return see('/account', 'email-changed')
}

/** Begins a session under a new secret, and ends the one that this browser had. */
async function begin(visit: Visit, person: PersonTable, means: string, next: string): Promise<Answer> {
  const { db, now, address, agent } = visit
  const before = visit.session ?? visit.pending
  if (before) await endSessions(db, before.person, { id: before.id })
  // A passkey is two factors: the device, and what unlocks it.
  const complete = person.totp === null || means === 'passkey'
  visit.setSession(await beginSession(db, { person: person.id, means, complete }, { address, agent }, now))
  await note(db, { person: person.id, action: 'sign-in', detail: means, address, now })
  if (complete) return see(next)
  return see(`/sign-in/second?next=${encodeURIComponent(next)}`)
}

// ---- by passkey -----------------------------------------------------------------------------------------------------

async function passkeyOptions(visit: Visit): Promise<Answer> {
  await throttle(visit, 'passkey')
  const { db, parts, now, pending } = visit
  return json(await authenticationOptions(db, parts.config, pending?.person ?? null, now))
}

async function takePasskey(visit: Visit): Promise<Answer> {
  await throttle(visit, 'passkey')
  const { db, parts, now, pending, form: sent } = visit
  const given = { challenge: sent.get('challenge') ?? '', response: parsed(sent.get('response')) }
  const id = await signedBy(db, parts.config, pending?.person ?? null, given, now)
  const person = id && (await db.selectFrom('person').selectAll().where('id', '=', id).executeTakeFirst())
  if (!person) return json({ error: 'This passkey is not known here.' }, 400)
  const next = ownPath(sent.get('next'))
  if (pending) await finish(visit, pending)
  else await begin(visit, person, 'passkey', next)
  return json({ next })
}

function parsed(text: string | null): unknown {
  try {
    return JSON.parse(text ?? '')
  } catch {
    return null
  }
}

// ---- by an OpenID provider ------------------------------------------------------------------------------------------

function providerOf({ parts, params }: Visit) {
  const provider = parts.config.openid.find(({ id }) => id === params['provider'])
  if (!provider) throw new Refusal(404, 'There is no such way of signing in.')
  return provider
}

async function goToProvider(visit: Visit): Promise<Answer> {
  const { db, parts, formToken, url, now } = visit
  const provider = providerOf(visit)
  await throttle(visit, 'openid')
  const next = ownPath(url.searchParams.get('next'))
  try {
    const { href } = await askProvider(db, parts.config, provider, { formToken, next }, now)
    return { status: 302, headers: { location: href }, body: '' }
  } catch (error) {
    parts.tell(`${provider.issuer} does not answer: ${(error as Error).message}`)
    throw new Refusal(502, `${provider.name} does not answer at the moment. Sign in by mail, or try again.`)
  }
}

/** The provider stands for the mail: whoever it says has the address may do what a link of a mail may. */
async function takeAnswer(visit: Visit): Promise<Answer> {
  const { db, parts, formToken, url, now } = visit
  const provider = providerOf(visit)
  await throttle(visit, 'openid')
  const given = await answerOf(db, parts.config, provider, { url, formToken }, now)
  const known = given && (await personByEmail(db, given.email))
  if (!given || (!known && !(await maySignUp(db, given.email, parts.config.signup, now))))
    throw new Refusal(403, `Signing in with ${provider.name} did not work. Ask for an invitation, or sign in by mail.`)
  const person = known ?? (await ensurePerson(db, { email: given.email }, now))
  return begin(visit, person, provider.id, ownPath(given.next))
}

// ---- the second factor ----------------------------------------------------------------------------------------------

async function showSecond(visit: Visit): Promise<Answer> {
  const { pending, url, form: sent, db, parts } = visit
  if (!pending) return see('/')
  const next = ownPath(sent.get('next') ?? url.searchParams.get('next'))
  const passkeys = passkeysWork(parts.config) ? await passkeysOf(db, pending.person) : []
  return page(
    visit,
    'Your second factor',
    html`<div class="card narrow">
      ${form(
        visit,
        '/sign-in/second',
        html`<input type="hidden" name="next" value="${next}" />
          ${input({
            ...{ name: 'code', label: 'Code', required: true, hint: 'The six digits of your app, or a recovery code.' },
            more: { autocomplete: 'one-time-code', inputmode: 'text', maxlength: '20' },
          })}
          <button type="submit" class="main">Go on</button>`,
      )}
      ${passkeys.length > 0 ? passkey(visit, 'use', html`<button type="button">Use a passkey</button>`, next) : ''}
    </div>`,
    { scripts: ['passkey.mjs'] },
  )
}

async function takeSecond(visit: Visit): Promise<Answer> {
  const { pending, form: sent, db, now } = visit
  if (!pending) return see('/')
  if (!(await mayTry(db, `second ${pending.person}`, CODES, now)))
    throw new Refusal(429, 'There were too many wrong codes. Wait a quarter of an hour, and try again.')
  const code = sent.get('code') ?? ''
  if (!(await takeCode(db, pending.who, code, now)) && !(await takeRecoveryCode(db, pending.who, code)))
    throw new FormFault('this code is wrong, or has been used')
  await finish(visit, pending)
  return see(ownPath(sent.get('next')))
}

async function finish(visit: Visit, pending: Session): Promise<void> {
  visit.setSession(await completeSession(visit.db, pending))
}

// ---- the first member of staff --------------------------------------------------------------------------------------

async function showFirst(visit: Visit): Promise<Answer> {
  const { db, now, params, parts, form: sent } = visit
  const link = await peekLink(db, params['secret']!, now)
  if (link?.purpose !== 'first' || (await someStaff(db))) return tooOldFirst(visit)
  const { first_organization: first, name } = parts.config
  const demo = first && first.id !== 'demo' && isTrial(parts.config) && (await hasDemo(parts.config))
  return page(
    visit,
    'Welcome',
    html`<div class="card narrow">
      <p>You become the first member of staff of ${name}: staff opens organizations and changes their plans.
        ${first ? `You also become the owner of the organization ${first.name}: an owner may do everything in it.` : ''}
        This link works once.</p>
      ${
        demo
          ? html`<p>The key <code>sk-demo</code> belongs to another organization, <code>demo</code>: its requests are
              not among those of ${first.name}.</p>`
          : ''
      }
      ${form(
        visit,
        `/first/${params['secret']}`,
        html`${input({
          name: 'email',
          label: 'Your e-mail address',
          type: 'email',
          value: sent.get('email'),
          required: true,
          hint: isTrial(parts.config)
            ? 'For a trial any address will do: links for signing in are printed in the terminal of the console.'
            : 'Links for signing in go there.',
          more: { autocomplete: 'email' },
        })}
          ${input({
            name: 'name',
            label: 'Your name',
            value: sent.get('name'),
            required: true,
            more: { autocomplete: 'name', maxlength: '80' },
          })}
          <button type="submit" class="main">Begin</button>`,
      )}
    </div>`,
  )
}

function tooOldFirst(visit: Visit): Answer {
  return page(
    visit,
    'This link does not work any more',
    html`<p>It has been used, or is older than an hour. As long as there is no member of staff, each start of the console
      prints another.</p>
      ${visit.session ? stillSignedIn(visit.session) : html`<p><a href="/sign-in">Sign in</a></p>`}`,
    { status: 404 },
  )
}

async function takeFirst(visit: Visit): Promise<Answer> {
  const { db, now, params, parts, form: sent, address } = visit
  const email = emailOf(sent.get('email'))
  if (email === null) throw new FormFault('this is no address of mail; write one such as ada@example.com')
  const name = nameOf(sent.get('name'))
  if (name === null) throw new FormFault('write your name, in at most 80 characters')
  const secret = params['secret']!
  const seen = await peekLink(db, secret, now)
  if (seen?.purpose !== 'first') return tooOldFirst(visit)
  const first = parts.config.first_organization
  // First what may fail and can be repeated: the link is used up only when all else is done.
  if (first) await ensureFirst(parts.config, first)
  if (!(await useLink(db, secret, now)) || (await someStaff(db))) return tooOldFirst(visit)
  const person = await ensurePerson(db, { email, name }, now)
  await db.updateTable('person').set({ staff: 1 }).where('id', '=', person.id).execute()
  await note(db, { person: person.id, action: 'staff.add', detail: email, address, now })
  if (first) await takeOver(db, { ...first, owner: person }, address, now)
  const { headers } = await begin(visit, person, 'link', '/')
  return see(first && headers['location'] === '/' ? `/o/${first.id}` : '/', 'welcome')
}

// ---- the waiting list -----------------------------------------------------------------------------------------------

function showWaiting(visit: Visit): Answer {
  const { parts, form: sent } = visit
  if (parts.config.signup !== 'waitlist') return see('/sign-in')
  return page(
    visit,
    'Ask for access',
    html`<div class="card narrow">
      ${form(
        visit,
        '/waiting',
        html`${input({
          name: 'email',
          label: 'Your e-mail address',
          type: 'email',
          value: sent.get('email'),
          required: true,
          more: { autocomplete: 'email' },
        })}
          ${input({
            name: 'note',
            label: 'What for?',
            value: sent.get('note'),
            hint: 'A line, if you like.',
            more: { maxlength: '200' },
          })}
          <button type="submit" class="main">Ask</button>`,
      )}
    </div>`,
  )
}

/** Who is known, or waits already, gets the same answer. */
async function joinWaiting(visit: Visit): Promise<Answer> {
  const { parts, db, now, form: sent } = visit
  if (parts.config.signup !== 'waitlist') return see('/sign-in')
  const email = emailOf(sent.get('email'))
  if (email === null) throw new FormFault('this is no address of mail; write one such as ada@example.com')
  await throttle(visit, 'waiting')
  parts.later(async () => {
    if (await personByEmail(db, email)) return
    await db
      .insertInto('waiting')
      .values({ email, note: nameOf(sent.get('note'), 200) ?? '', created: now })
      .onConflict(conflict => conflict.column('email').doNothing())
      .execute()
  })
  return page(visit, 'Thank you', html`<p>When there is room, an invitation comes to <strong>${email}</strong>.</p>`)
}

// ---- the end --------------------------------------------------------------------------------------------------------

async function signOut(visit: Visit): Promise<Answer> {
  const session = visit.session ?? visit.pending
  if (session) await endSessions(visit.db, session.person, { id: session.id })
  visit.setSession(null)
  return see('/sign-in', 'signed-out')
}
