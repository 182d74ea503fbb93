/** A person's own account: name, address, sessions, passkeys, authenticator app, deletion. */
import { html, raw } from 'hono/html'
import { encode } from 'uqr'
import { mayTry } from '../people/attempts.ts'
import { emailOf, nameOf } from '../people/email.ts'
import { note } from '../people/events.ts'
import { newLink } from '../people/links.ts'
import { LastOwner } from '../people/memberships.ts'
import { addPasskey, passkeysOf, passkeysWork, registrationOptions } from '../people/passkeys.ts'
import { deletePerson, personByEmail } from '../people/persons.ts'
import { endSessions, sessionsOf } from '../people/sessions.ts'
import { matchedStep, newRecoveryCodes, newTotpSecret, otpauth, takeCode, takeRecoveryCode } from '../people/totp.ts'
import { page } from '../views/layout.ts'
import { badge, button, confirm, empty, form, input, passkey, table, time } from '../views/parts.ts'
import {
  type Answer,
  FormFault,
  get,
  type Html,
  json,
  type Page,
  type PersonVisit,
  post,
  Refusal,
  see,
} from '../web/visit.ts'

const CODES = { most: 10, per: 900_000 }
/** Who changes how one signs in has to have signed in within this time: a session that was left open is not enough. */
const FRESH_MS = 15 * 60_000
const STALE = 'You signed in more than 15 minutes ago. Sign out and in again to change how you sign in.'

const isFresh = ({ session, now }: PersonVisit): boolean => now - session.created < FRESH_MS

/** @throws Refusal */
function wantFresh(visit: PersonVisit): void {
  if (!isFresh(visit)) throw new Refusal(403, STALE)
}
const MAILS = { most: 5, per: 3_600_000 }

export const account: Page = {
  name: 'account',
  routes: [
    get.person('/account', show),
    post.person('/account', change, show),
    post.person('/account/email', changeEmail, show),
    post.person('/account/sessions/:id/end', endSession),
    post.person('/account/sessions/end', endOthers),
    post.person('/account/passkeys/options', passkeyOptions),
    post.person('/account/passkeys', registerPasskey),
    post.person('/account/passkeys/:id/remove', removePasskey),
    get.person('/account/app', showApp),
    post.person('/account/app', turnOn, showApp),
    post.person('/account/app/off', turnOff, showApp),
    post.person('/account/delete', remove, show),
  ],
}

async function show(visit: PersonVisit): Promise<Answer> {
  const { db, parts, session, now, form: sent } = visit
  const { who } = session
  const sessions = await sessionsOf(db, who.id, parts.config.sessions, now)
  const passkeys = await passkeysOf(db, who.id)
  return page(
    visit,
    'Your account',
    html`<section class="card narrow">
      ${form(
        visit,
        '/account',
        html`${input({
          name: 'name',
          label: 'Name',
          value: sent.get('name') ?? who.name,
          more: { maxlength: '80', autocomplete: 'name' },
        })}
          <button type="submit">Change the name</button>`,
      )}
    </section>
    <section class="card narrow">
      <p>You sign in as <strong>${who.email}</strong>.</p>
      ${form(
        visit,
        '/account/email',
        html`${input({
          name: 'email',
          label: 'Another address',
          type: 'email',
          value: sent.get('email'),
          required: true,
          hint: 'A link goes there; the address changes when you open it.',
          more: { autocomplete: 'off' },
        })}
          <button type="submit">Send the link</button>`,
      )}
    </section>
    <section>
      <div class="head"><h2>Authenticator app</h2></div>
      <p>${who.totp === null ? badge('off') : badge('on', 'good')}
        ${
          who.totp === null
            ? 'A code of an app can be asked for after the link of the mail.'
            : 'A code is asked for after the link of the mail.'
        }
        <a href="/account/app">${who.totp === null ? 'Turn it on' : 'Change it'}</a></p>
    </section>
    ${passkeyPart(visit, passkeys)}
    <section>
      <div class="head"><h2>Sessions</h2>${button(visit, '/account/sessions/end', 'End all others')}</div>
      ${table(
        'Sessions',
        ['Device', 'Address', 'Signed in', 'Last seen', ''],
        sessions.map(({ id, agent, address, created, seen }) => [
          agentOf(agent),
          html`<code>${address}</code>`,
          time(created),
          time(seen),
          id === session.id
            ? badge('this one', 'good')
            : button(visit, `/account/sessions/${id}/end`, 'End', { about: `the session of ${agentOf(agent)}` }),
        ]),
      )}
    </section>
    <section>
      <h2>Delete the account</h2>
      ${confirm(
        visit,
        'Delete my account',
        html`Your name, address, sessions, passkeys and memberships are deleted at once. Keys that you have made stay
          with their organization. This cannot be taken back.`,
        '/account/delete',
        'Delete it',
      )}
    </section>`,
    { scripts: ['passkey.mjs'] },
  )
}

/** What people call a browser, of what it calls itself. */
function agentOf(agent: string): string {
  const browser = ['Edg', 'OPR', 'Firefox', 'Chrome', 'Safari'].find(name => agent.includes(`${name}/`))
  const system = ['Windows', 'Android', 'iPhone', 'iPad', 'Mac OS', 'Linux'].find(name => agent.includes(name))
  const names: Record<string, string> = { Edg: 'Edge', OPR: 'Opera' }
  if (!browser && !system) return agent.slice(0, 40) || 'unknown'
  return [browser && (names[browser] ?? browser), system].filter(Boolean).join(' on ')
}

function passkeyPart(visit: PersonVisit, passkeys: Awaited<ReturnType<typeof passkeysOf>>): Html | string {
  if (!passkeysWork(visit.parts.config)) return ''
  return html`<section>
    <div class="head"><h2>Passkeys</h2></div>
    ${
      passkeys.length === 0
        ? empty('A passkey signs you in with your device, without a mail.')
        : table(
            'Passkeys',
            ['Name', 'Added', 'Last used', ''],
            passkeys.map(({ id, label, created, used }) => [
              label,
              time(created),
              time(used),
              button(visit, `/account/passkeys/${encodeURIComponent(id)}/remove`, 'Remove', { about: label }),
            ]),
          )
    }
    ${passkey(
      visit,
      'add',
      html`<label>Name of the new passkey <input name="label" maxlength="40" value="My device" /></label>
        <button type="button">Add a passkey</button>`,
    )}
  </section>`
}

async function change({ db, session, form: sent, now, address }: PersonVisit): Promise<Answer> {
  const name = sent.get('name') === '' ? '' : nameOf(sent.get('name'))
  if (name === null) throw new FormFault('write your name, in at most 80 characters')
  await db.updateTable('person').set({ name }).where('id', '=', session.person).execute()
  await note(db, { person: session.person, action: 'account.name', address, now })
  return see('/account', 'account-changed')
}

/** The answer does not tell whether the new address is somebody else's. */
async function changeEmail(visit: PersonVisit): Promise<Answer> {
  wantFresh(visit)
  const { db, parts, session, form: sent, now } = visit
  const email = emailOf(sent.get('email'))
  if (email === null) throw new FormFault('this is no address of mail; write one such as ada@example.com')
  if (!(await mayTry(db, `email ${session.person}`, MAILS, now)))
    throw new Refusal(429, 'You have asked for several links. Wait an hour, and try again.')
  const { config, mail } = parts
  parts.later(async () => {
    if (await personByEmail(db, email)) return
    const secret = await newLink(db, { purpose: 'email', email, person: session.person, next: '/account' }, now)
    mail.send({
      to: email,
      subject: `Your new address at ${config.name}`,
      text: `Open this link to sign in to ${config.name} with this address from now on:

${config.url}/sign-in/link/${secret}

It works once, for ten minutes. If you have not asked for it, ignore this mail.
`,
    })
  })
  return see('/account', 'email-sent')
}

async function endSession({ db, session, params, now, address }: PersonVisit): Promise<Answer> {
  const ended = await endSessions(db, session.person, { id: params['id']! })
  if (ended === 0) throw new Refusal(404, 'There is no such session; it may have ended.')
  await note(db, { person: session.person, action: 'session.end', address, now })
  return see('/account', 'session-ended')
}

async function endOthers({ db, session, now, address }: PersonVisit): Promise<Answer> {
  await endSessions(db, session.person, { not: session.id })
  await note(db, { person: session.person, action: 'session.end', detail: 'all others', address, now })
  return see('/account', 'sessions-ended')
}

// ---- passkeys -------------------------------------------------------------------------------------------------------

async function passkeyOptions(visit: PersonVisit): Promise<Answer> {
  if (!isFresh(visit)) return json({ error: STALE }, 403)
  const { db, parts, session, now } = visit
  return json(await registrationOptions(db, parts.config, session.who, now))
}

async function registerPasskey(visit: PersonVisit): Promise<Answer> {
  if (!isFresh(visit)) return json({ error: STALE }, 403)
  const { db, parts, session, form: sent, now, address } = visit
  const label = nameOf(sent.get('label'), 40) ?? 'Passkey'
  let response: unknown
  try {
    response = JSON.parse(sent.get('response') ?? '')
  } catch {
    return json({ error: 'This is no passkey.' }, 400)
  }
  const given = { challenge: sent.get('challenge') ?? '', response, label }
  if (!(await addPasskey(db, parts.config, session.who, given, now)))
    return json({ error: 'The passkey could not be added. Try again.' }, 400)
  await note(db, { person: session.person, action: 'passkey.add', detail: label, address, now })
  return json({ next: '/account?done=passkey-added' })
}

async function removePasskey(visit: PersonVisit): Promise<Answer> {
  wantFresh(visit)
  const { db, session, params, now, address } = visit
  const removed = await db
    .deleteFrom('passkey')
    .where('id', '=', params['id']!)
    .where('person', '=', session.person)
    .executeTakeFirst()
  if (removed.numDeletedRows === 0n) throw new Refusal(404, 'There is no such passkey.')
  await note(db, { person: session.person, action: 'passkey.remove', address, now })
  return see('/account', 'passkey-removed')
}

// ---- the authenticator app ------------------------------------------------------------------------------------------

/** The secret is in the form until its first code: nothing is stored for who only looks. */
function showApp(visit: PersonVisit): Answer {
  const { session, parts, form: sent } = visit
  const { who } = session
  if (who.totp !== null)
    return page(
      visit,
      'Authenticator app',
      html`<div class="card narrow"><p>${badge('on', 'good')} A code is asked for after the link of the mail.</p>
        ${form(
          visit,
          '/account/app/off',
          html`${input({
            ...{ name: 'code', label: 'Code', required: true, hint: 'The six digits of your app, or a recovery code.' },
            more: { autocomplete: 'one-time-code', inputmode: 'text', maxlength: '20' },
          })}<button type="submit" class="danger">Turn it off</button>`,
        )}
      </div>`,
    )
  const given = sent.get('secret') ?? ''
  const secret = /^[A-Z2-7]{32}$/.test(given) ? given : newTotpSecret()
  const uri = otpauth(secret, who.email, parts.config.name)
  return page(
    visit,
    'Authenticator app',
    html`<div class="card narrow">
      <ol><li>Scan this with your app, or type the secret into it.</li><li>Write the code that it shows.</li></ol>
      ${qr(uri)}
      <div class="secret"><code>${secret.replace(/.{4}/g, '$& ').trim()}</code></div>
      ${form(
        visit,
        '/account/app',
        html`<input type="hidden" name="secret" value="${secret}"
        />${codeInput()}<button type="submit" class="main">Turn it on</button>`,
      )}
    </div>`,
  )
}

const codeInput = () =>
  input({
    ...{ name: 'code', label: 'Code of the app', required: true },
    more: { autocomplete: 'one-time-code', inputmode: 'numeric', maxlength: '7' },
  })

/** A QR code as SVG: one path of squares, black on white in both themes. */
function qr(text: string): Html {
  const { data, size } = encode(text)
  const path = data.flatMap((row, y) => row.flatMap((dark, x) => (dark ? [`M${x} ${y}h1v1h-1z`] : []))).join('')
  return html`<svg width="200" height="200" viewBox="0 0 ${size} ${size}" role="img" aria-label="QR code for the app">
    <rect width="${size}" height="${size}" fill="#fff" />${raw(`<path fill="#000" d="${path}" />`)}</svg>`
}

async function turnOn(visit: PersonVisit): Promise<Answer> {
  wantFresh(visit)
  const { db, session, form: sent, now, address } = visit
  const secret = sent.get('secret') ?? ''
  if (!/^[A-Z2-7]{32}$/.test(secret)) throw new Refusal(400, 'This form is not complete.')
  if (session.who.totp !== null) return see('/account/app')
  const step = matchedStep(secret, sent.get('code') ?? '', now)
  if (step === null) throw new FormFault('this code is wrong; look whether the clock of your phone is right')
  const set = { totp: secret, totp_step: step }
  await db.updateTable('person').set(set).where('id', '=', session.person).where('totp', 'is', null).execute()
  const codes = await newRecoveryCodes(db, session.person)
  await note(db, { person: session.person, action: 'totp.on', address, now })
  return page(
    visit,
    'Recovery codes',
    html`<p>The app is asked for from the next sign-in on. Keep these codes where your phone is not: each replaces one
      code of the app, once. They are not shown again.</p>
      <pre>${codes.join('\n')}</pre>
      <p><a class="button main" href="/account">I have them</a></p>`,
  )
}

async function turnOff({ db, session, form: sent, now, address }: PersonVisit): Promise<Answer> {
  if (session.who.totp === null) return see('/account/app')
  if (!(await mayTry(db, `second ${session.person}`, CODES, now)))
    throw new Refusal(429, 'There were too many wrong codes. Wait a quarter of an hour, and try again.')
  const code = sent.get('code') ?? ''
  // Recovery codes are for whoever has the app no more, who must be able to take it off.
  if (!(await takeCode(db, session.who, code, now)) && !(await takeRecoveryCode(db, session.who, code)))
    throw new FormFault('this code is wrong, or has been used')
  await db.updateTable('person').set({ totp: null }).where('id', '=', session.person).execute()
  await db.deleteFrom('recovery_code').where('person', '=', session.person).execute()
  await note(db, { person: session.person, action: 'totp.off', address, now })
  return see('/account', 'totp-off')
}

// ---- deletion -------------------------------------------------------------------------------------------------------

async function remove(visit: PersonVisit): Promise<Answer> {
  wantFresh(visit)
  const { db, session, memberships, now } = visit
  const { who } = session
  if (who.staff === 1) {
    const others = await db.selectFrom('person').select('id').where('staff', '=', 1).where('id', '<>', who.id).execute()
    if (others.length === 0) throw new FormFault('you are the last member of staff; add another first')
  }
  try {
    await deletePerson(db, who, now)
  } catch (error) {
    if (!(error instanceof LastOwner)) throw error
    const name = memberships.find(({ id }) => id === error.organization)?.name ?? error.organization
    throw new FormFault(`you are the last owner of ${name}; make another member owner, or delete it`)
  }
  visit.setSession(null)
  return see('/sign-in')
}
