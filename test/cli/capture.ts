/** Runs verbs in this process, on a configuration in a folder of its own. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { main } from '../../cli/main.ts'

export interface Ran {
  code: number
  out: string
  err: string
}

/** `sluice ARGS`, with what it printed. */
export async function sluice(...args: string[]): Promise<Ran> {
  const out: string[] = []
  const err: string[] = []
  const code = await main(args, { out: text => out.push(text), err: text => err.push(text), columns: undefined })
  return { code, out: out.join('\n'), err: err.join('\n') }
}

export const YAML = `# The gateway.
version: 1
web_search: { provider: simulator }
server: { listen: "127.0.0.1:0", admin: "127.0.0.1:0" }   # any free port
store: "sqlite::memory:"

pipelines:
  completions:
    # who calls
    - auth
    - validation
    - conversation
    - token-estimate
    - routing
    - admission
    - translation
    - upstream   # the terminal
    - usage-capture
    - header-stamp
  models: [auth, models, header-stamp]

routes:
  - { match: POST /v1/chat/completions, surface: chat, pipeline: completions }
  - { match: GET /v1/models, pipeline: models }

providers:
  local: { dialect: openai-chat, base_url: simulator }

models:
  eb1-preview: { context_window: 400000, price: { input: 1, output: 2 }, backends: [{ provider: local, model: m }] }

organizations:
  demo:
    plan: tier1
    keys:
      # tried out with this one
      - { id: key_demo, sha256: "f77894fdfa58e447c57e077eaa9708e8e009c84dc6aba2db80461275e9b85be7", status: active }   # sk-demo
  empty: { plan: tier1 }   # no keys yet
`

export function folder(t: TestContext, text: string = YAML): { dir: string; file: string; read(): string } {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-cli-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  const file = join(dir, 'gateway.yaml')
  writeFileSync(file, text)
  return { dir, file, read: () => readFileSync(file, 'utf8') }
}
