/**
 * The bounds on what one request may hold. Their refusals share codes, so the error names the bound for the metrics:
 * the settings of `validation`, `conversation` and `pii-mask`, and the fixed bounds that surfaces put on a structured
 * output's schema and on a stop string.
 */
export const CONTENT_BOUNDS = [
  'max_depth',
  'max_nodes',
  'max_images',
  'max_documents',
  'max_replay',
  'max_retained',
  'max_found',
  'max_pattern_work',
  'schema',
  'stop',
] as const
export type ContentBound = (typeof CONTENT_BOUNDS)[number]
