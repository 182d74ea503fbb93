/** How exchanges end, and how that looks. */
import { h } from './dom.mjs'

const KINDS = { completed: 'good', incomplete: 'good', replayed: 'good', refused: 'warn', client_gone: 'idle' }

export const kindOf = outcome => KINDS[outcome] ?? 'bad'

export const outcomeBadge = outcome => h('span', { class: `badge ${kindOf(outcome)}` }, outcome.replace('_', ' '))
