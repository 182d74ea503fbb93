/**
 * Attacks a running gateway as a hostile customer, a hostile provider or a stranger would, on loopback only, and checks
 * the promises of docs/security.md. The exit code is 1 when one was broken. It ends by itself.
 *
 *   npm run attack                                  about a minute
 *   npm run attack -- --minutes 10 --seed 7         the same cases for the same seed, as far as time allows
 *   npm run attack -- --only floods,crash           some parts
 *   npm run attack -- --floods digits,ages          some kinds of floods, and no other part
 */
import { parseArgs } from 'node:util'
import { busyWith, machine } from '../../bench/machine.ts'
import { Random } from '../random.ts'
import { bodies } from './bodies.ts'
import { Breaches, PROMISES } from './breaches.ts'
import { crash } from './crash.ts'
import { floods, KINDS } from './floods.ts'
import { commit, type Part, type Result, startUpstream } from './kit.ts'
import { large } from './large.ts'
import { sockets } from './sockets.ts'
import { tenants } from './tenants.ts'
import { upstreams } from './upstreams.ts'
import { work } from './work.ts'

/** Each part with its share of the time. */
const PARTS: Record<string, [share: number, run: (part: Part) => Promise<Result[] | Result>]> = {
  bodies: [0.08, bodies],
  large: [0.12, large],
  sockets: [0.1, sockets],
  tenants: [0.07, tenants],
  upstreams: [0.08, upstreams],
  crash: [0.14, crash],
  floods: [0.41, floods],
  // A few seconds, however long the others run.
  work: [0, work],
}

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '1' },
    seed: { type: 'string' },
    only: { type: 'string' },
    floods: { type: 'string' },
    json: { type: 'boolean' },
  },
})
const minutes = Number(values.minutes)
const seed = values.seed === undefined ? Date.now() % 1_000_000 : Number(values.seed)
const kinds = values.floods?.split(',') ?? Object.keys(KINDS)
const names = values.only?.split(',') ?? (values.floods === undefined ? Object.keys(PARTS) : ['floods'])
const unknown = [...names.filter(name => !(name in PARTS)), ...kinds.filter(kind => !(kind in KINDS))]
if (!(minutes > 0) || !Number.isInteger(seed) || unknown.length > 0) {
  console.error(`--minutes is a number above 0, --seed an integer, --only some of ${Object.keys(PARTS).join(', ')}`)
  console.error(`--floods some of ${Object.keys(KINDS).join(', ')}`)
  process.exit(2)
}
if (process.platform !== 'linux') {
  console.error('the attack reads memory and process ids from /proc: it needs Linux')
  process.exit(2)
}

const breaches = new Breaches()
const results: Result[] = []
const simulator = await startUpstream()
console.error(`attack: ${minutes} min, seed ${seed}, commit ${commit()}, ${machine}, load average ${busyWith()}`)
for (const [i, name] of names.entries()) {
  console.error(`${name} …`)
  const [share, run] = PARTS[name]!
  // Each part has random choices of its own, so that one alone is as it is among all.
  const random = new Random(seed + 1_000_003 * Object.keys(PARTS).indexOf(name))
  try {
    results.push(...[await run({ random, breaches, budgetMs: minutes * 60_000 * share, simulator, kinds })].flat())
  } catch (error) {
    breaches.add(name, 'crash', `part ${i + 1} could not go on`, String((error as Error).stack))
  }
}

if (values.json) console.log(JSON.stringify({ seed, minutes, results, breaches: breaches.all }))
else report()
process.exit(breaches.all.length > 0 ? 1 : 0)

function report(): void {
  const round = (value: number | undefined, digits = 0) => value?.toFixed(digits) ?? ''
  const rows = results.map(({ part, cases, loopMs, residentMib, p99Ratio, victim, note }) => [
    part,
    String(cases),
    round(loopMs),
    round(residentMib),
    round(p99Ratio, 2),
    victim ? `${victim[0]}/${victim[1]}` : '',
    note,
  ])
  const head = ['part', 'cases', 'loop ms', 'memory MiB', 'p99 ratio', 'victim', 'note']
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map(row => row[i]!.length)))
  const line = (row: string[]) =>
    row.map((cell, i) => (i % 6 === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('  ')
  console.log([head, ...rows].map(row => line(row).trimEnd()).join('\n'))
  const found = breaches.all
  console.log(found.length === 0 ? '\nno breach' : `\n${found.length} kinds of breaches`)
  for (const { part, promise, detail, times } of found)
    console.log(`- ${part}: ${PROMISES[promise]}\n    ${times} × ${detail.replaceAll(/\s+/g, ' ').slice(0, 400)}`)
  console.log(`\nrepeat with: npm run attack -- --minutes ${minutes} --seed ${seed}`)
}
