export const FLAGS: readonly string[]
