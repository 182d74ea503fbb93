/** Adds a passkey, or signs in with one. Without WebAuthn there is no button for it. */
const { PublicKeyCredential } = window
const { credentials } = navigator

const WAYS = {
  add: {
    path: '/account/passkeys',
    read: 'parseCreationOptionsFromJSON',
    ask: publicKey => credentials.create({ publicKey }),
  },
  use: {
    path: '/sign-in/passkey',
    read: 'parseRequestOptionsFromJSON',
    ask: publicKey => credentials.get({ publicKey }),
  },
}

const place = document.querySelector('#passkey')
const way = WAYS[place?.dataset.way]

if (way && PublicKeyCredential?.[way.read]) {
  const words = place.querySelector('[role="status"]')
  const { form, next } = place.dataset
  const send = async (path, fields) => {
    const body = new URLSearchParams({ form, next, ...fields })
    const answer = await fetch(path, { method: 'POST', body })
    const given = await answer.json()
    // A refusal has its reason for people.
    if (given.error) throw Object.assign(new Error(given.error), { told: true })
    return given
  }
  place.hidden = false
  place.querySelector('button').addEventListener('click', async () => {
    words.textContent = ''
    try {
      const { options, challenge } = await send(`${way.path}/options`, {})
      const credential = await way.ask(PublicKeyCredential[way.read](options))
      const label = place.querySelector('input')?.value ?? ''
      const given = await send(way.path, { challenge, label, response: JSON.stringify(credential.toJSON()) })
      location.assign(given.next)
    } catch (error) {
      const { told, message, name } = error
      words.textContent = told ? message : name === 'NotAllowedError' ? 'Nothing was chosen.' : 'That did not work.'
    }
  })
}
