/** Puts a console together: database, mail, pages, listener. */
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import type { ConsoleConfig } from './config.ts'
import { openDatabase } from './db/database.ts'
import { type SendRequest, sender, tokenOfFile } from './gateway.ts'
import { startJobs } from './jobs.ts'
import { type Mailer, mailer } from './mail.ts'
import { PAGES } from './pages.ts'
import { newLink } from './people/links.ts'
import { someStaff } from './people/persons.ts'
import { loadAssets } from './views/assets.ts'
import { createApp } from './web/app.ts'
import type { Parts } from './web/visit.ts'

export interface Console {
  parts: Parts
  /** Where it listens. */
  port: number
  close(): Promise<void>
}

/** What a test puts in place of the real one. */
export interface Overrides {
  now?: () => number
  mail?: Mailer
  send?: SendRequest
  tell?: (line: string) => void
}

const FIRST_LIFE_MS = 3_600_000
/** How long an idle connection stays open; proxies close theirs after a minute. */
const IDLE_MS = 75_000

export async function openConsole(config: ConsoleConfig, overrides: Overrides = {}): Promise<Console> {
  const { now = Date.now, tell = line => process.stdout.write(`${line}\n`) } = overrides
  const { admin, token, token_file } = config.gateway
  const working = new Set<Promise<void>>()
  const db = await openDatabase(config.database)
  const parts: Parts = {
    ...{ config, db, now, tell },
    mail: overrides.mail ?? mailer(config.mail, tell),
    send: overrides.send ?? sender(admin, token_file === undefined ? () => token! : tokenOfFile(token_file, now)),
    assets: loadAssets(Object.assign({}, ...PAGES.map(({ assets }) => assets))),
    menu: PAGES.flatMap(({ menu }) => (menu ? [menu] : [])),
    later(work) {
      const done: Promise<void> = new Promise<void>(resolve => setImmediate(resolve))
        .then(work)
        .catch(error => tell(`console: ${error.stack ?? error}`))
        .finally(() => working.delete(done))
      working.add(done)
    },
  }
  const app = createApp(parts, PAGES)
  const { promise: listening, resolve, reject } = Promise.withResolvers<AddressInfo>()
  const server = serve({ fetch: app.fetch, hostname: config.host, port: config.port }, resolve)
  // Node closes idle connections after five seconds, which is sooner than proxies do: a request of theirs that meets
  // the end of a connection is a 502.
  if ('keepAliveTimeout' in server) server.keepAliveTimeout = IDLE_MS
  server.once('error', reject)
  const stopJobs = startJobs(parts)
  try {
    const { port } = await listening
    if (!(await someStaff(db))) await tellFirstLink(parts)
    return {
      ...{ parts, port },
      async close() {
        stopJobs()
        await new Promise<void>(done => {
          server.close(() => done())
          if ('closeIdleConnections' in server) server.closeIdleConnections()
        })
        await Promise.all(working)
        await parts.mail.close()
        await db.destroy()
      },
    }
  } catch (error) {
    stopJobs()
    await db.destroy()
    throw error
  }
}

/** While there is no staff, each start makes a new link, and the one before it ends. */
async function tellFirstLink({ db, config, now, tell }: Parts): Promise<void> {
  await db.deleteFrom('link').where('purpose', '=', 'first').execute()
  const link = { purpose: 'first', email: '', person: null, next: '/' } as const
  const secret = await newLink(db, link, now(), FIRST_LIFE_MS)
  tell(
    `Open this link to become the first member of staff. It works once, for an hour:\n  ${config.url}/first/${secret}`,
  )
}
