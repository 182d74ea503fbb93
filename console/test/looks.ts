/** How people look at the console: on a wide screen or a phone, in light or dark colours, with scripts or without. */
import type { BrowserContextOptions } from 'playwright-core'

export interface Look extends BrowserContextOptions {
  viewport: { width: number; height: number }
  colorScheme: 'light' | 'dark'
  javaScriptEnabled: boolean
}

const SIZES = [
  { width: 1440, height: 900 },
  { width: 390, height: 844 },
]

export const nameOf = ({ viewport, colorScheme, javaScriptEnabled }: Look): string =>
  `${viewport.width} px, ${colorScheme}, ${javaScriptEnabled ? 'with scripts' : 'without scripts'}`

/** All eight. */
export const LOOKS: readonly Look[] = SIZES.flatMap(viewport =>
  (['light', 'dark'] as const).flatMap(colorScheme =>
    [true, false].map(javaScriptEnabled => ({ viewport, colorScheme, javaScriptEnabled })),
  ),
)

/** For pages and stories: any two of the three things of which a look consists meet in one of these four. */
export const STORIES = LOOKS.filter(
  ({ viewport, colorScheme, javaScriptEnabled }) =>
    javaScriptEnabled === ((viewport === SIZES[0]) === (colorScheme === 'light')),
)

/** For what needs scripts: 1440 px in light colours, and 390 px in dark ones. */
export const SCRIPTED = STORIES.filter(({ javaScriptEnabled }) => javaScriptEnabled)

/** For what takes long: the two that have nothing in common. */
export const OPPOSITES = [LOOKS[0]!, LOOKS.at(-1)!]
