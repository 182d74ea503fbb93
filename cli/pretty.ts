/** Log lines for people: `sluice start --pretty`. */

const LEVELS: Record<string, [word: string, colour: number]> = {
  debug: ['debug', 90],
  info: ['info ', 32],
  warn: ['warn ', 33],
  error: ['ERROR', 31],
}

/** One line of pino's JSON as text with a line feed; what is not JSON is passed on as it is. */
export function prettyLine(line: string, colour: boolean): string {
  let fields: Record<string, unknown>
  try {
    fields = JSON.parse(line) as Record<string, unknown>
  } catch {
    return line
  }
  const paint = (code: number, text: string) => (colour ? `\x1b[${code}m${text}\x1b[0m` : text)
  const { level, time, msg, ...rest } = fields
  const [word, code] = LEVELS[String(level)] ?? [String(level), 0]
  const start = `${paint(90, localTime(String(time)))} ${paint(code, word)} `
  if (msg === 'exchange') return `${start}${exchange(rest, paint)}\n`
  const { err, ...others } = rest
  const pairs = Object.entries(others).map(([name, value]) => `${paint(90, `${name}=`)}${plain(value)}`)
  return `${start}${[msg, ...pairs].join('  ')}${err === undefined ? '' : error(err as LoggedFields, paint)}\n`
}

type Paint = (code: number, text: string) => string

/** `200 completed  POST /v1/responses  acme/key_ci  eb1-preview → chat/sim  12 in 34 out  ttfb 3 ms  15 ms  req_…` */
function exchange(fields: Record<string, unknown>, paint: Paint): string {
  const { request_id, route, status, outcome, code, organization, key, model, unknown_model, backend, param } = fields
  const { input_tokens, output_tokens, duration_ms, ttfb_ms } = fields
  const good = outcome === 'completed' || outcome === 'incomplete' || outcome === 'replayed'
  const colour = good ? 32 : outcome === 'refused' || outcome === 'client_gone' ? 33 : 31
  const said = upstream(fields)
  const parts = [
    paint(colour, `${String(status).padStart(3)} ${code ?? outcome}${param === undefined ? '' : ` at ${param}`}`),
    route === '' ? '(no route)' : String(route),
    organization === undefined ? '' : `${organization}/${key}`,
    unknown_model === undefined ? '' : `${unknown_model} (unknown)`,
    model === undefined ? '' : backend === undefined ? String(model) : `${model} → ${backend}`,
    said === '' ? '' : paint(31, said),
    input_tokens === undefined ? '' : `${input_tokens} in ${output_tokens} out`,
    ttfb_ms === undefined || ttfb_ms === duration_ms ? '' : `ttfb ${ttfb_ms} ms`,
    `${duration_ms} ms`,
    paint(90, String(request_id)),
  ]
  return parts.filter(part => part !== '').join('  ')
}

/** `upstream 400 invalid_request_error at messages[0].content: "what it said"`. */
function upstream({ upstream_status: status, upstream_error: told }: Record<string, unknown>): string {
  if (status === undefined && told === undefined) return ''
  const { type, code, param, message } = (told ?? {}) as Record<string, string | undefined>
  const words = ['upstream', status, type, code, param && `at ${param}`].filter(word => word !== undefined)
  return words.join(' ') + (message === undefined ? '' : `: ${JSON.stringify(message)}`)
}

interface LoggedFields {
  type: string
  code?: string
  message?: string
  stack?: string[]
  cause?: LoggedFields
}

function error(err: LoggedFields, paint: Paint): string {
  const { type, code, message, stack = [], cause } = err
  const head = [code === undefined ? type : `${type} ${code}`, message].filter(Boolean).join(': ')
  const lines = [paint(31, head), ...stack.map(frame => paint(90, `  ${frame}`))]
  return lines.map(text => `\n    ${text}`).join('') + (cause ? error(cause, paint) : '')
}

function plain(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

/** An ISO time as `14:03:07.123`, in the time zone of this machine. */
function localTime(iso: string): string {
  const date = new Date(iso)
  if (Number.isNaN(date.getTime())) return iso
  const two = (n: number) => String(n).padStart(2, '0')
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, '0')}`
}
