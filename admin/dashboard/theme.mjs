/** The theme: that of the system, light or dark. The browser keeps the choice for all pages. */
import { attribute, text } from './dom.mjs'

const THEME = 'sluice.theme'
const THEMES = ['system', 'light', 'dark']

/** Applies the theme that was chosen, and makes the button choose the next. @param changed called after each choice */
export function themeButton(button, changed = () => {}) {
  let theme = THEMES.includes(localStorage.getItem(THEME)) ? localStorage.getItem(THEME) : 'system'
  const apply = () => {
    attribute(document.documentElement, 'data-theme', theme === 'system' ? null : theme)
    text(button, `Theme: ${theme}`)
  }
  apply()
  button.addEventListener('click', () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]
    localStorage.setItem(THEME, theme)
    apply()
    changed()
  })
}
