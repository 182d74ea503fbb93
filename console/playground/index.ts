/**
 * Playground: a question to a model. The browser asks the console, and the console asks the public API, with a key of
 * ten minutes and one dollar. Nothing of what is written is kept here.
 */
import { join } from 'node:path'
import { html } from 'hono/html'
import { page } from '../views/layout.ts'
import { form, input } from '../views/parts.ts'
import { type Answer, FormFault, get, type Html, type MemberVisit, type Page, post } from '../web/visit.ts'
import { forget, keyFor, REQUEST_MS } from './key.ts'

export const playground: Page = {
  name: 'playground',
  menu: { label: 'Playground', path: '/playground', right: 'playground' },
  routes: [get.member('/playground', 'playground', show), post.member('/playground', 'playground', ask, show)],
  assets: { 'playground.mjs': join(import.meta.dirname, 'playground.mjs') },
}

function show(visit: MemberVisit): Answer {
  return shown(visit, null)
}

function shown(visit: MemberVisit, reply: string | null): Answer {
  const { form: sent, organization, parts } = visit
  return page(
    visit,
    'Playground',
    html`<p class="muted">Try a model. It is billed as any request, on a key that the console makes for you: it lasts
      ten minutes and spends at most 1 USD. Nothing that you write is kept by the console.</p>
    <div class="card">
      ${form(
        visit,
        `/o/${organization.id}/playground`,
        html`${input({ name: 'model', label: 'Model', value: sent.get('model') ?? parts.config.model, required: true })}
          ${area('system', 'Instructions', sent.get('system'), 2)}
          ${area('prompt', 'Message', sent.get('prompt'), 5, true)}
          <button type="submit" class="main">Send</button> <button type="button" id="stop" hidden>Stop</button>`,
        { class: 'playground' },
      )}
    </div>
    <section aria-labelledby="reply-title"${reply === null ? html` hidden` : ''} id="reply-section">
      <h2 id="reply-title">Reply</h2>
      <pre id="reply" class="reply" tabindex="0">${reply ?? ''}</pre>
      <p class="muted" id="used" role="status"></p>
    </section>`,
    { scripts: ['playground.mjs'] },
  )
}

function area(name: string, label: string, value: string | null, rows: number, required = false): Html {
  return html`<div class="field"><label for="field-${name}">${label}</label>
    <textarea id="field-${name}" name="${name}" rows="${rows}"${required ? html` required` : ''}>${
      value ?? ''
    }</textarea>
  </div>`
}

async function ask(visit: MemberVisit): Promise<Answer> {
  const { form: sent } = visit
  const [model, system, prompt] = ['model', 'system', 'prompt'].map(name => (sent.get(name) ?? '').trim())
  if (!model) throw new FormFault('Model: write the id of a model of your plan')
  if (!prompt) throw new FormFault('Message: write something')
  // The page's script reads the stream; without it the whole reply comes as a page.
  const stream = sent.get('stream') === '1'
  const messages = [...(system ? [{ role: 'system', content: system }] : []), { role: 'user', content: prompt }]
  const options = stream && { stream_options: { include_usage: true } }
  const answer = await answerTo(visit, JSON.stringify({ model, messages, stream, ...options }))
  if (stream) {
    // What the API says goes on as it is, and as nothing else: a frame is never a page.
    const type = answer.ok ? 'text/event-stream' : 'application/json'
    return { status: answer.status, headers: { 'content-type': type }, body: answer.body ?? '' }
  }
  const reply = (await answer.json().catch(() => null)) as any
  if (!answer.ok) throw new FormFault(reply?.error?.message ?? `The gateway answered ${answer.status}`)
  return shown(visit, String(reply?.choices?.[0]?.message?.content ?? reply?.choices?.[0]?.message?.refusal ?? ''))
}

/** What the public API answers. With a key that it does not take, which somebody may have deleted, another is made once. */
async function answerTo(visit: MemberVisit, body: string): Promise<Response> {
  const key = await keyFor(visit)
  const answer = await send(visit, key.secret, body)
  if (answer.status !== 401) return answer
  await answer.body?.cancel()
  await forget(visit, key)
  return send(visit, (await keyFor(visit)).secret, body)
}

async function send({ parts }: MemberVisit, secret: string, body: string): Promise<Response> {
  try {
    return await fetch(`${parts.config.gateway.api}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body,
      signal: AbortSignal.timeout(REQUEST_MS),
      redirect: 'error',
    })
  } catch (error) {
    parts.tell(`the public API does not answer: ${(error as Error).message}`)
    throw new FormFault('The gateway does not answer. Try again shortly')
  }
}
