/** How the gateway's Node runs. */
export const FLAGS = [
  '--disable-warning=ExperimentalWarning',
  // Most of what a request makes dies with it. A wider nursery lets it die there: fewer scavenges, fewer promotions.
  '--max-semi-space-size=32',
  // So little survives that waking helper threads for it costs four times what they save, on a core that others need.
  '--no-parallel-scavenge',
  // A full collection, 10 ms and more in which nobody is served, when what lives has tripled. Left to itself V8 takes this process for an idle one and waits for a
  // third more: at 3,000 requests/s every eight seconds.
  '--heap-growing-percent=200',
]
