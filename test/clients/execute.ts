/** Runs the program of a client. */
import { spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Installed } from './install.ts'

/** The longest time for all features of a program, and for one task of an agent, in milliseconds. */
export const TIMEOUT = 900_000

export interface Ran {
  readonly out: string
  readonly err: string
  readonly code: number | null
}

/** Runs a program to its end. */
export async function execute(
  [program, ...rest]: readonly string[],
  cwd: string,
  environment: Record<string, string>,
  timeout = TIMEOUT,
): Promise<Ran> {
  const child = spawn(program!, rest, { cwd, env: environment, stdio: ['ignore', 'pipe', 'pipe'], timeout })
  let [out, err] = ['', '']
  child.stdout.setEncoding('utf8').on('data', text => (out += text))
  child.stderr.setEncoding('utf8').on('data', text => (err += text))
  const code = await new Promise<number | null>(resolve => {
    child.once('error', error => {
      err += error.message
      resolve(null)
    })
    child.once('close', resolve)
  })
  return { out, err, code }
}

/** Kills what an agent left running, such as a server of its own, which would still write into its home. */
export function endAll(home: string): void {
  if (process.platform !== 'linux') return
  for (const id of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    try {
      if (readFileSync(`/proc/${id}/environ`, 'latin1').split('\0').includes(`HOME=${home}`))
        process.kill(Number(id), 'SIGKILL')
    } catch {
      // It has ended meanwhile.
    }
  }
}

/** An environment without keys and proxies of whoever runs this. */
export function environmentOf(installed: Installed, home: string): Record<string, string> {
  const { PATH = '', LANG = 'C.UTF-8' } = process.env
  const path = [installed.path, dirname(process.execPath), PATH].join(':')
  return { PATH: path, LANG, HOME: home, TERM: 'dumb', CI: '1', PYTHONDONTWRITEBYTECODE: '1', NO_COLOR: '1' }
}
