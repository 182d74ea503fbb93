/** Runs test files once more inside a test, on another Node or beside another server. */
import { spawn } from 'node:child_process'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')

export interface InnerRun {
  status: number | null
  passed: number
  /** What failed, and the sums. */
  told: string
}

/**
 * One file after the other: the runner of the test that asks for it has others beside it.
 * @param node the binary
 * @param files as seen from the root of the checkout
 */
export async function innerRun(
  node: string,
  files: readonly string[],
  env: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<InnerRun> {
  const args = ['--test', '--test-concurrency=1', '--test-timeout=300000', '--test-reporter=tap', ...files]
  const child = spawn(node, args, { cwd: ROOT, env, signal })
  let [stdout, stderr] = ['', '']
  child.stdout.setEncoding('utf8').on('data', piece => {
    stdout += piece
  })
  child.stderr.setEncoding('utf8').on('data', piece => {
    stderr += piece
  })
  const status = await new Promise<number | null>((resolve, reject) =>
    child.once('close', resolve).once('error', reject),
  )
  const lines = stdout.split('\n').filter(line => /^# |^\s*not ok|error: /.test(line))
  const passed = Number(/^# pass (\d+)$/m.exec(stdout)?.[1])
  return { status, passed, told: `${lines.join('\n')}\n${stderr}` }
}
