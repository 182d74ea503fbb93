/** How the gateway's Node runs. */
export const FLAGS = [
  '--disable-warning=ExperimentalWarning',
  // Most of what a request makes dies with it. A wider nursery lets it die there: fewer scavenges, fewer promotions.
  '--max-semi-space-size=32',
]
