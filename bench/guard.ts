/**
 * `npm run bench:guard`: runs profiles 1, 3 and 11 for three minutes, and compares their ratios with those of the committed
 * results. It compares only ratios, because absolute figures are of one machine on one day. It writes nothing.
 */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { ensurePrograms } from './install.ts'
import { failures } from './lanes.ts'
import { pinning } from './machine.ts'
import { agents } from './profiles/agents.ts'
import { buffered } from './profiles/buffered.ts'
import { streamed } from './profiles/streamed.ts'
import { RESULTS, type Result, show, table } from './results.ts'

const HELP = `Usage: npm run bench:guard [-- --tolerance 0.15] [--rounds 3]

Compares ratios of profiles 1, 3 and 11 with the committed results, about three minutes.
A ratio below its reference by more than the tolerance is a regression: exit 1.
`

const { values } = parseArgs({
  options: {
    tolerance: { type: 'string', default: '0.15' },
    rounds: { type: 'string', default: '3' },
    help: { type: 'boolean', short: 'h' },
  },
})

process.exitCode = await main()
// Contenders that did not stop must not keep this process alive.
process.exit()

async function main(): Promise<number> {
  if (values.help) {
    console.log(HELP)
    return 0
  }
  const tolerance = Number(values.tolerance)
  const rounds = Number(values.rounds)
  if (!(tolerance > 0 && tolerance < 1 && Number.isInteger(rounds) && rounds > 0)) {
    console.error(HELP)
    return 2
  }
  if (ensurePrograms(['wrk']).size > 0) {
    console.error('bench: the load needs wrk')
    return 2
  }
  console.log(pinning)
  let regressed = false
  for (const profile of [buffered, streamed, agents]) {
    const reference = committed(profile.name)
    if (!reference) {
      console.error(`bench: no results of ${profile.name} to compare with: npm run bench first`)
      return 2
    }
    const contenders = ['sluice', 'uws-undici', 'nginx']
    const { ratios } = await profile.run({ rounds, contenders, quick: true })
    const rows = Object.entries(ratios).flatMap(([name, now]) => {
      const before = reference.ratios[name]
      if (before === undefined) return []
      const change = now / before - 1
      const worse = change < -tolerance
      regressed ||= worse
      return [
        [
          name,
          show(before),
          show(now),
          `${change < 0 ? '' : '+'}${(100 * change).toFixed(0)} %`,
          worse ? 'worse' : 'ok',
        ],
      ]
    })
    if (rows.length === 0) failures.push(`${profile.name}: no ratio of it could be compared`)
    console.log(`\n${table([`${profile.name}, more is better`, 'committed', 'now', 'change', ''], rows)}`)
  }
  for (const failure of failures) console.error(`! ${failure}`)
  if (regressed) console.log('\nWorse by more than the tolerance. Run it again on a quiet machine before believing it.')
  return regressed || failures.length > 0 ? 1 : 0
}

/** The committed results of a profile, because a run may have replaced the file. Without git: those of the file. */
function committed(name: string): Result | undefined {
  try {
    const text = execFileSync('git', ['show', `HEAD:bench/results/${name}.json`], {
      cwd: import.meta.dirname,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    return JSON.parse(text) as Result
  } catch {
    try {
      return JSON.parse(readFileSync(join(RESULTS, `${name}.json`), 'utf8')) as Result
    } catch {
      return undefined
    }
  }
}
