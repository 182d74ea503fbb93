/**
 * Tiers: which plan an organization has by what it paid. A pure function; moves.ts asks it and carries out what it
 * says. The table is the specification's ("Self-serve tiers"). What a tier allows stands in the gateway, as the plan.
 */

export const ACTIVATIONS = ['automatic', 'capacity review', 'manual review'] as const

export interface Tier {
  /** The gateway's plan. */
  plan: string
  /** For people. */
  name: string
  /** What has to count for it, in cents. */
  basis: number
  activation: (typeof ACTIVATIONS)[number]
}

export const TIERS: readonly Tier[] = [
  { plan: 'free', name: 'Free', basis: 0, activation: 'automatic' },
  { plan: 'tier1', name: 'Tier 1', basis: 500, activation: 'automatic' },
  { plan: 'tier2', name: 'Tier 2', basis: 5_000, activation: 'automatic' },
  { plan: 'tier3', name: 'Tier 3', basis: 10_000, activation: 'automatic' },
  { plan: 'tier4', name: 'Tier 4', basis: 25_000, activation: 'capacity review' },
  { plan: 'tier5', name: 'Tier 5', basis: 100_000, activation: 'manual review' },
]

export interface Standing {
  /** What arrived in all, in cents. */
  arrived: number
  /** What counts of it: without refunds and lost disputes. It may be below zero. */
  counted: number
  /** A hold stands: it does not rise. */
  held: boolean
  /** Plans for which a review said yes. */
  granted: readonly string[]
  /** The plan that it has now. */
  plan: string
}

export interface Verdict {
  /** The plan that it is to have; the present one where nothing changes. */
  plan: string
  because: 'paid' | 'review' | 'fell' | null
  /** A hold is to be set: what counts fell below the basis of the present tier. */
  hold: boolean
  /** The plan for which a review is due; null for none. */
  review: string | null
}

/**
 * Where an organization belongs. A plan that is no tier stays as it is. So does a tier that was given and not paid for:
 * what counts can only fall below a basis that what arrived once reached.
 */
export function verdictOf(table: readonly Tier[], { arrived, counted, held, granted, plan }: Standing): Verdict {
  const at = table.findIndex(tier => tier.plan === plan)
  const stays: Verdict = { plan, because: null, hold: false, review: null }
  if (at < 0) return stays
  const { basis } = table[at]!
  // Everybody has the first tier, whatever counts.
  if (at > 0 && counted < basis && arrived >= basis) {
    const allowed = table.findLastIndex((tier, i) => i < at && tier.basis <= counted)
    return { plan: table[Math.max(allowed, 0)]!.plan, because: 'fell', hold: true, review: null }
  }
  if (held) return stays
  let to = at
  let review: string | null = null
  for (const [i, tier] of table.entries()) {
    if (i <= at) continue
    if (counted < tier.basis) break
    if (tier.activation !== 'automatic' && !granted.includes(tier.plan)) {
      review = tier.plan
      break
    }
    to = i
  }
  const { activation, plan: next } = table[to]!
  return { plan: next, because: to === at ? null : activation === 'automatic' ? 'paid' : 'review', hold: false, review }
}

/**
 * Whether less counts than once arrived, by a tier or more, below a tier that was given. It stays, and whoever gave it
 * may have done so for what was paid.
 */
export function lostBelowGiven(table: readonly Tier[], { arrived, counted, plan }: Standing): boolean {
  const at = table.findIndex(tier => tier.plan === plan)
  const reached = (sum: number) => table.findLastIndex(({ basis }, i) => i === 0 || basis <= sum)
  return at > 0 && arrived < table[at]!.basis && reached(counted) < reached(arrived)
}

/**
 * The tier above a plan, and what is missing to its basis, in cents; null at the top and for plans that are no tiers.
 */
export function nextTier(
  table: readonly Tier[],
  plan: string,
  counted: number,
): { tier: Tier; missing: number } | null {
  const at = table.findIndex(tier => tier.plan === plan)
  const tier = at < 0 ? undefined : table[at + 1]
  return tier === undefined ? null : { tier, missing: Math.max(0, tier.basis - counted) }
}
