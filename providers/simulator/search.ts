/**
 * The simulated web: a query always finds the same three pages. Also served as `GET /search?q=…`, an example of a
 * search provider.
 */
export interface Found {
  title: string
  url: string
  text: string
}

/** The pages that a query finds. */
export function simulatedSearch(query: string): Found[] {
  const slug =
    query
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, '-')
      .replace(/^-|-$/g, '') || 'nothing'
  return ['An introduction to', 'The history of', 'Questions about'].map((title, i) => ({
    title: `${title} ${query}`,
    url: `https://example.com/${slug}/${i + 1}`,
    text: `${title} ${query}: page ${i + 1} of the simulated web.`,
  }))
}
