/** By how many percent a small heap grows between two full collections. */
export const HEAP_GROWING_PERCENT = 200

/** The flags that the gateway's Node runs with. */
export const FLAGS = [
  '--disable-warning=ExperimentalWarning',
  // Most objects live no longer than their request. A larger young generation lets them die there: fewer scavenges, and
  // fewer objects are promoted.
  '--max-semi-space-size=32',
  // So little survives a scavenge that waking helper threads for it costs four times what they save, on a core that
  // others need.
  '--no-parallel-scavenge',
  // A full collection takes 10 ms and more, in which no request is served. With this flag it runs when the live heap
  // has tripled. By default V8 takes this process for an idle one and collects after a third more: every eight seconds
  // at 3,000 requests/s. What a large heap grows by is bounded while the gateway runs (cli/gateway/heap.ts).
  `--heap-growing-percent=${HEAP_GROWING_PERCENT}`,
]
