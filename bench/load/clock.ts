/** Milliseconds of the monotonic clock: one for all threads, where each thread's performance.now() has a start of its own. */
export const now = (): number => Number(process.hrtime.bigint()) / 1e6
