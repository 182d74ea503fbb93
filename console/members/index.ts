/** Members of an organization, invitations, and the organization itself. */
import { html } from 'hono/html'
import { mayTry } from '../people/attempts.ts'
import { emailOf, nameOf } from '../people/email.ts'
import { note } from '../people/events.ts'
import { endInvitation, invite, LastOwner, membersOf, openInvitations, setRole } from '../people/memberships.ts'
import { isRole, ROLE_TEXT, ROLES, type Role } from '../people/roles.ts'
import { closeOrganization, renameOrganization } from '../staff/organizations.ts'
import { page } from '../views/layout.ts'
import { badge, button, confirm, form, input, invitedInput, select, table, time } from '../views/parts.ts'
import { type Answer, FormFault, get, type MemberVisit, type Page, post, Refusal, see } from '../web/visit.ts'

/** Invitations of an organization: each is a mail to somebody who has not asked for it. */
const INVITATIONS = { most: 50, per: 86_400_000 }

export const members: Page = {
  name: 'members',
  menu: { label: 'Members', path: '/members', right: 'members.see' },
  routes: [
    get.member('/members', 'members.see', show),
    post.member('/members/invite', 'members.change', sendInvitation, show),
    post.member('/members/:person/role', 'members.change', changeRole, show),
    post.member('/members/:person/remove', 'members.change', remove, show),
    post.member('/members/leave', 'overview', leave, show),
    post.member('/invitations/:invitation/end', 'members.change', takeBack),
    post.member('/name', 'organization.change', rename, show),
    post.member('/delete', 'organization.change', close, show),
  ],
}

const ROLE_OPTIONS = ROLES.map(role => [role, role] as const)

async function show(visit: MemberVisit): Promise<Answer> {
  const { db, organization, now, session, form: sent } = visit
  const all = await membersOf(db, organization.id)
  const change = visit.may('members.change')
  const invitations = change ? await openInvitations(db, organization.id, now) : []
  const path = `/o/${organization.id}`
  return page(
    visit,
    'Members',
    html`${table(
      'Members',
      ['Person', 'Role', 'Since', ''],
      all.map(({ person, name, email, role, created }) => [
        html`${name ? html`${name}<br />` : ''}<span class="muted">${email}</span>${
          person === session.person ? html` ${badge('you')}` : ''
        }`,
        change
          ? form(
              visit,
              `${path}/members/${person}/role`,
              html`<div class="row">${select({
                name: 'role',
                label: 'Role of',
                options: ROLE_OPTIONS,
                value: role,
                quiet: true,
                about: email,
              })}
                <button type="submit">Set<span class="hidden"> the role of ${email}</span></button></div>`,
            )
          : role,
        time(created, false),
        change && person !== session.person
          ? confirm(
              visit,
              'Remove',
              `${email} loses access to ${organization.name}. Keys stay.`,
              `${path}/members/${person}/remove`,
              'Remove the member',
            )
          : '',
      ]),
    )}
    ${
      change
        ? html`<section class="card narrow"><h2>Invite somebody</h2>
            ${form(
              visit,
              `${path}/members/invite`,
              html`${invitedInput(sent.get('email'))}
                ${select({
                  name: 'role',
                  label: 'Role',
                  options: ROLES.map(role => [role, `${role}: ${ROLE_TEXT[role]}`] as const),
                  value: sent.get('role') ?? 'developer',
                })}
                <button type="submit" class="main">Invite</button>`,
            )}</section>
          ${
            invitations.length > 0
              ? html`<section><h2>Open invitations</h2>${table(
                  'Open invitations',
                  ['Address', 'Role', 'Until', ''],
                  invitations.map(({ id, email, role, expires }) => [
                    email,
                    role,
                    time(expires),
                    button(visit, `${path}/invitations/${id}/end`, 'Take back', {
                      about: `the invitation of ${email}`,
                    }),
                  ]),
                )}</section>`
              : ''
          }`
        : ''
    }
    <section>${confirm(
      visit,
      'Leave the organization',
      `You lose access to ${organization.name}.`,
      `${path}/members/leave`,
      'Leave',
    )}</section>
    ${
      visit.may('organization.change')
        ? html`<section class="card narrow"><h2>The organization</h2>
            ${form(
              visit,
              `${path}/name`,
              html`${input({
                name: 'name',
                label: 'Name',
                value: sent.get('name') ?? organization.name,
                required: true,
                hint: `Its id stays ${organization.id}.`,
                more: { maxlength: '80' },
              })}
                <button type="submit">Change the name</button>`,
            )}</section>
          <section>${confirm(
            visit,
            'Delete the organization',
            'Its keys stop at once, for all members. In 30 days it is gone; until then the operator can take it back.',
            `${path}/delete`,
            'Delete the organization',
          )}</section>`
        : ''
    }`,
  )
}

async function sendInvitation(visit: MemberVisit): Promise<Answer> {
  const { db, parts, organization, session, now, address, form: sent } = visit
  const email = emailOf(sent.get('email'))
  if (email === null) throw new FormFault('this is no address of mail; write one such as ada@example.com')
  const role = readRole(sent.get('role'))
  if ((await membersOf(db, organization.id)).some(member => member.email === email))
    throw new FormFault(`${email} is a member already`)
  if (!(await mayTry(db, `invite ${organization.id}`, INVITATIONS, now)))
    throw new Refusal(429, 'There were many invitations today. Go on tomorrow.')
  await invite(db, { email, organization: organization.id, role, inviter: session.person }, now)
  const happened = { organization: organization.id, person: session.person, action: 'member.invite' }
  await note(db, { ...happened, detail: `${email}, ${role}`, address, now })
  const { config, mail } = parts
  mail.send({
    to: email,
    subject: `You are invited to ${organization.name} at ${config.name}`,
    text: `${session.who.name || session.who.email} invites you to ${organization.name} as ${role}: ${ROLE_TEXT[role]}.

Sign in with this address, and the invitation is there:

${config.url}/sign-in?email=${encodeURIComponent(email)}

It stays open for seven days. If you do not know what this is about, ignore this mail.
`,
  })
  return see(`/o/${organization.id}/members`, 'invited')
}

function readRole(text: string | null): Role {
  if (!isRole(text)) throw new FormFault(`choose a role: ${ROLES.join(', ')}`)
  return text
}

/**
 * Sets a role, or takes the membership away, and notes it.
 * @throws FormFault for the last owner, Refusal for no member
 */
async function set(visit: MemberVisit, person: string, role: Role | null): Promise<void> {
  const { db, organization, session, now, address } = visit
  const member = (await membersOf(db, organization.id)).find(one => one.person === person)
  if (!member) throw new Refusal(404, 'There is no such member.')
  try {
    await setRole(db, organization.id, person, role)
  } catch (error) {
    if (!(error instanceof LastOwner)) throw error
    throw new FormFault('an organization needs an owner; make another member owner first')
  }
  const action = role === null ? 'member.remove' : 'member.role'
  const detail = role === null ? member.email : `${member.email}, ${role}`
  await note(db, { organization: organization.id, person: session.person, action, detail, address, now })
}

async function changeRole(visit: MemberVisit): Promise<Answer> {
  await set(visit, visit.params['person']!, readRole(visit.form.get('role')))
  return see(`/o/${visit.organization.id}/members`, 'member-changed')
}

async function remove(visit: MemberVisit): Promise<Answer> {
  await set(visit, visit.params['person']!, null)
  return see(`/o/${visit.organization.id}/members`, 'member-removed')
}

async function leave(visit: MemberVisit): Promise<Answer> {
  await set(visit, visit.session.person, null)
  return see('/')
}

async function takeBack(visit: MemberVisit): Promise<Answer> {
  const { db, organization, params, session, now, address } = visit
  const ended = await endInvitation(db, params['invitation']!, { organization: organization.id }, now)
  if (!ended) throw new Refusal(404, 'This invitation has been used, or taken back.')
  const happened = { organization: organization.id, person: session.person, action: 'member.uninvite' }
  await note(db, { ...happened, detail: ended.email, address, now })
  return see(`/o/${organization.id}/members`, 'invitation-ended')
}

async function rename({ db, parts, organization, session, now, address, form: sent }: MemberVisit): Promise<Answer> {
  const name = nameOf(sent.get('name'))
  if (name === null) throw new FormFault('write a name, in at most 80 characters')
  await renameOrganization(db, parts.config, { id: organization.id, name, person: session.person }, address, now)
  return see(`/o/${organization.id}/members`, 'organization-changed')
}

async function close({ db, parts, organization, session, now, address }: MemberVisit): Promise<Answer> {
  await closeOrganization(db, parts.config, { id: organization.id, person: session.person }, address, now)
  return see('/')
}
