/** Pages of the operator's staff: organizations, invitations, the waiting list, staff itself. */
import { html } from 'hono/html'
import type { InvitationTable } from '../db/tables.ts'
import { limitMeters } from '../limits/meters.ts'
import { emailOf } from '../people/email.ts'
import { note } from '../people/events.ts'
import { endInvitation, invite, type Member, membersOf, openInvitations } from '../people/memberships.ts'
import { page } from '../views/layout.ts'
import { badge, button, confirm, empty, form, input, invitedInput, table, time } from '../views/parts.ts'
import {
  type Answer,
  type Form,
  FormFault,
  get,
  type Html,
  type Page,
  type Parts,
  type PersonVisit,
  post,
  Refusal,
  see,
} from '../web/visit.ts'
import { StaffGateway } from './gateway.ts'

export const staff: Page = {
  name: 'staff',
  menu: { label: 'Staff', path: '/staff', right: 'staff' },
  routes: [
    get.staff('/staff', showOrganizations),
    get.staff('/staff/organizations/:id', showOrganization),
    post.staff('/staff/organizations/:id/plan', changePlan, showOrganization),
    post.staff('/staff/organizations/:id/status', changeStatus, showOrganization),
    post.staff('/staff/organizations/:id/invite', inviteOwner, showOrganization),
    post.staff('/staff/organizations/:id/invitations/:invitation/end', takeOwnerBack),
    get.staff('/staff/people', showPeople),
    post.staff('/staff/invite', sendInvitation, showPeople),
    post.staff('/staff/invitations/:id/end', takeBack),
    post.staff('/staff/waiting/invite', inviteWaiting, showPeople),
    post.staff('/staff/waiting/remove', removeWaiting),
    post.staff('/staff/members', addStaff, showPeople),
    post.staff('/staff/members/:id/remove', removeStaff, showPeople),
  ],
}

const gatewayOf = ({ parts, session }: PersonVisit) => new StaffGateway(parts.config, `user:${session.person}`)

/** The pages of staff. */
export const tabs = (here: string): Html =>
  html`<nav class="actions" aria-label="Staff">${[
    ['/staff', 'Organizations'],
    ['/staff/people', 'People and invitations'],
    ['/staff/billing', 'Payments and tiers'],
  ].map(
    ([href, label]) =>
      html`<a class="button" href="${href}"${href === here ? html` aria-current="page"` : ''}>${label}</a>`,
  )}</nav>`

// ---- organizations --------------------------------------------------------------------------------------------------

async function showOrganizations(visit: PersonVisit): Promise<Answer> {
  const { db, url } = visit
  const find = (url.searchParams.get('find') ?? '').trim().slice(0, 128)
  const after = url.searchParams.get('after') ?? ''
  const { organizations, next } = await gatewayOf(visit).organizations({
    ...{ limit: '100' },
    ...(find !== '' && { find }),
    ...(after !== '' && { after }),
  })
  const ids = organizations.map(({ id }) => id)
  const known = ids.length === 0 ? [] : await db.selectFrom('organization').selectAll().where('id', 'in', ids).execute()
  const names = new Map(known.map(({ id, name }) => [id, name]))
  const more = new URLSearchParams({ ...(find !== '' && { find }), after: next ?? '' })
  return page(
    visit,
    'Organizations',
    html`${tabs('/staff')}
      <form method="get" action="/staff"><div class="row">
        ${input({ name: 'find', label: 'Id begins with', type: 'search', value: find })}<button
          type="submit">Find</button>
      </div></form>
      ${
        organizations.length === 0
          ? empty('No organization has such an id.')
          : table(
              'Organizations',
              ['Organization', 'Plan', 'Status', '#Keys', 'Stands in'],
              organizations.map(({ id, plan, status, keys, place }) => [
                html`<a href="/staff/organizations/${encodeURIComponent(id)}">${names.get(id) ?? id}</a>
                  <span class="muted">${names.has(id) ? id : ''}</span>`,
                plan,
                status === 'active' ? badge('active', 'good') : badge(status, 'bad'),
                String(keys),
                place === 'file' ? 'gateway.yaml' : 'store',
              ]),
            )
      }
      ${next === null ? '' : html`<p><a href="/staff?${more.toString()}">More</a></p>`}`,
  )
}

async function showOrganization(visit: PersonVisit): Promise<Answer> {
  const { db, params, form: sent, now } = visit
  const id = params['id']!
  const { organization } = await gatewayOf(visit).organization(id)
  const members = await membersOf(db, id)
  const invitations = hasOwner(members) ? [] : await openInvitations(db, id, now)
  const path = `/staff/organizations/${encodeURIComponent(id)}`
  const { plan, status, place, faults, limits, keys, leaves } = organization
  return page(
    visit,
    organization.name ?? id,
    html`${tabs('')}
      <div class="card"><dl>
        <dt>Id</dt><dd><code>${id}</code></dd>
        <dt>Plan</dt><dd>${plan}</dd>
        <dt>Status</dt><dd>${status === 'active' ? badge('active', 'good') : badge(status, 'bad')} ${
          leaves ? html`leaves ${time(Date.parse(leaves))}` : ''
        }</dd>
        <dt>Keys</dt><dd>${keys.filter(key => key.status !== 'revoked').length}</dd>
        <dt>Spend</dt><dd>${organization.spend_usd ? `$${organization.spend_usd.month} this month` : '–'}</dd>
        <dt>Money</dt><dd><a href="${path}/payments">Payments, tiers, balance</a></dd>
        ${faults.length > 0 ? html`<dt>Faults</dt><dd>${faults.join('; ')}</dd>` : ''}
      </dl></div>
      ${
        place === 'file'
          ? html`<p>It stands in gateway.yaml, and is changed there.</p>`
          : html`<section class="card narrow"><h2>Plan</h2>
              ${form(
                visit,
                `${path}/plan`,
                html`${input({
                  name: 'plan',
                  label: 'Its plan',
                  value: sent.get('plan') ?? plan,
                  required: true,
                  more: { maxlength: '64' },
                })}<button type="submit">Change the plan</button>`,
              )}
            </section>
            <section>${
              status === 'active'
                ? confirm(
                    visit,
                    'Disable it',
                    'All its keys are refused from now on, until it is enabled again.',
                    `${path}/status`,
                    'Disable the organization',
                    { status: 'disabled' },
                  )
                : button(visit, `${path}/status`, leaves ? 'Take the deletion back' : 'Enable it', {
                    fields: { status: 'active', leaves: leaves ?? '' },
                  })
            }</section>`
      }
      <section><h2>Limits now</h2><div class="card">${limits.length > 0 ? limitMeters(limits) : 'none'}</div></section>
      <section><h2>Members</h2>${
        members.length === 0
          ? empty('Nobody of the console belongs to it.')
          : table(
              'Members',
              ['Person', 'Role', 'Since'],
              members.map(({ email, role, created }) => [email, role, time(created, false)]),
            )
      }
        ${
          hasOwner(members) || leaves
            ? ''
            : html`<div class="card narrow"><h3>Invite an owner</h3>
                <p class="muted">It has none, so nobody can invite its members.</p>
                ${form(
                  visit,
                  `${path}/invite`,
                  html`${invitedInput(sent.get('email'))}<button type="submit" class="main">Invite</button>`,
                )}
              </div>`
        }
        ${invitationTable(visit, invitations, `${path}/invitations`)}
      </section>`,
  )
}

function invitationTable(visit: PersonVisit, invitations: readonly InvitationTable[], path: string): Html | string {
  if (invitations.length === 0) return ''
  return table(
    'Open invitations',
    ['Address', 'Until', ''],
    invitations.map(({ id, email, expires }) => [
      email,
      time(expires),
      button(visit, `${path}/${id}/end`, 'Take back', { about: `the invitation of ${email}` }),
    ]),
  )
}

const hasOwner = (members: readonly Member[]) => members.some(({ role }) => role === 'owner')

/**
 * Invites an owner to an organization that has none: its last one deleted it and the account, or it was made at the
 * gateway. Where there is an owner, that is who invites: staff comes into no organization by itself.
 */
async function inviteOwner(visit: PersonVisit): Promise<Answer> {
  const { db, params, parts, form: sent, session, now, address } = visit
  const id = params['id']!
  const email = wantedEmail(sent)
  const { organization } = await gatewayOf(visit).organization(id)
  if (organization.leaves) throw new FormFault('the organization is deleted; take the deletion back first')
  if (hasOwner(await membersOf(db, id))) throw new FormFault('the organization has an owner, who invites others')
  const name = organization.name ?? id
  await db
    .insertInto('organization')
    .values({ id, name, created: now, creator: null, deleted: null })
    // The gateway has it, whatever was noted here.
    .onConflict(conflict => conflict.column('id').doUpdateSet({ deleted: null }))
    .execute()
  await invite(db, { email, organization: id, role: 'owner', inviter: session.person }, now)
  const happened = { organization: id, person: session.person, action: 'staff.invite' }
  await note(db, { ...happened, detail: `${email}, owner`, address, now })
  mailInvitation(parts, email, `${name} at ${parts.config.name}`, 'and the invitation to be its owner is there')
  return see(`/staff/organizations/${encodeURIComponent(id)}`, 'invited')
}

async function takeOwnerBack({ db, params, session, now, address }: PersonVisit): Promise<Answer> {
  const id = params['id']!
  const whose = { organization: id }
  const ended = hasOwner(await membersOf(db, id)) ? null : await endInvitation(db, params['invitation']!, whose, now)
  if (!ended) throw new Refusal(404, 'This invitation has been used, or taken back.')
  const happened = { ...whose, person: session.person, action: 'member.uninvite' }
  await note(db, { ...happened, detail: ended.email, address, now })
  return see(`/staff/organizations/${encodeURIComponent(id)}`, 'invitation-ended')
}

async function changePlan(visit: PersonVisit): Promise<Answer> {
  const { db, params, form: sent, session, now, address } = visit
  const plan = (sent.get('plan') ?? '').trim()
  if (!/^[A-Za-z0-9_.-]{1,64}$/.test(plan))
    throw new FormFault('this is no plan; write one of gateway.yaml, such as tier1')
  const id = params['id']!
  await gatewayOf(visit).change(id, now => (now.plan === plan ? null : { plan }))
  await note(db, { organization: id, person: session.person, action: 'staff.plan', detail: plan, address, now })
  return see(`/staff/organizations/${encodeURIComponent(id)}`, 'organization-changed')
}

/** The form says what is wanted: a page from before another change turns nothing round, and takes no deletion back. */
async function changeStatus(visit: PersonVisit): Promise<Answer> {
  const { db, params, form: sent, session, now, address } = visit
  const id = params['id']!
  const wanted = sent.get('status')
  if (wanted !== 'active' && wanted !== 'disabled') throw new Refusal(400, 'This form is not complete.')
  let changed = false
  await gatewayOf(visit).change(id, now => {
    if (wanted === 'active' && now.leaves && now.leaves !== sent.get('leaves'))
      throw new FormFault('the organization has been deleted since this page was loaded; look at it again')
    changed = now.status !== wanted
    return changed ? { status: wanted } : null
  })
  // Enabling takes a deletion back.
  if (wanted === 'active') await db.updateTable('organization').set({ deleted: null }).where('id', '=', id).execute()
  if (changed) await note(db, { organization: id, person: session.person, action: `staff.${wanted}`, address, now })
  return see(`/staff/organizations/${encodeURIComponent(id)}`, 'organization-changed')
}

// ---- people ---------------------------------------------------------------------------------------------------------

async function showPeople(visit: PersonVisit): Promise<Answer> {
  const { db, now, session, form: sent } = visit
  const [staffed, invitations, waiting] = await Promise.all([
    db.selectFrom('person').selectAll().where('staff', '=', 1).orderBy('email').execute(),
    openInvitations(db, null, now),
    db.selectFrom('waiting').selectAll().orderBy('created').limit(200).execute(),
  ])
  return page(
    visit,
    'People and invitations',
    html`${tabs('/staff/people')}
      <section class="card narrow"><h2>Invite a customer</h2>
        <p class="muted">Whoever signs in with this address may open an organization.</p>
        ${form(
          visit,
          '/staff/invite',
          html`${invitedInput(sent.get('email'))}<button type="submit"
            class="main">Invite</button>`,
        )}
      </section>
      ${
        invitations.length > 0
          ? html`<section><h2>Open invitations</h2>${invitationTable(visit, invitations, '/staff/invitations')}</section>`
          : ''
      }
      <section><h2>Waiting list</h2>${
        waiting.length === 0
          ? empty('Nobody waits.')
          : table(
              'Waiting list',
              ['Address', 'What for', 'Since', ''],
              waiting.map(({ email, note, created }) => [
                email,
                note,
                time(created, false),
                html`<div class="actions">${button(visit, '/staff/waiting/invite', 'Invite', {
                  fields: { email },
                  about: email,
                })}
                  ${button(visit, '/staff/waiting/remove', 'Remove', { fields: { email }, about: email })}</div>`,
              ]),
            )
      }</section>
      <section><h2>Staff</h2>${table(
        'Staff',
        ['Person', 'Since', ''],
        staffed.map(({ id, email, created }) => [
          html`${email} ${id === session.person ? badge('you') : ''}`,
          time(created, false),
          id === session.person
            ? ''
            : confirm(
                visit,
                'Remove',
                `${email} stays a person of the console, and sees no pages of staff.`,
                `/staff/members/${id}/remove`,
                'Remove from staff',
              ),
        ]),
      )}
        <div class="card narrow">${form(
          visit,
          '/staff/members',
          html`${input({
            name: 'member',
            label: 'Make a person staff',
            type: 'email',
            value: sent.get('member'),
            required: true,
            hint: 'Who has signed in before.',
            more: { autocomplete: 'off' },
          })}<button
              type="submit">Add</button>`,
        )}</div>
      </section>`,
  )
}

async function inviteCustomer(visit: PersonVisit, email: string): Promise<void> {
  const { db, parts, session, now, address } = visit
  await invite(db, { email, organization: null, role: 'owner', inviter: session.person }, now)
  await note(db, { person: session.person, action: 'staff.invite', detail: email, address, now })
  mailInvitation(parts, email, parts.config.name, 'and open your organization')
}

/** @param to what somebody is invited to. @param what there is to do after signing in */
function mailInvitation({ config, mail }: Parts, email: string, to: string, what: string): void {
  mail.send({
    to: email,
    subject: `You are invited to ${to}`,
    text: `You are invited to ${to}. Sign in with this address, ${what}:

${config.url}/sign-in?email=${encodeURIComponent(email)}

The invitation stays open for seven days. If you do not know what this is about, ignore this mail.
`,
  })
}

/** @throws FormFault */
function wantedEmail(sent: Form): string {
  const email = emailOf(sent.get('email'))
  if (email === null) throw new FormFault('this is no address of mail; write one such as ada@example.com')
  return email
}

async function sendInvitation(visit: PersonVisit): Promise<Answer> {
  await inviteCustomer(visit, wantedEmail(visit.form))
  return see('/staff/people', 'invited')
}

async function takeBack({ db, params, session, now, address }: PersonVisit): Promise<Answer> {
  const ended = await endInvitation(db, params['id']!, { organization: null }, now)
  if (!ended) throw new Refusal(404, 'This invitation has been used, or taken back.')
  await note(db, { person: session.person, action: 'member.uninvite', detail: ended.email, address, now })
  return see('/staff/people', 'invitation-ended')
}

async function leaveWaiting({ db, form: sent }: PersonVisit): Promise<string> {
  const left = await db
    .deleteFrom('waiting')
    .where('email', '=', sent.get('email') ?? '')
    .returning('email')
    .executeTakeFirst()
  if (!left) throw new Refusal(404, 'This address does not wait any more.')
  return left.email
}

async function inviteWaiting(visit: PersonVisit): Promise<Answer> {
  await inviteCustomer(visit, await leaveWaiting(visit))
  return see('/staff/people', 'invited')
}

async function removeWaiting(visit: PersonVisit): Promise<Answer> {
  await leaveWaiting(visit)
  return see('/staff/people', 'waiting-removed')
}

async function addStaff({ db, form: sent, session, now, address }: PersonVisit): Promise<Answer> {
  const email = emailOf(sent.get('member')) ?? ''
  const changed = await db.updateTable('person').set({ staff: 1 }).where('email', '=', email).executeTakeFirst()
  if (changed.numUpdatedRows === 0n) throw new FormFault('nobody with this address has signed in yet')
  await note(db, { person: session.person, action: 'staff.add', detail: email, address, now })
  return see('/staff/people', 'staff-added')
}

async function removeStaff({ db, params, session, now, address }: PersonVisit): Promise<Answer> {
  if (params['id'] === session.person) throw new FormFault('somebody else of the staff must do that')
  const gone = await db
    .updateTable('person')
    .set({ staff: 0 })
    .where('id', '=', params['id']!)
    .where('staff', '=', 1)
    .returning('email')
    .executeTakeFirst()
  if (!gone) throw new Refusal(404, 'There is no such member of staff.')
  await note(db, { person: session.person, action: 'staff.remove', detail: gone.email, address, now })
  return see('/staff/people', 'staff-removed')
}
