/**
 * Writes validators as source text. Only the modules that define schemas with their own keywords and formats use it.
 */
import type { Ajv } from 'ajv'
import standalone from 'ajv/dist/standalone/index.js'

/**
 * The text that `ValidatorsText` of read.ts describes.
 * @param ajv made with `code.source`; it knows each schema by its name
 * @param names the names of the schemas
 * @param scope the names that the text refers to
 */
export function standaloneText(ajv: Ajv, names: readonly string[], scope: readonly string[]): string {
  const text = standalone.default(ajv, Object.fromEntries(names.map((name, i) => [`validator${i}`, name])))
  return `(function validators(require, scope) {
'use strict'
const exports = {}
const { ${scope.join(', ')} } = scope
${text}
return [${names.map((_, i) => `exports.validator${i}`).join(', ')}]
})`
}
