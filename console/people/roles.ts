/** What the members of an organization may do. */

/** What a page may need of its reader. */
export type Right = (typeof RIGHTS)[number]
export const RIGHTS = [
  'overview',
  'keys.see',
  'keys.change',
  'usage',
  'requests',
  'limits',
  'members.see',
  'members.change',
  'billing.see',
  'billing.change',
  'audit',
  'playground',
  'organization.change',
] as const

export const ROLES = ['owner', 'developer', 'billing', 'viewer'] as const
export type Role = (typeof ROLES)[number]

const VIEWER: readonly Right[] = ['overview', 'keys.see', 'usage', 'requests', 'limits', 'members.see']

const MAY: Record<Role, readonly Right[]> = {
  owner: RIGHTS,
  developer: [...VIEWER, 'keys.change', 'playground'],
  billing: ['overview', 'usage', 'limits', 'members.see', 'billing.see', 'billing.change'],
  viewer: VIEWER,
}

/** For people who choose one. */
export const ROLE_TEXT: Record<Role, string> = {
  owner: 'everything, members and billing included',
  developer: 'keys, usage, requests and the playground',
  billing: 'usage, limits and payments',
  viewer: 'sees keys, usage, requests and limits; changes nothing',
}

export const isRole = (text: unknown): text is Role => ROLES.includes(text as Role)
export const mayDo = (role: Role, right: Right): boolean => MAY[role].includes(right)
