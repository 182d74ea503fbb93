/** Spend by day as bars: an SVG of the server's, so that it is there without scripts. */
import { html } from 'hono/html'
import { dollars } from '../views/parts.ts'
import type { Html } from '../web/visit.ts'

const [WIDTH, HEIGHT] = [1000, 160]
/** As many as can be told apart; what is left is one more. */
const MOST_PARTS = 5

export interface Spend {
  day: string
  usd: number
  /** What the bar is divided by: a model, a key. Where all have '' it is one bar. */
  part?: string
}

/** @param days every day, also those without spend. @param nameOf what is read for a part; two may have one name */
export function spendChart(
  days: readonly string[],
  spend: readonly Spend[],
  nameOf: (part: string) => string = part => part,
): Html {
  const parts = partsOf(spend, nameOf)
  const totals = days.map(day => parts.reduce((sum, { byDay }) => sum + (byDay.get(day) ?? 0), 0))
  const most = Math.max(...totals, 0)
  const total = totals.reduce((sum, usd) => sum + usd, 0)
  const [first, last] = [days[0]!, days.at(-1)!]
  const names = parts.length > 1 || parts[0]?.name ? parts.map(({ name, usd }) => `${name} ${dollars(usd)}`) : []
  const label = `Spend by day from ${first} to ${last}: ${dollars(total)}, at most ${dollars(most)} a day`
  return html`<figure class="chart">
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img"
      aria-label="${[label, ...names].join('; ')}">
      ${days.map((day, i) => bar(day, parts, { left: (i * WIDTH) / days.length, width: WIDTH / days.length, most }))}
    </svg>
    <figcaption><span>${first}</span><span>most in a day ${dollars(most)}</span><span>${last}</span></figcaption>
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
  byDay: Map<string, number>
}

/** Those with the most spend, and all others together. */
function partsOf(spend: readonly Spend[], nameOf: (part: string) => string): Part[] {
  const found = new Map<string, Part>()
  for (const { day, usd, part = '' } of spend) {
    const one = found.get(part) ?? { name: nameOf(part), usd: 0, byDay: new Map() }
    found.set(part, add(one, day, usd))
  }
  const sorted = [...found.values()].sort((a, b) => b.usd - a.usd)
  const others = sorted.slice(MOST_PARTS)
  if (others.length === 0) return sorted
  const rest: Part = { name: `${others.length} more`, usd: 0, byDay: new Map() }
  for (const { byDay } of others) for (const [day, usd] of byDay) add(rest, day, usd)
  return [...sorted.slice(0, MOST_PARTS), rest]
}

function add(part: Part, day: string, usd: number): Part {
  part.usd += usd
  part.byDay.set(day, (part.byDay.get(day) ?? 0) + usd)
  return part
}

/** The parts of a day, the largest of the whole time at the bottom. */
function bar(
  day: string,
  parts: readonly Part[],
  { left, width, most }: { left: number; width: number; most: number },
) {
  let top = HEIGHT
  return parts.map(({ name, byDay }, i) => {
    const usd = byDay.get(day) ?? 0
    if (usd <= 0) return ''
    const height = (usd / most) * HEIGHT
    top = Math.max(0, top - height)
    return html`<rect class="part-${i}" x="${left.toFixed(2)}" y="${top.toFixed(2)}" width="${(width * 0.86).toFixed(2)}"
      height="${height.toFixed(2)}"><title>${day}${name && `, ${name}`}: ${dollars(usd)}</title></rect>`
  })
}
