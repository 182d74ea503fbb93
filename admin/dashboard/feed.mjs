/**
 * The feed: server-sent events read with fetch, because EventSource can't send the token. The token is kept in this
 * tab's session storage and sent in a Bearer header, never in a URL.
 */
const TOKEN = 'sluice.token'
const FIRST_WAIT_MS = 500
const LONGEST_WAIT_MS = 8000

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token)
}

/** `fetch` with the token; only for paths of this origin. */
export function ask(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN)
  const headers = { ...options.headers, ...(token && { authorization: `Bearer ${token}` }) }
  return fetch(path, { ...options, cache: 'no-store', headers })
}

/**
 * Loads the gateway's points after `since` (Unix seconds), at most those of its last hour. admin/history.ts describes
 * the bytes.
 * @returns { times, rows }: seconds, and values by name, oldest first; empty when the gateway does not give them
 */
export async function past(since) {
  const answer = await ask(`/history?since=${since}`)
  if (!answer.ok) return { times: [], rows: [] }
  const names = answer.headers.get('x-series').split(' ')
  const bytes = new DataView(await answer.arrayBuffer())
  const count = bytes.byteLength / (8 + 4 * names.length)
  const value = (point, i) => bytes.getFloat32(8 * count + 4 * (point * names.length + i), true)
  const points = Array.from({ length: count }, (_, point) => point)
  return {
    times: points.map(point => bytes.getFloat64(8 * point, true)),
    rows: points.map(point => Object.fromEntries(names.map((name, i) => [name, value(point, i)]))),
  }
}

/**
 * Reads the feed until the page closes, and connects again when the connection breaks.
 * @param on.snapshot called with each snapshot
 * @param on.state called with `live`, `lost` (it will try again), `locked` (it waits for a token: call the function
 * that is passed along) or `full`
 */
export async function follow(on) {
  let wait = FIRST_WAIT_MS
  for (;;) {
    let answer
    try {
      answer = await ask('/feed')
    } catch {
      answer = null
    }
    if (answer?.status === 401) {
      await new Promise(resolve => on.state('locked', resolve))
      continue
    }
    if (answer?.ok) {
      wait = FIRST_WAIT_MS
      on.state('live')
      await read(answer.body, on.snapshot).catch(() => {})
    }
    on.state(answer?.status === 503 ? 'full' : 'lost')
    await new Promise(resolve => setTimeout(resolve, wait))
    wait = Math.min(LONGEST_WAIT_MS, wait * 2)
  }
}

async function read(body, snapshot) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    rest += value
    let end = rest.indexOf('\n\n')
    while (end !== -1) {
      if (rest.startsWith('data: ')) snapshot(JSON.parse(rest.slice(6, end)))
      rest = rest.slice(end + 2)
      end = rest.indexOf('\n\n')
    }
  }
}
