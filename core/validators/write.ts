/** Validators as source text, for the modules that know their schemas' words. */
import type { Ajv } from 'ajv'
import standalone from 'ajv/dist/standalone/index.js'

/**
 * The text that `ValidatorsText` of read.ts speaks of.
 * @param ajv with `code.source`; knows each schema by its name
 * @param names of the schemas
 * @param scope names that the code refers to
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
