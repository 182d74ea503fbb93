/**
 * The simulated web: the same three pages for the same words. Also served as `GET /search?q=…`, the example of a search
 * provider.
 */
export interface Found {
  title: string
  url: string
  text: string
}

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
