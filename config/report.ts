/** Collects all faults of a configuration with their positions, so that one run shows them all. */
import type { Position } from '../core/engine/chain.ts'
import type { Arrives, Schema } from '../core/tools/vocabulary.ts'
import type { ConfigError, ConfigSource, Path } from './source.ts'
import { validate } from './validate.ts'

export class Report {
  readonly source: ConfigSource
  readonly errors: ConfigError[] = []
  readonly warnings: ConfigError[] = []

  constructor(source: ConfigSource) {
    this.source = source
    this.errors.push(...source.errors)
    this.warnings.push(...source.unset)
  }

  push(error: ConfigError): void {
    this.errors.push(error)
  }

  error(path: Path, message: string, part: 'key' | 'value' = 'value'): void {
    const at = this.source.position(path, part)
    // A placeholder is no valid address or number. The real fault is then the variable that is not set, so that one is
    // reported.
    this.errors.push(this.#unset(at) ?? { ...at, message })
  }

  warn(path: Path, message: string, part: 'key' | 'value' = 'value'): void {
    const at = this.source.position(path, part)
    if (!this.#unset(at)) this.warnings.push({ ...at, message })
  }

  #unset({ file, line, column }: Position): ConfigError | undefined {
    return this.source.unset.find(e => e.file === file && e.line === line && e.column === column)
  }

  /**
   * Checks the value at `path` and returns it with defaults filled and units converted; null after its faults were
   * reported.
   * @param name what messages call the value
   */
  check<S extends Schema>(schema: S, value: unknown, path: Path, name: string): Arrives<S> | null {
    const result = validate(schema, value, {
      name,
      fromEnvironment: at => this.source.fromEnvironment([...path, ...at]),
      written: at => this.source.written([...path, ...at]),
    })
    if (!result.problems) return result.value as Arrives<S>
    for (const problem of result.problems) this.error([...path, ...problem.path], problem.message, problem.part)
    return null
  }

  /** Whether the value is a mapping; if not, that is reported. */
  mapping(value: unknown, path: Path): value is Record<string, unknown> {
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return true
    this.error(path, `${path.join('.')} must be a mapping (name: …)`, 'key')
    return false
  }

  /** The problems in the order of the files, without repeated ones (same position and message). */
  sorted(problems: ConfigError[]): ConfigError[] {
    const seen = new Set<string>()
    const order = (e: ConfigError) => this.source.names.indexOf(e.file)
    return problems
      .filter(e => {
        const id = `${e.file}:${e.line}:${e.column}:${e.message}`
        return !seen.has(id) && seen.add(id)
      })
      .sort((a, b) => order(a) - order(b) || a.line - b.line || a.column - b.column)
  }
}
