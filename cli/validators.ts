/**
 * Compiles the validators that a gateway of built-in plugins needs, into the folder that the image and the package ship
 * with, or into FOLDER. A start that finds them there compiles nothing and writes nothing
 * (core/tools/validators/read.ts). Run: npm run validators [-- FOLDER]
 */
import { rmSync } from 'node:fs'
import { knownSchemas } from '../config/load.ts'
import { namesOf } from '../config/schema.ts'
import { optionValidators } from '../config/validate.ts'
import { BROUGHT_ALONG, writeValidators } from '../core/tools/validators/read.ts'
import { catalog } from '../plugins/index.ts'
import { dialects } from '../providers/index.ts'
import { requestValidators } from '../surfaces/check.ts'
import { surfaces } from '../surfaces/index.ts'

const [folder = BROUGHT_ALONG] = process.argv.slice(2)
const requests = Object.values(surfaces).flatMap(({ requestSchema, shapes = [requestSchema], socket }) =>
  socket ? [...shapes, socket.surface.requestSchema] : shapes,
)
const names = namesOf(dialects, Object.keys(surfaces))
rmSync(folder, { recursive: true, force: true })
writeValidators([...knownSchemas(catalog, names).map(optionValidators), ...requests.map(requestValidators)], folder)
