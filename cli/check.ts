import { parseArgs } from 'node:util'
import type { ConfigError } from '../config/load.ts'
import { faultsOf, type Names, standingOf, twiceFaults, usedBy, usersOf } from '../config/retired.ts'
import type { GatewayConfig } from '../config/types.ts'
import { findServer, isLocal } from '../stores/local.ts'
import { configFile } from './arguments.ts'
import { dryRun } from './dry-run.ts'
import { Holders } from './holders.ts'
import type { Verb } from './main.ts'
import { listing, loadOrFail, storeFailure, tellWarnings } from './problems.ts'
import { Failure } from './terminal.ts'

const HELP = `Usage: sluice check [FILE] [--strict] [--store]

Checks a configuration (default gateway.yaml) the way start-up does: text,
references, plugin options, chains; every plugin is created. Nothing listens
and nothing is stored. All faults are told at once, each with its place and
its cure; warnings do not fail.

  --strict   a variable that is not set is a fault, as it is for \`start\`;
             without it a warning, so that providers' keys need not be here
  --store    also asks the store which plans and models its accounts name:
             one that the file does not have is a fault, unless it stands
             under retired, and so is an organization in both places. A start
             goes on without it, and these accounts get 503. As \`sluice org\`
             does, this brings the store up to date for this release
  --config FILE   the same as FILE

Exit code: 0 it is good, 1 it is not, 2 called wrongly.
`

export const check: Verb = {
  summary: 'Checks a configuration.',
  help: HELP,
  async run(args, terminal) {
    const options = { config: { type: 'string' }, strict: { type: 'boolean' }, store: { type: 'boolean' } } as const
    const { values, positionals } = parseArgs({ args, options, allowPositionals: true })
    const file = configFile(values.config, positionals)
    const { config, plugins, warnings: loaded } = await loadOrFail(file, !values.strict)
    const { chains, warnings: built, close } = await dryRun(config, plugins)
    await close()
    const warnings = [...loaded, ...built]
    if (values.store) warnings.push(...(await checkStore(file, config)))
    tellWarnings(warnings, terminal)
    if (isLocal(config.store.url)) checkServer()
    const count = (n: number, noun: string) => `${n} ${noun}${n === 1 ? '' : 's'}`
    const parts = [
      count(chains.size, 'pipeline'),
      count(config.routes.length, 'route'),
      count(Object.keys(config.models).length, 'model'),
      count(Object.keys(config.organizations).length, 'organization'),
    ]
    terminal.out(
      `${file} is good: ${parts.join(', ')}${warnings.length > 0 ? `; ${count(warnings.length, 'warning')}` : ''}.`,
    )
    return 0
  },
}

/**
 * @returns warnings of what is retired and in use
 * @throws Failure with every fault, or when the store does not answer
 */
async function checkStore(file: string, config: GatewayConfig): Promise<ConfigError[]> {
  const holders = new Holders(file, config)
  try {
    const store = await holders.store()
    if (!store) return []
    const faults = twiceFaults(await store.held(Object.keys(config.organizations)), config)
    const standing = standingOf(config)
    const names = { gone: { plan: [], model: [] } as Names, retired: { plan: [], model: [] } as Names }
    for (const { kind, name } of await store.names()) {
      const of = standing(kind, name)
      if (of !== 'there') names[of][kind].push(name)
    }
    for (const list of [...Object.values(names.gone), ...Object.values(names.retired)]) list.sort()
    faults.push(...faultsOf(await usersOf(store, names.gone), config))
    if (faults.length > 0) throw new Failure(listing(file, faults))
    return (await usersOf(store, names.retired)).map(user => ({
      ...config.retired.at[user.kind === 'plan' ? 'plans' : 'models'],
      message: `${usedBy(user)}: it is retired`,
    }))
  } catch (error) {
    throw storeFailure(error)
  } finally {
    await holders.close()
  }
}

function checkServer(): void {
  try {
    findServer()
  } catch (error) {
    throw storeFailure(error)
  }
}
