/** Records what a running gateway reports about a configuration that it must load: every error and warning, as text. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { type Book, type Case, marked } from './book.ts'
import { Gateway } from './gateway.ts'
import { Normaliser } from './normalise.ts'

/**
 * A case of a book of configurations. The file is its input, or `gateways/BASE.yaml` with one `line` replaced by
 * `text`.
 */
interface Configuration extends Case {
  base?: string
  line?: number
  text?: string
  /** Other files in the same folder. */
  files?: Record<string, string>
}

const NOWHERE = '127.0.0.1:9'

export async function checkConfigurations(book: Book): Promise<string[][]> {
  const gateway = await Gateway.start('small', NOWHERE)
  const normaliser = new Normaliser([[`${gateway.folder}/`, '']])
  try {
    const recordings: string[][] = []
    for (const { case: one } of book.entries) {
      const { input, base, line, text, files = {} } = one as Configuration
      for (const [name, content] of Object.entries(files)) {
        mkdirSync(dirname(join(gateway.folder, name)), { recursive: true })
        writeFileSync(join(gateway.folder, name), content)
      }
      writeFileSync(gateway.file, base === undefined ? `${input}\n` : changed(base, line!, text!))
      const said = await gateway.reload()
      recordings.push(said.flatMap(({ level, msg }) => marked(`${level}:`, normaliser.text(msg))))
      for (const name of Object.keys(files)) rmSync(join(gateway.folder, name))
    }
    return recordings
  } finally {
    await gateway.stop()
    gateway.remove()
  }
}

function changed(base: string, line: number, text: string): string {
  const lines = readFileSync(join(import.meta.dirname, '..', 'gateways', `${base}.yaml`), 'utf8').split('\n')
  lines[line - 1] = text
  return lines.join('\n')
}
