/** Spend by day as bars: an SVG of the server's, so that it is there without scripts. */
import { html } from 'hono/html'
import { dollars } from '../views/parts.ts'
import type { Html } from '../web/visit.ts'

const [WIDTH, HEIGHT] = [1000, 160]

/** @param days every day with its cost in USD, also those without any */
export function spendChart(days: readonly { day: string; usd: number }[]): Html {
  const most = Math.max(...days.map(({ usd }) => usd), 0)
  const total = days.reduce((sum, { usd }) => sum + usd, 0)
  const width = WIDTH / days.length
  const [first, last] = [days[0]!.day, days.at(-1)!.day]
  return html`<figure class="chart">
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img"
      aria-label="Spend by day from ${first} to ${last}: ${dollars(total)}, at most ${dollars(most)} a day">
      ${days.map(({ day, usd }, i) => {
        const height = most === 0 ? 0 : (usd / most) * HEIGHT
        const [x, y] = [(i * width).toFixed(2), (HEIGHT - height).toFixed(2)]
        return html`<rect x="${x}" y="${y}" width="${(width * 0.86).toFixed(2)}"
          height="${height.toFixed(2)}"><title>${day}: ${dollars(usd)}</title></rect>`
      })}
    </svg>
    <figcaption><span>${first}</span><span>most in a day ${dollars(most)}</span><span>${last}</span></figcaption>
  </figure>`
}
