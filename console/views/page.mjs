/** What pages do beyond HTML: the theme, copying, and one sending of a form. Without this script they work, too. */
const THEMES = ['system', 'light', 'dark']
const KEPT = 'sluice.theme'

const theme = document.querySelector('#theme')
if (theme) {
  let chosen = THEMES.includes(localStorage.getItem(KEPT)) ? localStorage.getItem(KEPT) : 'system'
  const apply = () => {
    if (chosen === 'system') delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = chosen
    theme.textContent = `Theme: ${chosen}`
  }
  apply()
  theme.hidden = false
  theme.addEventListener('click', () => {
    chosen = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length]
    localStorage.setItem(KEPT, chosen)
    apply()
  })
}

for (const button of document.querySelectorAll('button[data-copy]')) {
  button.hidden = false
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent.trim())
    button.textContent = 'Copied'
  })
}

// A second click would send the form again.
for (const form of document.querySelectorAll('form[method="post"]'))
  form.addEventListener('submit', event => {
    if (form.dataset.sent) event.preventDefault()
    form.dataset.sent = 'yes'
  })
// A page that comes back from the browser's memory may be sent anew.
addEventListener('pageshow', () => {
  for (const form of document.forms) delete form.dataset.sent
})
