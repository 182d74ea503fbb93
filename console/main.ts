/** `npm run console [-- --config FILE]`: runs a console until a signal ends it. */
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { ConfigFault, isTrial, loadConfig } from './config.ts'
import { openConsole } from './console.ts'

const HELP = `npm run console [-- --config FILE]   starts the console; FILE is console.yaml unless it is named
npm run console -- --check           checks the file and ends
`

export async function main(args: readonly string[]): Promise<void> {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: { config: { type: 'string' }, check: { type: 'boolean' }, help: { type: 'boolean' } },
    })
    if (values.help) return void process.stdout.write(HELP)
    const config = loadConfig(values.config ?? 'console.yaml')
    if (values.check) return void process.stdout.write('the configuration is fine\n')
    const opened = await openConsole(config)
    const end = once(async () => {
      // A request that does not end does not hold it for ever.
      setTimeout(() => process.exit(1), 10_000).unref()
      await opened.close()
      process.exit(0)
    })
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, end)
    endWithLauncher(end)
    const printed = isTrial(config) ? 'No mail server is set: mail, with links for signing in, is printed here.\n' : ''
    process.stdout.write(`console on ${config.url}\n${printed}`)
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException
    const cure = code === 'EADDRINUSE' ? '; another process has the address: change listen in console.yaml' : ''
    process.stderr.write(error instanceof ConfigFault ? `${message}\n` : `console: ${message}${cure}\n`)
    process.exit(1)
  }
}

function once(work: () => Promise<void>): () => void {
  let begun = false
  return () => {
    if (begun) return
    begun = true
    void work()
  }
}

/** The launcher passes signals on, but not SIGKILL: nobody would end this process then. */
function endWithLauncher(end: () => void): void {
  const parent = Number(process.env['SLUICE_PARENT'])
  if (!parent || process.ppid !== parent) return
  setInterval(() => process.ppid !== parent && end(), 1000).unref()
}

if (process.argv[1] === join(import.meta.dirname, 'main.ts')) await main(process.argv.slice(2))
