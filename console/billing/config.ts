/** The sections `tiers` and `stripe` of console.yaml. */
import { choice, type Field, group, list, optional, type Read, shown, text } from '../yaml.ts'
import { ACTIVATIONS, TIERS, type Tier } from './tiers.ts'

/** An amount in USD, in cents. @param fallback in cents */
function amount(fallback?: number): Field<number> {
  return {
    ...(fallback !== undefined && { fallback: () => fallback }),
    read(value, path, fault) {
      const cents = centsOf(String(value))
      if (cents === null) fault(path, `is ${shown(value)}; write an amount in USD such as 25.00`)
      return cents ?? 0
    },
  }
}

/** @param text USD with at most two digits behind the point. @returns cents; null for anything else */
export function centsOf(text: string): number | null {
  const [, whole, part = ''] = /^(\d{1,9})(?:\.(\d{1,2}))?$/.exec(text.trim()) ?? []
  return whole === undefined ? null : Number(whole) * 100 + Number(part.padEnd(2, '0'))
}

/** @param cents may be below zero. @returns USD such as `-25.00` */
export const usdOf = (cents: number): string =>
  `${cents < 0 ? '-' : ''}${Math.floor(Math.abs(cents) / 100)}.${String(Math.abs(cents) % 100).padStart(2, '0')}`

const TIER = group({
  plan: text({ expects: 'a plan of the gateway, such as tier1' }),
  name: optional(text({ expects: 'its name for customers, such as Tier 1' })),
  basis_usd: amount(),
  activation: choice(ACTIVATIONS, 'automatic'),
})

export interface Tiers {
  /** Whether customers rise by what they paid. */
  open: boolean
  table: readonly Tier[]
}

const OPEN = choice(['on', 'off'], 'off')
const SECTION = group({ open: OPEN, table: optional(list(TIER)) })

/** `off`, `on`, or a mapping with a table of its own. */
export const tiersField: Field<Tiers> = {
  fallback: () => ({ open: false, table: TIERS }),
  read(value, path, fault) {
    if (typeof value !== 'object') {
      const word = OPEN.read(value, path, (at, message) => fault(at, `${message}, or a mapping with open and table`))
      return { open: word === 'on', table: TIERS }
    }
    const { open, table } = SECTION.read(value, path, fault)
    if (table === undefined) return { open: open === 'on', table: TIERS }
    const at = [...path, 'table']
    if (table.length === 0) fault(at, 'is empty; write at least one tier, or leave it out')
    else if (table[0]!.basis_usd !== 0)
      fault([...at, 0, 'basis_usd'], `is ${usdOf(table[0]!.basis_usd)}; write 0: everybody has the first tier`)
    for (const [i, { plan, basis_usd, activation }] of table.entries()) {
      const below = table[i - 1]
      if (below && basis_usd <= below.basis_usd)
        fault([...at, i, 'basis_usd'], `is ${usdOf(basis_usd)}; write more than the tier before it has`)
      if (below && activation === 'automatic' && below.activation !== 'automatic')
        fault([...at, i], `is automatic behind a tier with a review, so nobody would reach it; give it a review, too`)
      if (table.findIndex(other => other.plan === plan) < i)
        fault([...at, i, 'plan'], `is ${shown(plan)} a second time; write another plan`)
    }
    return {
      open: open === 'on',
      table: table.map(({ plan, name = plan, basis_usd, activation }) => ({
        plan,
        name,
        basis: basis_usd,
        activation,
      })),
    }
  },
}

/** What a meter at Stripe may sum. `cost` is in millionths of a USD; everything else is a count. */
export const METERED = ['cost', 'requests', 'input', 'cached', 'output', 'reasoning', 'searches'] as const
export type Metered = (typeof METERED)[number]

export const stripeField = optional(
  group({
    key: text({ pattern: /^(sk|rk)_/, expects: 'a secret or restricted key of Stripe: sk_… or rk_…' }),
    webhook_secrets: list(text({ pattern: /^whsec_/, expects: 'the signing secret of the webhook: whsec_…' })),
    api: text({
      pattern: /^https?:\/\/[^\s/]+$/,
      expects: 'the address of Stripe',
      fallback: 'https://api.stripe.com',
    }),
    portal: choice(['on', 'off'], 'on'),
    checkout: choice(['on', 'off'], 'off'),
    checkout_least_usd: amount(500),
    checkout_most_usd: amount(100_000),
    meters: list(
      group({
        event_name: text({ pattern: /^[\x21-\x7e]{1,100}$/, expects: 'the event_name of a meter at Stripe' }),
        value: choice(METERED),
      }),
    ),
  }),
)
export type StripeConfig = NonNullable<Read<typeof stripeField>>

export const billersField = list(
  group({
    name: text({
      pattern: /^(?!(stripe|hand)$)[a-z0-9-]{1,20}$/,
      expects: 'a word for its address, but stripe and hand',
    }),
    secret: text({ pattern: /^.{16,}$/, expects: 'a secret of 16 characters and more' }),
  }),
)
