/** Spend by day or month as bars: an SVG of the server's, so that it is there without scripts. */
import { html } from 'hono/html'
import { dollars } from '../views/parts.ts'
import type { Html } from '../web/visit.ts'
import type { Step } from './range.ts'

const [WIDTH, HEIGHT] = [1000, 160]
/** As many as can be told apart; what is left is one more. */
const MOST_PARTS = 5

export interface Spend {
  /** A day or a month, such as 2026-11-01 or 2026-11. */
  time: string
  usd: number
  /** What the bar is divided by: a model, a key. Where all have '' it is one bar. */
  part?: string
}

/**
 * @param step what each bar stands for
 * @param times every day or month, also those without spend
 * @param nameOf what is read for a part; two may have one name
 */
export function spendChart(
  step: Step,
  times: readonly string[],
  spend: readonly Spend[],
  nameOf: (part: string) => string = part => part,
): Html {
  const parts = partsOf(spend, nameOf)
  const totals = times.map(time => parts.reduce((sum, { byTime }) => sum + (byTime.get(time) ?? 0), 0))
  const most = Math.max(...totals, 0)
  const total = totals.reduce((sum, usd) => sum + usd, 0)
  const [first, last] = [times[0]!, times.at(-1)!]
  const names = parts.length > 1 || parts[0]?.name ? parts.map(({ name, usd }) => `${name} ${dollars(usd)}`) : []
  const label = `Spend by ${step} from ${first} to ${last}: ${dollars(total)}, at most ${dollars(most)} a ${step}`
  return html`<figure class="chart">
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img"
      aria-label="${[label, ...names].join('; ')}">
      ${times.map((time, i) => bar(time, parts, { left: (i * WIDTH) / times.length, width: WIDTH / times.length, most }))}
    </svg>
    <figcaption><span>${first}</span><span>most in a ${step} ${dollars(most)}</span><span>${last}</span></figcaption>
    ${
      names.length > 0
        ? html`<ul>${names.map(
            (name, i) => html`<li><svg viewBox="0 0 10 10" aria-hidden="true"><rect class="part-${i}" width="10"
              height="10" /></svg> ${name}</li>`,
          )}</ul>`
        : ''
    }
  </figure>`
}

interface Part {
  name: string
  usd: number
  byTime: Map<string, number>
}

/** Those with the most spend, and all others together. */
function partsOf(spend: readonly Spend[], nameOf: (part: string) => string): Part[] {
  const found = new Map<string, Part>()
  for (const { time, usd, part = '' } of spend) {
    const one = found.get(part) ?? { name: nameOf(part), usd: 0, byTime: new Map() }
    found.set(part, add(one, time, usd))
  }
  const sorted = [...found.values()].sort((a, b) => b.usd - a.usd)
  const others = sorted.slice(MOST_PARTS)
  if (others.length === 0) return sorted
  const rest: Part = { name: `${others.length} more`, usd: 0, byTime: new Map() }
  for (const { byTime } of others) for (const [time, usd] of byTime) add(rest, time, usd)
  return [...sorted.slice(0, MOST_PARTS), rest]
}

function add(part: Part, time: string, usd: number): Part {
  part.usd += usd
  part.byTime.set(time, (part.byTime.get(time) ?? 0) + usd)
  return part
}

/** The parts of a bar, the largest of the whole time at the bottom. */
function bar(
  time: string,
  parts: readonly Part[],
  { left, width, most }: { left: number; width: number; most: number },
) {
  let top = HEIGHT
  return parts.map(({ name, byTime }, i) => {
    const usd = byTime.get(time) ?? 0
    if (usd <= 0) return ''
    const height = (usd / most) * HEIGHT
    top = Math.max(0, top - height)
    return html`<rect class="part-${i}" x="${left.toFixed(2)}" y="${top.toFixed(2)}" width="${(width * 0.86).toFixed(2)}"
      height="${height.toFixed(2)}"><title>${time}${name && `, ${name}`}: ${dollars(usd)}</title></rect>`
  })
}
