/** The tables, the plot and the model of docs/performance.md, made from the measured figures alone. */
import { show, table } from '../results.ts'
import { dimensions } from './dimensions.ts'
import { type Fit, fit } from './fit.ts'

export interface Growth {
  points: { n: number; micros: number; mib: number }[]
  cpu: Fit
  memory: Fit
  /** YYYY-MM-DD, where it was measured without the others (`--only`). */
  day?: string
}

/** What a request costs a gateway on Redis, and the Redis server, in microseconds of CPU time. */
export interface Cost {
  gateway: number
  redis: number
  /** Bytes of request and answer, with their heads, on one side of the gateway. */
  bytes: number
}
export interface Basis {
  buffered: Cost
  /** A streamed reply of 200 events. */
  streamed: Cost
  /** Appending one row to the ledger's stream, as Redis counts it, in microseconds. */
  row: number
}

export interface Results {
  machine: string
  node: string
  day: string
  growth: Record<string, Growth>
  basis?: Basis
}

export function growthOf(points: Growth['points']): Growth {
  return {
    points,
    cpu: fit(points.map(({ n, micros }) => ({ n, cost: micros }))),
    memory: fit(points.map(({ n, mib }) => ({ n, cost: mib }))),
  }
}

const verdict = ({ verdict, exponent, growth }: Fit): string =>
  verdict === 'flat' ? `flat (× ${show(growth)})` : `${verdict}, exponent ${exponent.toFixed(2)} (× ${show(growth)})`

/** The table of one dimension. */
export function summary(name: string, { points, cpu, memory, day }: Growth): string {
  const rows = points.map(({ n, micros, mib }) => [n.toLocaleString('en'), show(micros), show(mib)])
  const lines = [`CPU time: ${verdict(cpu)}.`, `Memory: ${verdict(memory)}.`]
  if (day !== undefined) lines.push(`Measured by itself on ${day}.`)
  return `${table([name, 'CPU µs/request', 'memory MiB'], rows)}\n\n${lines.join(' ')}`
}

const BEGIN = '<!-- written by npm run bench:growth -->'
const END = '<!-- end of what is written -->'

/** @param text the page of before @returns the page with the present figures between its markers */
export function page(text: string, results: Results): string {
  const begin = text.indexOf(BEGIN)
  const end = text.indexOf(END)
  if (begin < 0 || end < begin) throw new Error(`docs/performance.md has lost its markers:\n${BEGIN}\n${END}`)
  const measured = dimensions.filter(({ name }) => results.growth[name])
  const overview = measured.map(({ name, unit }) => {
    const { points, cpu, memory } = results.growth[name]!
    const range = `${points[0]!.n.toLocaleString('en')} to ${points.at(-1)!.n.toLocaleString('en')}`
    return [`**${name}**: ${unit}`, range, verdict(cpu), verdict(memory)]
  })
  const parts = [
    `Measured on ${results.day}, ${results.machine}, Node ${results.node.slice(1)}.`,
    table(['', 'sizes', 'CPU time of a request', 'memory of the process'], overview),
    '![CPU time and memory by size, as multiples of those of the smallest size](performance-growth.svg)',
    ...measured.map(({ name }) => `### By ${name}\n\n${summary(name, results.growth[name]!)}`),
    ...model(results),
  ]
  return `${text.slice(0, begin)}${BEGIN}\n\n${parts.join('\n\n')}\n\n${text.slice(end)}`
}

/** This share of a core, of a worker or of Redis, is used. */
const USE = 0.7
const REPLY_SECONDS = 10
const CORES = 32
/** The other cores of a machine are for the system and its network. */
const WORKERS = 30
const RATES = [1000, 10_000, 100_000, 1_000_000]

/** What a deployment of a given rate needs, computed from the measured costs. */
function model({ basis, growth }: Results): string[] {
  const streams = growth['streams']?.memory
  if (!basis || !streams) return []
  const { buffered, streamed, row } = basis
  const perWorker = ({ gateway }: Cost) => (USE * 1e6) / gateway
  const perPrimary = ({ redis }: Cost) => (USE * 1e6) / redis
  const kib = streams.each * 1024
  const whole = (value: number) => Math.ceil(value).toLocaleString('en')
  const rows = RATES.map(rate => {
    const workers = rate / perWorker(streamed)
    const open = rate * REPLY_SECONDS
    const gib = (Math.ceil(workers) * streams.fixed + open * streams.each) / 1024
    return [
      rate.toLocaleString('en'),
      whole(rate / perWorker(buffered)),
      whole(workers),
      whole(workers / WORKERS),
      open.toLocaleString('en'),
      whole(gib),
      whole(rate / perPrimary(streamed)),
      show((2 * 8 * rate * streamed.bytes) / 1e9),
    ]
  })
  const header = [
    'requests/s',
    'workers, buffered',
    'workers, streamed',
    `machines of ${CORES} cores`,
    'open streams',
    'memory GiB',
    'Redis primaries',
    'Gbit/s',
  ]
  const top = RATES.at(-1)!
  const arithmetic = [
    ['', 'buffered', 'streamed, 200 events'],
    ['CPU µs of a worker for a request, on Redis', show(buffered.gateway), show(streamed.gateway)],
    [`requests/s of a worker: ${USE} × 1,000,000 / that`, show(perWorker(buffered)), show(perWorker(streamed))],
    ['CPU µs of Redis for a request', show(buffered.redis), show(streamed.redis)],
    [`requests/s of a primary: ${USE} × 1,000,000 / that`, show(perPrimary(buffered)), show(perPrimary(streamed))],
    ['bytes of a request and its answer', show(buffered.bytes), show(streamed.bytes)],
  ]
  return [
    '### The limit of one process',
    `One process uses one core for its exchanges. At ${USE * 100} % of it:`,
    table(arithmetic[0]!, arithmetic.slice(1)),
    `An open stream takes ${show(kib)} KiB beside ${show(streams.fixed)} MiB of the process, so that 1 GiB holds ${whole((1024 - streams.fixed) / streams.each)} open\nstreams.`,
    '### Beyond one process',
    `For streamed replies of 200 events in ${REPLY_SECONDS} s: workers are the rate divided by that of a worker; ${WORKERS} workers run on a\nmachine of ${CORES} cores; open streams are the rate × ${REPLY_SECONDS} s; memory is workers × ${show(streams.fixed)} MiB + open streams × ${show(kib)} KiB;\nprimaries are the rate divided by that of a primary; the network carries each byte twice.`,
    table(header, rows),
    `Read the last row like this: ${top.toLocaleString('en')} / ${show(perWorker(streamed))} = ${whole(top / perWorker(streamed))} workers,\n/ ${WORKERS} = ${whole(top / perWorker(streamed) / WORKERS)} machines, and ${top.toLocaleString('en')} / ${show(perPrimary(streamed))} = ${whole(top / perPrimary(streamed))} primaries.`,
    [
      'What does not divide:',
      '',
      `- The limits of one organization are in one slot of the cluster, so one organization gets at most what one primary\n  serves: ${show(perPrimary(streamed))} requests/s.`,
      `- The ledger is one stream of Redis, and a row takes ${show(row)} µs there: at most ${show((USE * 1e6) / row)} rows/s for one store.\n  Beyond it, split the organizations over several stores, each with its own gateways.`,
    ].join('\n'),
  ]
}

const PANEL = { width: 215, height: 150, left: 40, top: 26, gap: 12 }
const COLUMNS = 4

/**
 * A panel for each dimension, with logarithmic axes: multiples of the cost at the smallest size. A dashed line is what
 * doubles with the size.
 */
export function plot(results: Results): string {
  const panels = dimensions.filter(({ name }) => results.growth[name])
  const rows = Math.ceil(panels.length / COLUMNS)
  const width = COLUMNS * (PANEL.width + PANEL.gap)
  const height = rows * (PANEL.height + PANEL.gap) + 30
  const drawn = panels.map(({ name }, i) => {
    const x = (i % COLUMNS) * (PANEL.width + PANEL.gap)
    const y = Math.floor(i / COLUMNS) * (PANEL.height + PANEL.gap) + 24
    return `<g transform="translate(${x} ${y})">${panel(name, results.growth[name]!)}</g>`
  })
  const style = `text{font:11px system-ui,sans-serif;fill:#57606a}.title{font-weight:600;fill:#24292f}
.axis{stroke:#8c959f;stroke-width:1}.grid{stroke:#8c959f;stroke-opacity:.3}
.linear{stroke:#8c959f;stroke-dasharray:4 3;fill:none}.cpu{stroke:#0969da;fill:none;stroke-width:2}
.memory{stroke:#bc4c00;fill:none;stroke-width:2}.cpu-dot{fill:#0969da}.memory-dot{fill:#bc4c00}
@media(prefers-color-scheme:dark){text{fill:#9da7b3}.title{fill:#e6edf3}.cpu{stroke:#58a6ff}.cpu-dot{fill:#58a6ff}
.memory{stroke:#f0883e}.memory-dot{fill:#f0883e}}`
  const key = `<line class="cpu" x1="40" x2="64" y1="10" y2="10"/><text x="70" y="14">CPU time of a request</text>
<line class="memory" x1="210" x2="234" y1="10" y2="10"/><text x="240" y="14">memory</text>
<line class="linear" x1="300" x2="324" y1="10" y2="10"/><text x="330" y="14">as much more as the size</text>`
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img">
<title>Multiples of the cost at the smallest size</title>
<style>${style}</style>
${key}
${drawn.join('\n')}
</svg>
`
}

function panel(name: string, { points }: Growth): string {
  const { width, height, left, top } = PANEL
  const right = width - 8
  const bottom = height - 22
  const sizes = points.map(({ n }) => n)
  const [from, to] = [Math.log10(sizes[0]!), Math.log10(sizes.at(-1)!)]
  const series = (of: 'micros' | 'mib') => points.map(point => point[of] / points[0]![of])
  const most = Math.max(1, Math.ceil(Math.log10(Math.max(...series('micros'), ...series('mib')))))
  const x = (n: number) => round(left + ((Math.log10(n) - from) / (to - from)) * (right - left))
  const y = (times: number) => round(bottom - (Math.log10(Math.max(times, 0.5)) / most) * (bottom - top))
  const line = (of: 'micros' | 'mib', kind: string) => {
    const at = series(of).map((times, i) => `${x(sizes[i]!)},${y(times)}`)
    const dots = at.map(place => `<circle class="${kind}-dot" r="2.5" cx="${place.replace(',', '" cy="')}"/>`)
    return `<polyline class="${kind}" points="${at.join(' ')}"/>${dots.join('')}`
  }
  const grid = Array.from({ length: most + 1 }, (_, i) => {
    const times = 10 ** i
    const label = `<text x="${left - 4}" y="${y(times) + 4}" text-anchor="end">×${times.toLocaleString('en')}</text>`
    return `<line class="grid" x1="${left}" x2="${right}" y1="${y(times)}" y2="${y(times)}"/>${label}`
  })
  const ends = [sizes[0]!, sizes.at(-1)!].map(
    (n, i) =>
      `<text x="${x(n)}" y="${bottom + 15}" text-anchor="${i === 0 ? 'start' : 'end'}">${n.toLocaleString('en')}</text>`,
  )
  const reach = Math.min(10 ** most, sizes.at(-1)! / sizes[0]!)
  const linear = `<line class="linear" x1="${x(sizes[0]!)}" y1="${y(1)}" x2="${x(sizes[0]! * reach)}" y2="${y(reach)}"/>`
  const axes = `<line class="axis" x1="${left}" x2="${right}" y1="${bottom}" y2="${bottom}"/>`
  const title = `<text class="title" x="${left}" y="14">${name}</text>`
  return [title, ...grid, axes, linear, line('micros', 'cpu'), line('mib', 'memory'), ...ends].join('')
}

const round = (value: number): number => Math.round(value * 10) / 10
