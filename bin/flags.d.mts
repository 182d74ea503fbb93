export const FLAGS: readonly string[]
export const HEAP_GROWING_PERCENT: number
