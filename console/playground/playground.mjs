/** Shows a reply while it comes. Without this script the whole reply comes as a page. */
const form = document.querySelector('form.playground')
const [section, reply, used, stop] = ['reply-section', 'reply', 'used', 'stop'].map(id => document.getElementById(id))
let running = null

/** The data of each event of a stream. */
async function* events(body) {
  let text = ''
  for await (const piece of body.pipeThrough(new TextDecoderStream())) {
    text += piece
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const line = text.slice(0, end)
      text = text.slice(end + 2)
      if (line.startsWith('data: ') && line !== 'data: [DONE]') yield JSON.parse(line.slice(6))
    }
  }
}

async function send() {
  running = new AbortController()
  section.hidden = false
  stop.hidden = false
  reply.textContent = ''
  used.textContent = 'Waiting for the model.'
  const fields = new URLSearchParams(new FormData(form))
  fields.set('stream', '1')
  try {
    const answer = await fetch(form.action, { method: 'POST', body: fields, signal: running.signal })
    const type = answer.headers.get('content-type') ?? ''
    if (!type.startsWith('text/event-stream')) {
      const fault = type.startsWith('application/json') ? (await answer.json()).error?.message : null
      used.textContent = fault ?? 'That did not work. Reload the page and try again.'
      return
    }
    let end = 'The reply broke off.'
    for await (const { choices, usage, error } of events(answer.body)) {
      if (error) end = error.message
      reply.textContent += choices?.[0]?.delta?.content ?? choices?.[0]?.delta?.refusal ?? ''
      const reason = choices?.[0]?.finish_reason
      if (reason) end = reason === 'stop' ? 'Done.' : `Ended: ${reason}.`
      if (usage) end += ` ${usage.prompt_tokens} tokens in, ${usage.completion_tokens} out.`
    }
    used.textContent = end
  } catch (error) {
    used.textContent = error.name === 'AbortError' ? 'Stopped.' : 'The connection broke off.'
  } finally {
    running = null
    stop.hidden = true
    delete form.dataset.sent
  }
}

form.addEventListener('submit', event => {
  event.preventDefault()
  if (!running) send()
})
stop.addEventListener('click', () => running?.abort())
