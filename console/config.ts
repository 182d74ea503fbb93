/** console.yaml: what it may say, and its check. */
import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { dirname, resolve } from 'node:path'
import { billersField, stripeField, tiersField } from './billing/config.ts'
import { isNetwork, Proxies } from './web/address.ts'
import { choice, duration, type Fault, group, list, optional, type Read, readYaml, text } from './yaml.ts'

const url = (expects: string, fallback?: string) => text({ pattern: /^https?:\/\/[^\s/]+/, expects, fallback })
const anyText = (expects: string, fallback?: string) => text({ expects, fallback })
/** As the gateway has them: they stand in headers and paths. */
export const ORGANIZATION_ID = /^[a-z0-9][a-z0-9-]{1,39}$/

/** Good for mail that is printed in a terminal: no mail server takes it. */
const LOCAL_SENDER = 'Sluice <console@localhost>'

/** The sections of the file. A page that needs one of its own adds it here. */
const FILE = group({
  listen: text({ pattern: /^\S+:\d{1,5}$/, expects: 'an address such as 127.0.0.1:8090', fallback: '127.0.0.1:8090' }),
  url: url('the address by which people reach it, such as https://console.example.com', 'http://127.0.0.1:8090'),
  name: anyText('the name of your service', 'Sluice'),
  database: text({
    pattern: /^(sqlite:|postgres(ql)?:\/\/)/,
    expects: 'sqlite:./data/console.db or postgres://USER@HOST/DATABASE',
    fallback: 'sqlite:./data/console.db',
  }),
  gateway: group({
    admin: url('the address of the admin listener', 'http://127.0.0.1:9090'),
    api: url('the address of the public APIs, with /v1', 'http://127.0.0.1:8080/v1'),
    token_file: optional(anyText('the path of server.admin.local_token of gateway.yaml')),
    token: optional(anyText('a token of `sluice admin-token` with --acts-for required')),
    staff_token: optional(anyText('a token of `sluice admin-token` with --actions organizations,plans,usage')),
  }),
  mail: group({
    smtp: optional(text({ pattern: /^smtps?:\/\//, expects: 'smtp://USER:PASSWORD@HOST:587 or smtps://…' })),
    from: anyText('the address that mail comes from', LOCAL_SENDER),
  }),
  signup: choice(['invite', 'waitlist', 'open'], 'invite'),
  model: anyText('the model in examples', 'eb1-preview'),
  plan: anyText('the plan that a new organization has', 'free'),
  billing: choice(['standard', 'prepaid'], 'standard'),
  first_organization: optional(
    group({
      id: text({ pattern: ORGANIZATION_ID, expects: 'lower case letters, digits and -' }),
      name: anyText('its name'),
      plan: anyText('its plan'),
    }),
  ),
  tiers: tiersField,
  stripe: stripeField,
  billers: billersField,
  sessions: group({ idle: duration('7d'), life: duration('30d') }),
  openid: list(
    group({
      // A session keeps by what somebody signed in. By a passkey, no code of an app is asked for (sign-in/index.ts).
      id: text({
        pattern: /^(?!(passkey|link)$)[a-z0-9-]{1,32}$/,
        expects: 'a word for its address: lower case letters, digits and -, and not passkey or link',
      }),
      name: anyText('its name on the button'),
      issuer: url('the address of the issuer'),
      client_id: anyText('the id of this client'),
      client_secret: anyText('the secret of this client'),
    }),
  ),
  proxies: list(
    text({
      pattern: { test: isNetwork },
      expects: 'the address of a proxy whose X-Forwarded-For is believed, such as 10.0.0.1, or a network: 10.0.0.0/8',
    }),
  ),
})

export type ConsoleConfig = Omit<Read<typeof FILE>, 'proxies'> & { host: string; port: number; proxies: Proxies }

export class ConfigFault extends Error {}

/**
 * Reads and checks a file. Paths in it are relative to its folder.
 * @throws ConfigFault whose message has a line for each fault: `console.yaml:4:9  what is wrong, and what to write`
 */
export function loadConfig(file: string, env = process.env): ConsoleConfig {
  let source: string
  try {
    source = readFileSync(file, 'utf8')
  } catch (error) {
    throw new ConfigFault(`${file}:1:1  cannot be read (${(error as NodeJS.ErrnoException).code}); give its path`)
  }
  return parseConfig(source, file, env)
}

export function parseConfig(source: string, file: string, env: NodeJS.ProcessEnv = {}): ConsoleConfig {
  const { value, faults } = readYaml(source, FILE, env)
  const config = faults.length === 0 ? completed(value, file) : null
  if (config) checkTogether(config, message => faults.push({ line: 1, column: 1, message }))
  faults.sort((a, b) => a.line - b.line || a.column - b.column)
  if (faults.length > 0) throw new ConfigFault(faults.map(fault => lineOf(file, fault)).join('\n'))
  return config!
}

const lineOf = (file: string, { line, column, message }: Fault) => `${file}:${line}:${column}  ${message}`

function completed(value: Read<typeof FILE>, file: string): ConsoleConfig {
  const near = (path: string) => resolve(dirname(file), path)
  const { database, gateway } = value
  const colon = value.listen.lastIndexOf(':')
  return {
    ...value,
    url: new URL(value.url).origin,
    host: value.listen.slice(0, colon).replace(/^\[|\]$/g, ''),
    port: Number(value.listen.slice(colon + 1)),
    proxies: new Proxies(value.proxies),
    database:
      database.startsWith('sqlite:') && database !== 'sqlite::memory:'
        ? `sqlite:${near(database.slice('sqlite:'.length))}`
        : database,
    gateway: {
      ...gateway,
      admin: gateway.admin.replace(/\/$/, ''),
      api: gateway.api.replace(/\/$/, ''),
      token_file: gateway.token_file && near(gateway.token_file),
    },
  }
}

export const isLoopback = (host: string): boolean =>
  host === 'localhost' || host === '[::1]' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'))

/** Somebody tries it on this machine: without a mail server, which `checkTogether` asks for beyond it. */
export const isTrial = ({ mail }: Pick<ConsoleConfig, 'mail'>): boolean => mail.smtp === undefined

/** What several fields say together. */
function checkTogether({ url, host, gateway, mail }: ConsoleConfig, fault: (message: string) => void): void {
  const { protocol, hostname } = new URL(url)
  if (protocol === 'http:' && !isLoopback(hostname))
    fault('url is http beyond this machine, where others could read sessions; write https:// and put TLS before it')
  if (!isLoopback(host) && protocol === 'http:')
    fault('listen is reachable from other machines while url is http; listen on 127.0.0.1, or write url: https://…')
  const { token_file, token, staff_token } = gateway
  if (token_file === undefined && (token === undefined || staff_token === undefined))
    fault('gateway needs token_file, or token and staff_token')
  if (token_file !== undefined && (token !== undefined || staff_token !== undefined))
    fault('gateway has token_file and also token or staff_token; keep one of the two ways')
  if (mail.smtp === undefined && !isLoopback(hostname))
    fault('mail.smtp is missing: without it links for signing in go to the log; write smtp://USER:PASSWORD@HOST:587')
  if (mail.from === LOCAL_SENDER && !isLoopback(hostname))
    fault('mail.from is missing: servers refuse mail of console@localhost; write Example <console@example.com>')
}
