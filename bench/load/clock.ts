/** The monotonic clock in milliseconds. It is the same in all threads; performance.now() starts at 0 in each thread. */
export const now = (): number => Number(process.hrtime.bigint()) / 1e6
