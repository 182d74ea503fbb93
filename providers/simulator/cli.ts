/** `sluice simulate`: runs the built-in upstream alone. */
import { parseArgs } from 'node:util'
import { startSimulator } from './server.ts'

const HELP = `Usage: sluice simulate [--port N] [--host H]

Runs the built-in upstream alone, until it is interrupted.

  --port N   port to listen on (default 8090; 0: any free one)
  --host H   address to listen on (default 127.0.0.1)
  --help     this text

It speaks /chat/completions, /responses, /messages and
/models/{model}:generateContent, with or without /v1 in front.
A prompt can direct it: [[sim: tokens 200; pace 20ms]].
providers/simulator/README.md lists all directives.
`

/** Runs until SIGINT or SIGTERM. @returns the exit code */
export async function runSimulate(args: readonly string[]): Promise<number> {
  let port: number
  let host: string
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        port: { type: 'string', default: '8090' },
        host: { type: 'string', default: '127.0.0.1' },
        help: { type: 'boolean', short: 'h' },
      },
    })
    if (values.help) {
      process.stdout.write(HELP)
      return 0
    }
    port = Number(values.port)
    host = values.host
    if (!Number.isInteger(port) || port < 0 || port > 65_535)
      throw new Error(`--port must be 0 to 65535, not '${values.port}'`)
  } catch (error) {
    process.stderr.write(`sluice simulate: ${(error as Error).message}\n\n${HELP}`)
    return 2
  }
  try {
    const simulator = await startSimulator({ port, host, keep: 10 })
    process.stdout.write(`The simulator listens on ${simulator.url}\n`)
    await new Promise<void>(resolve => {
      process.once('SIGINT', () => resolve())
      process.once('SIGTERM', () => resolve())
    })
    await simulator.close()
    return 0
  } catch (error) {
    process.stderr.write(`sluice simulate: ${(error as Error).message}\n`)
    return 1
  }
}
