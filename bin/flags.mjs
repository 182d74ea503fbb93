/** How the gateway's Node runs. */
export const FLAGS = [
  '--disable-warning=ExperimentalWarning',
  // Most of what a request makes dies with it. A wider nursery lets it die there: fewer scavenges, fewer promotions.
  '--max-semi-space-size=32',
  // So little survives that waking helper threads for it costs four times what they save, on a core that others need.
  '--no-parallel-scavenge',
]
