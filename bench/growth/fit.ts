/** How a cost grows with the size of something: the exponent of a power law. */

export interface Point {
  /** The size, at least 1. */
  n: number
  cost: number
}

export interface Fit {
  /** cost = fixed + each · n^exponent */
  fixed: number
  each: number
  exponent: number
  /** The largest difference between the law and a point, as a share of that point. */
  error: number
  /** The largest cost divided by that of the smallest size. */
  growth: number
  verdict: 'flat' | 'less than linear' | 'linear' | 'worse than linear'
}

/** Two measurements of one thing may differ by this share. */
const NOISE = 0.12
/** A cost that grows by less than this share over all sizes is flat: on a shared machine, noise alone is a quarter. */
const FLAT = 1 / 3
const STEP = 0.05
const MOST = 3

/**
 * Fits a fixed cost and a power of the size, with errors relative to each point. Where several exponents explain the
 * points to within the noise, it is the one nearest to 1: a cost that could be linear is called linear.
 * @param points with sizes that ascend
 */
export function fit(points: readonly Point[]): Fit {
  const growth = Math.max(...points.map(point => point.cost)) / points[0]!.cost
  const laws: Omit<Fit, 'growth' | 'verdict'>[] = []
  for (let i = 1; i <= MOST / STEP; i++) laws.push(law(points, i * STEP))
  const least = Math.min(...laws.map(each => each.error))
  const allowed = Math.max(least, NOISE)
  const good = laws.filter(each => each.error <= allowed)
  const best = good.sort((a, b) => Math.abs(a.exponent - 1) - Math.abs(b.exponent - 1))[0]!
  const exponent = growth < 1 + FLAT ? 0 : Number(best.exponent.toFixed(2))
  const verdict =
    growth < 1 + FLAT ? 'flat' : exponent < 0.9 ? 'less than linear' : exponent <= 1.1 ? 'linear' : 'worse than linear'
  return { ...best, exponent, growth, verdict }
}

/** The least squares of relative errors for a given exponent. Neither cost is negative. */
function law(points: readonly Point[], exponent: number): Omit<Fit, 'growth' | 'verdict'> {
  // Each point is divided by its cost, so that 1 = fixed · u + each · v.
  let uu = 0
  let uv = 0
  let vv = 0
  let su = 0
  let sv = 0
  for (const { n, cost } of points) {
    const u = 1 / cost
    const v = n ** exponent / cost
    uu += u * u
    uv += u * v
    vv += v * v
    su += u
    sv += v
  }
  const determinant = uu * vv - uv * uv
  let fixed = (su * vv - sv * uv) / determinant
  let each = (sv * uu - su * uv) / determinant
  if (!(fixed >= 0)) [fixed, each] = [0, sv / vv]
  if (!(each >= 0)) [fixed, each] = [su / uu, 0]
  const error = Math.max(...points.map(({ n, cost }) => Math.abs(fixed + each * n ** exponent - cost) / cost))
  return { fixed, each, exponent, error }
}
