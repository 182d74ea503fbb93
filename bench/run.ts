/** `npm run bench`: see README.md. */
import { parseArgs } from 'node:util'
import { contenders } from './contenders/index.ts'
import { ensurePrograms } from './install.ts'
import { failures } from './lanes.ts'
import { busyWith, pinning } from './machine.ts'
import { profiles } from './profiles/index.ts'
import { agentRoutes, routes } from './requests.ts'
import { RESULTS, report, write } from './results.ts'

const HELP = `Usage: npm run bench -- [options]

Measures the gateway beside bare proxies and other gateways. About five minutes.

  --only NAME,…        profiles to run (sse is streamed); default all
  --rounds N           rounds of each measurement, default 3
  --seconds N          of one measurement; default 1 or 2, by profile
  --contenders NAME,…  instead of the profiles' own
  --out FOLDER         for the results, default bench/results
  --machine TEXT       how results name the machine, default its cores
  --client undici      profile 1 with undici in place of the gateway's own HTTP/1.1 client, in turns
                       with that; nothing is written
  --profile buffered|streamed|agents
                       where the gateway's CPU time goes, instead; see README.md
  --route NAME         for --profile: ${Object.keys({ ...routes, ...agentRoutes }).join(', ')}
  --store sqlite|redis for --profile
  --help

Profiles
${profiles.map((profile, i) => `  ${i + 1} ${profile.name.padEnd(11)} ${profile.title}`).join('\n')}

Contenders
  ${Object.keys(contenders).join(', ')}
`

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string' },
    contenders: { type: 'string' },
    out: { type: 'string', default: RESULTS },
    machine: { type: 'string' },
    client: { type: 'string' },
    profile: { type: 'string' },
    route: { type: 'string' },
    store: { type: 'string', default: 'sqlite' },
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
  const rounds = whole('rounds', values.rounds)
  const seconds = values.seconds === undefined ? undefined : whole('seconds', values.seconds)
  const chosen = names('contenders', values.contenders, Object.keys(contenders))
  const only = names(
    'only',
    values.only?.replace(/\bsse\b/, 'streamed'),
    profiles.map(profile => profile.name),
  )
  if (ensurePrograms(['wrk']).size > 0) return fail('the load needs wrk')
  if (values.profile !== undefined) {
    const { store, profile: kind } = values
    if (kind !== 'buffered' && kind !== 'streamed' && kind !== 'agents')
      return fail('--profile is buffered, streamed or agents')
    if (store !== 'sqlite' && store !== 'redis') return fail('--store is sqlite or redis')
    if (store === 'redis' && ensurePrograms(['redis-server']).size > 0) return fail('--store redis needs redis-server')
    const { profileGateway } = await import('./profile.ts')
    const known = kind === 'agents' ? agentRoutes : routes
    const route = known[values.route ?? Object.keys(known)[0]!]
    if (!route) return fail(`--route is one of ${Object.keys(known).join(', ')}`)
    console.log(await profileGateway({ kind, store, seconds: seconds ?? 5, route }))
    return 0
  }

  console.log(`${pinning}; node ${process.version}; ${rounds} rounds`)
  const load = busyWith()
  if (load > 0.3) console.log(`! this machine has other work (load ${load}): the figures are noise`)
  if (values.client !== undefined) {
    if (values.client !== 'undici') return fail('--client is undici: the own client is measured beside it')
    const { compareClients } = await import('./profiles/buffered.ts')
    console.log(await compareClients({ rounds, seconds }))
    return reported()
  }
  const began = performance.now()
  for (const profile of profiles) {
    if (only && !only.includes(profile.name)) continue
    console.log(`\n## ${profile.name}: ${profile.title}\n`)
    const options = { rounds, seconds, contenders: chosen }
    const result = await profile.run(options)
    console.log(report(result))
    if (Object.keys(result.lanes).length > 0) write(values.out, result, { ...options, machine: values.machine })
  }
  console.log(`\n${Math.round((performance.now() - began) / 1000)} s`)
  return reported()
}

/** Prints the failures of the run. @returns the exit code */
function reported(): number {
  if (failures.length === 0) return 0
  console.error(`\nWrong answers or lost measurements:\n${failures.map(text => `  ${text}`).join('\n')}`)
  return 1
}

function whole(option: string, text: string): number {
  const value = Number(text)
  if (!Number.isInteger(value) || value < 1) process.exit(fail(`--${option} takes a whole number from 1, not ${text}`))
  return value
}

function names(option: string, text: string | undefined, known: string[]): string[] | undefined {
  const list = text?.split(',')
  const unknown = list?.find(name => !known.includes(name))
  if (unknown !== undefined) process.exit(fail(`--${option}: no ${unknown}; there are ${known.join(', ')}`))
  return list
}

function fail(message: string): number {
  console.error(`bench: ${message}`)
  return 2
}
