/** Signs in with a passkey. Without WebAuthn the button is not shown. */
const place = document.querySelector('#passkey')
const { PublicKeyCredential } = window

if (place && PublicKeyCredential?.parseRequestOptionsFromJSON) {
  const words = place.querySelector('[role="status"]')
  const { form, next } = place.dataset
  const ask = async (path, fields) => {
    const body = new URLSearchParams({ form, ...fields })
    const answer = await fetch(path, { method: 'POST', body })
    return answer.json()
  }
  place.hidden = false
  place.querySelector('button').addEventListener('click', async () => {
    words.textContent = ''
    try {
      const { options, challenge } = await ask('/sign-in/passkey/options', {})
      const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options)
      const credential = await navigator.credentials.get({ publicKey })
      const given = await ask('/sign-in/passkey', { challenge, next, response: JSON.stringify(credential.toJSON()) })
      if (given.next) location.assign(given.next)
      else words.textContent = given.error
    } catch (error) {
      words.textContent = error.name === 'NotAllowedError' ? 'Nothing was chosen.' : 'That did not work.'
    }
  })
}
