/** The option of plugins that name a backend of `models`. */

export const BACKEND = { type: 'string', minLength: 1, description: 'A backend of `models`, as PROVIDER/MODEL.' }

type Models = Readonly<Record<string, { readonly backends: readonly { readonly id: string }[] }>>

/** @returns the fault of an option that names a backend which no model has */
export function faultsOfBackend(backend: string, models: Models): string[] {
  const known = Object.values(models).flatMap(({ backends }) => backends.map(({ id }) => id))
  if (known.includes(backend)) return []
  return [`no model has the backend '${backend}'; backends: ${[...new Set(known)].join(', ')}`]
}
