/**
 * The built-in plans (LIM-11): the self-serve tiers as the service publishes them, and ready plans for the invite-only
 * ones. They are written as in gateway.yaml, and read by the same code. A plan of the same name in the file replaces
 * the built-in plan completely.
 */

const tier = (requests: number, tokens: number, output: number, concurrent: number, monthlyUsd: string | null) => ({
  models: 'all',
  capabilities: 'all',
  streaming: true,
  active_keys: 10,
  limits: {
    requests_per_minute: requests,
    tokens_per_minute: tokens,
    // The published table has one figure for combined and for input tokens.
    input_tokens_per_minute: tokens,
    output_tokens_per_minute: output,
    concurrent_requests: concurrent,
    monthly_spend_usd: monthlyUsd,
  },
})

/**
 * Plans by name, as unparsed data. The service publishes no figures for beta, benchmark and custom: the figures here
 * are our own, and an operator should replace them.
 */
export const BUILT_IN_PLANS: Record<string, Record<string, unknown>> = {
  free: tier(5, 20_000, 4_000, 1, '0'),
  tier1: tier(60, 100_000, 30_000, 5, '100'),
  tier2: tier(120, 200_000, 60_000, 10, '500'),
  tier3: tier(240, 300_000, 120_000, 20, '1000'),
  tier4: tier(500, 400_000, 250_000, 50, '5000'),
  // "Custom" in the published table: set monthly_spend_usd on the organization.
  tier5: tier(1_000, 400_000, 400_000, 100, null),
  beta: {
    models: 'all',
    capabilities: 'all',
    streaming: true,
    active_keys: 10,
    limits: {
      requests_per_minute: 600,
      tokens_per_minute: 2_000_000,
      concurrent_requests: 50,
      monthly_spend_usd: '500',
    },
  },
  benchmark: {
    models: 'all',
    capabilities: 'all',
    streaming: true,
    active_keys: 10,
    limits: { requests_per_minute: 6_000, tokens_per_minute: 20_000_000, concurrent_requests: 1_000 },
  },
  custom: { models: 'all', capabilities: 'all', streaming: true, active_keys: null, limits: {} },
}
