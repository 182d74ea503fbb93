/** Adds a passkey. Without WebAuthn the button is not shown. */
const place = document.querySelector('#register')
const { PublicKeyCredential } = window

if (place && PublicKeyCredential?.parseCreationOptionsFromJSON) {
  const words = place.querySelector('[role="status"]')
  const ask = async (path, fields) => {
    const body = new URLSearchParams({ form: place.dataset.form, ...fields })
    const answer = await fetch(path, { method: 'POST', body })
    return answer.json()
  }
  place.hidden = false
  place.querySelector('button').addEventListener('click', async () => {
    words.textContent = ''
    try {
      const { options, challenge, error } = await ask('/account/passkeys/options', {})
      if (error) {
        words.textContent = error
        return
      }
      const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options)
      const credential = await navigator.credentials.create({ publicKey })
      const label = place.querySelector('input').value
      const given = await ask('/account/passkeys', { challenge, label, response: JSON.stringify(credential.toJSON()) })
      if (given.next) location.assign(given.next)
      else words.textContent = given.error
    } catch (error) {
      words.textContent = error.name === 'NotAllowedError' ? 'Nothing was chosen.' : 'That did not work.'
    }
  })
}
