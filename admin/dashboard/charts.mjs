/**
 * The six charts. Each shows its present values as text above the drawing, or those under the pointer while it is on
 * the chart.
 */

import { h, text } from './dom.mjs'
import { count, ms, rate, shortClock } from './format.mjs'
import uPlot from './uplot.mjs'

const perSecond = value => (value === null ? '–' : `${rate(value)}/s`)

/** Steps of an axis of whole things: with halves among them, two lines had one label. */
export const WHOLE = [1, 2, 5]
  .flatMap(step => Array.from({ length: 8 }, (_, i) => step * 10 ** i))
  .sort((a, b) => a - b)

const CHARTS = [
  {
    title: 'Requests',
    format: perSecond,
    axis: rate,
    series: [
      ['ok', 'ok', 'blue'],
      ['refused', 'refused', 'amber'],
      ['failed', 'failed', 'red'],
      ['gone', 'left', 'violet'],
    ],
  },
  {
    title: 'Tokens',
    note: 'as exchanges end',
    format: perSecond,
    axis: count,
    incrs: WHOLE,
    series: [
      ['input', 'in', 'blue'],
      ['output', 'out', 'violet'],
    ],
  },
  {
    title: 'Open',
    format: value => (value === null ? '–' : count(value)),
    axis: count,
    incrs: WHOLE,
    series: [
      ['streams', 'streams', 'green'],
      ['exchanges', 'exchanges', 'blue'],
      ['connections', 'connections', 'grey'],
    ],
  },
  {
    title: 'Time to first byte',
    format: ms,
    axis: ms,
    series: [
      ['ttfb50', 'p50', 'green'],
      ['ttfb99', 'p99', 'amber'],
    ],
  },
  {
    title: 'Duration',
    format: ms,
    axis: ms,
    series: [
      ['duration50', 'p50', 'green'],
      ['duration99', 'p99', 'amber'],
    ],
  },
  {
    title: 'Event-loop delay',
    format: ms,
    axis: ms,
    series: [
      ['loop99', 'p99', 'violet'],
      ['loopMax', 'max', 'grey'],
    ],
  },
]

export const SERIES = CHARTS.flatMap(chart => chart.series.map(([name]) => name))

/** The values of all series in a snapshot. */
export function valuesOf({ live }) {
  return {
    ok: live.ok,
    refused: live.refused,
    failed: live.failed,
    gone: live.gone,
    input: live.input,
    output: live.output,
    streams: live.streams,
    exchanges: live.exchanges,
    connections: live.connections,
    ttfb50: live.ttfb.p50,
    ttfb99: live.ttfb.p99,
    duration50: live.duration.p50,
    duration99: live.duration.p99,
    loop99: live.loop.p99,
    loopMax: live.loop.max,
  }
}

const HEIGHT = 116
const sync = uPlot.sync('sluice')

export class Charts {
  #parent
  #history
  #charts = []
  seconds = 300

  constructor(parent, history) {
    this.#parent = parent
    this.#history = history
    this.build()
    new ResizeObserver(() => this.#resize()).observe(parent)
  }

  /** Draws the chart. Called again when the theme has changed, because a canvas does not follow the style sheet. */
  build() {
    for (const { plot } of this.#charts) plot.destroy()
    this.#parent.replaceChildren()
    this.#charts = CHARTS.map(spec => this.#chart(spec))
    this.draw()
  }

  draw() {
    for (const { spec, plot, show } of this.#charts) {
      const data = this.#history.window(
        spec.series.map(([name]) => name),
        this.seconds,
      )
      const end = data[0].at(-1) ?? Date.now() / 1000
      plot.batch(() => {
        plot.setData(data, false)
        plot.setScale('x', { min: end - this.seconds, max: end })
      })
      show()
    }
  }

  #resize() {
    for (const { plot, box } of this.#charts) {
      const width = box.clientWidth
      if (width > 0 && width !== plot.width) plot.setSize({ width, height: HEIGHT })
    }
  }

  #chart(spec) {
    const values = spec.series.map(() => h('b', {}, '–'))
    const legend = spec.series.map(([, label, colour], i) =>
      h('span', { class: 'value' }, h('i', { class: `swatch ${colour}` }), `${label} `, values[i]),
    )
    const box = h('div', { class: 'plot', role: 'img', 'aria-label': `${spec.title}, chart` })
    const title = h('h3', {}, spec.title)
    if (spec.note) title.append(' ', h('small', {}, spec.note))
    this.#parent.append(h('figure', { class: 'card chart' }, h('figcaption', {}, title, h('p', {}, ...legend)), box))

    const colours = new Map()
    const colour = name => {
      if (!colours.has(name)) colours.set(name, resolve(box, name))
      return colours.get(name)
    }
    const axis = {
      stroke: colour('muted'),
      grid: { stroke: colour('line'), width: 1 },
      ticks: { show: false },
      font: '11px system-ui',
    }
    const plot = new uPlot(
      {
        width: box.clientWidth || 300,
        height: HEIGHT,
        padding: [8, 28, 0, 0],
        legend: { show: false },
        cursor: { sync: { key: sync.key }, drag: { x: false, y: false }, points: { size: 5 }, y: false },
        scales: { x: { time: true }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [
          { ...axis, size: 22, space: 70, values: (_, ticks) => ticks.map(at => shortClock(at * 1000)) },
          {
            ...{ ...axis, size: 52, space: 28, values: (_, ticks) => ticks.map(spec.axis) },
            ...(spec.incrs && { incrs: spec.incrs }),
          },
        ],
        series: [
          {},
          ...spec.series.map(([, label, name], i) => ({
            label,
            stroke: colour(name),
            width: 1.5,
            // A line joins seconds that follow each other, and one alone is a dot: what lies between was not measured.
            spanGaps: false,
            points: { show: false, size: 4, fill: colour(name), filter: alone },
            fill: i === 0 ? resolve(box, name, 0.12) : undefined,
          })),
        ],
        hooks: { setCursor: [() => show()] },
      },
      this.#history.window(
        spec.series.map(([name]) => name),
        this.seconds,
      ),
      box,
    )
    function show() {
      const { idx } = plot.cursor
      values.forEach((node, i) => {
        const series = plot.data[i + 1]
        text(node, spec.format((idx === null || idx === undefined ? lastOf(series) : series[idx]) ?? null))
      })
    }
    return { spec, plot, box, show }
  }
}

/** The last value; for durations, that of the last second in which an exchange ended. */
function lastOf(series) {
  for (let i = series.length - 1; i >= Math.max(0, series.length - 10); i--) if (series[i] !== null) return series[i]
  return null
}

/** The points of a series that no line reaches. */
export function alone(plot, index) {
  const series = plot.data[index]
  const none = i => series[i] === null || series[i] === undefined
  return series.flatMap((value, i) => (value !== null && none(i - 1) && none(i + 1) ? [i] : []))
}

/** The present value of a colour of the style sheet. */
function resolve(node, name, alpha = 1) {
  node.style.color = `var(--${name})`
  const colour = getComputedStyle(node).color
  node.style.color = ''
  if (alpha === 1) return colour
  const [r, g, b] = colour.match(/[\d.]+/g)
  return `rgba(${r}, ${g}, ${b}, ${alpha})`
}
