/** Where one arrives: the only organization, or a choice; invitations; an organization of one's own. */
import { html } from 'hono/html'
import { mayTry } from '../people/attempts.ts'
import { nameOf } from '../people/email.ts'
import { note } from '../people/events.ts'
import { addMember, endInvitation, invitationsOf } from '../people/memberships.ts'
import { ROLE_TEXT } from '../people/roles.ts'
import { newOrganizationId, openOrganization } from '../staff/organizations.ts'
import { page } from '../views/layout.ts'
import { button, form, input } from '../views/parts.ts'
import { type Answer, FormFault, get, type Page, type PersonVisit, post, Refusal, see } from '../web/visit.ts'

/** Organizations that one person may open in a day. */
const OPENED = { most: 3, per: 86_400_000 }

export const start: Page = {
  name: 'start',
  routes: [
    get.person('/', show),
    post.person('/organizations', open, show),
    post.person('/invitations/:id/accept', accept),
    post.person('/invitations/:id/decline', decline),
  ],
}

/** Invitations to open an organization have no organization. */
async function pending({ db, session, now }: PersonVisit) {
  const all = await invitationsOf(db, session.who.email, now)
  return { join: all.filter(one => one.organization !== null), open: all.filter(one => one.organization === null) }
}

async function mayOpen(visit: PersonVisit): Promise<boolean> {
  const { parts, session } = visit
  return parts.config.signup === 'open' || session.who.staff === 1 || (await pending(visit)).open.length > 0
}

async function show(visit: PersonVisit): Promise<Answer> {
  const { memberships, session, form: sent, url } = visit
  const invitations = (await pending(visit)).join
  const opens = await mayOpen(visit)
  const [only, ...others] = memberships
  if (only && others.length === 0 && invitations.length === 0 && !visit.fault && !url.searchParams.has('all'))
    return see(`/o/${only.id}`)
  if (!only && invitations.length === 0 && !opens && session.who.staff) return see('/staff')
  return page(
    visit,
    'Organizations',
    html`${invitations.map(
      ({ id, name, role }) => html`<div class="card">
        <h2>You are invited to ${name} as ${role}</h2>
        <p class="muted">${ROLE_TEXT[role]}</p>
        <div class="actions">
          ${button(visit, `/invitations/${id}/accept`, 'Accept', { class: 'main', about: `the invitation to ${name}` })}
          ${button(visit, `/invitations/${id}/decline`, 'Decline', { about: `the invitation to ${name}` })}
        </div>
      </div>`,
    )}
    ${memberships.map(
      ({ id, name, role }) => html`<div class="card"><h2><a href="/o/${id}">${name}</a></h2><p
      class="muted">${role}</p></div>`,
    )}
    ${
      opens
        ? html`<section class="card narrow"><h2>${only ? 'Another organization' : 'Open your organization'}</h2>
            ${form(
              visit,
              '/organizations',
              html`${input({
                name: 'name',
                label: 'Its name',
                value: sent.get('name'),
                required: true,
                more: { maxlength: '80', autocomplete: 'organization' },
              })}
                <button type="submit" class="main">Open it</button>`,
            )}</section>`
        : ''
    }
    ${
      !opens && memberships.length === 0 && invitations.length === 0
        ? html`<p class="empty">You belong to no organization. Ask an owner to invite
          <strong>${session.who.email}</strong>.</p>`
        : ''
    }`,
  )
}

async function open(visit: PersonVisit): Promise<Answer> {
  const { db, parts, session, now, address, form: sent } = visit
  if (!(await mayOpen(visit))) throw new Refusal(403, 'Opening an organization needs an invitation.')
  const name = nameOf(sent.get('name'))
  if (name === null) throw new FormFault('write a name, in at most 80 characters')
  if (session.who.staff !== 1 && !(await mayTry(db, `open ${session.person}`, OPENED, now)))
    throw new Refusal(429, 'You have opened several organizations today. Try again tomorrow.')
  const id = newOrganizationId(name)
  const invitation = parts.config.signup === 'open' || session.who.staff === 1 ? null : (await pending(visit)).open[0]!
  // Of two requests with one invitation one gets it. When the gateway then fails, staff invites again.
  if (invitation && !(await endInvitation(db, invitation.id, { email: session.who.email }, now)))
    throw new Refusal(403, 'This invitation has been used.')
  await openOrganization(db, parts.config, { id, name, plan: parts.config.plan, owner: session.who }, address, now)
  return see(`/o/${id}`, 'organization-made')
}

async function accept({ db, params, session, now, address }: PersonVisit): Promise<Answer> {
  const organization = await db.transaction().execute(async step => {
    const invitation = await endInvitation(step, params['id']!, { email: session.who.email }, now)
    if (!invitation?.organization) throw new Refusal(404, 'This invitation has been used, or taken back.')
    const { organization, role } = invitation
    await addMember(step, organization, session.person, role, now)
    await note(step, { organization, person: session.person, action: 'member.join', detail: role, address, now })
    return organization
  })
  return see(`/o/${organization}`)
}

async function decline({ db, params, session, now, address }: PersonVisit): Promise<Answer> {
  const ended = await endInvitation(db, params['id']!, { email: session.who.email }, now)
  if (!ended) throw new Refusal(404, 'This invitation has been used, or taken back.')
  const { organization } = ended
  await note(db, { organization, person: session.person, action: 'member.decline', address, now })
  return see('/')
}
