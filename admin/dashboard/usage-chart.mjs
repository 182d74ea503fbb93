/**
 * Bars of a time, by day or month, divided into parts. Below the pointer the values of a bar stand beside the names of
 * the parts; else those of the whole time do.
 */
import { h, svg, text } from './dom.mjs'

const [WIDTH, HEIGHT] = [1000, 200]
/** Of the width that a bar has; the rest is what keeps it apart from the next. */
const BAR = 0.84
/** What the highest line of a chart may be, times a power of ten. */
const TOPS = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10]

export class UsageChart {
  #parent

  constructor(parent) {
    this.#parent = parent
  }

  /**
   * @param step `day` or `month`, which `times` are
   * @param parts [{ name, total, byTime }], the largest first; `name` '' for what is not divided
   * @param what is drawn, in a word
   * @param amount writes a value
   */
  show({ step, times, parts, what, amount }) {
    const known = times.filter(time => parts.some(({ byTime }) => byTime.has(time)))
    const totals = new Map(
      known.map(time => [time, parts.reduce((sum, { byTime }) => sum + (byTime.get(time) ?? 0), 0)]),
    )
    const most = Math.max(0, ...totals.values())
    const total = parts.reduce((sum, part) => sum + part.total, 0)
    if (most === 0) {
      const words = parts.length === 0 ? 'Nothing was used in this time.' : `No ${what.toLowerCase()} in this time.`
      this.#parent.replaceChildren(h('p', { class: 'muted' }, words))
      return
    }
    const top = topOf(most)
    const [first, last] = [times[0], times.at(-1)]
    const named = parts.filter(({ name }) => name !== '')
    const label = [
      `${what} by ${step} from ${first} to ${last}: ${amount(total)}, at most ${amount(most)} a ${step}`,
      ...named.map(part => `${part.name} ${amount(part.total)}`),
    ].join('; ')
    const width = WIDTH / times.length
    const drawn = svg(
      'svg',
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
      ...[0, 0.5, 1].map(part => svg('line', { x1: 0, x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT })),
      ...times.flatMap((time, i) => bar(time, parts, { left: i * width, width, top })),
    )
    const when = h('b')
    const all = h('b')
    const values = named.map(() => h('b'))
    const tell = time => {
      const of = ({ total: whole, byTime }) => (time === null ? whole : byTime.get(time))
      text(when, time ?? (first === last ? first : `${first} to ${last}`))
      text(all, written(time === null ? total : totals.get(time)))
      values.forEach((node, i) => void text(node, written(of(named[i]))))
    }
    const written = value => (value === undefined ? '–' : amount(value))
    tell(null)
    drawn.addEventListener('pointermove', event => {
      const { left, width: shown } = drawn.getBoundingClientRect()
      tell(times[Math.min(times.length - 1, Math.max(0, Math.floor(((event.clientX - left) / shown) * times.length)))])
    })
    drawn.addEventListener('pointerleave', () => tell(null))
    const middle = times.length > 2 ? [h('span', {}, times[Math.floor(times.length / 2)])] : []
    const ends = first === last ? [h('span', {}, first)] : [h('span', {}, first), ...middle, h('span', {}, last)]
    this.#parent.replaceChildren(
      h(
        'figure',
        { class: 'bars' },
        h(
          'figcaption',
          {},
          h('p', {}, h('span', {}, when), ' ', h('span', { class: 'value' }, `${what} `, all)),
          h(
            'ul',
            {},
            ...named.map(({ name }, i) => h('li', {}, h('i', { class: `swatch part-${i}` }), `${name} `, values[i])),
          ),
        ),
        h(
          'div',
          { class: 'drawn' },
          h(
            'p',
            { class: 'scale', 'aria-hidden': 'true' },
            ...[1, 0.5, 0].map(part => h('span', {}, amount(top * part))),
          ),
          drawn,
          h('p', { class: 'ends', 'aria-hidden': 'true' }, ...ends),
        ),
      ),
    )
  }
}

/** The parts of a bar, the largest of the whole time at the bottom. */
function bar(time, parts, { left, width, top }) {
  let above = HEIGHT
  return parts.flatMap(({ byTime }, i) => {
    const height = ((byTime.get(time) ?? 0) / top) * HEIGHT
    if (height <= 0) return []
    above -= height
    const [x, y] = [left + (width * (1 - BAR)) / 2, Math.max(0, above)]
    const size = { width: (width * BAR).toFixed(2), height: height.toFixed(2) }
    return [svg('rect', { class: `part-${i}`, x: x.toFixed(2), y: y.toFixed(2), ...size })]
  })
}

/** A round number that is at least `most`. */
function topOf(most) {
  const power = 10 ** Math.floor(Math.log10(most))
  return power * TOPS.find(step => step * power >= most * (1 - 1e-9))
}
