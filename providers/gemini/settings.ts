/** Settings for servers that speak the dialect with differences. */
import type { Backend, DialectSettings } from '../../core/ports/dialect.ts'
import { choice } from '../../core/tools/vocabulary.ts'
import { settingsOf } from '../dialect-settings.ts'

export const settings = {
  backend: {
    tool_schema: choice(
      ['json_schema', 'openapi'],
      "How the gemini dialect declares a tool's parameters: `json_schema` as the client wrote them (`parametersJsonSchema`); `openapi` for servers that know only the older `parameters`, whose words are fewer.",
      'json_schema',
    ),
  },
} satisfies DialectSettings

/** Whether the server knows only the older member for schemas, `parameters`, which takes an OpenAPI schema. */
export function takesOpenApi(backend: Backend): boolean {
  return settingsOf<typeof settings>(backend).backend.tool_schema === 'openapi'
}
