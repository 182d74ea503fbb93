/** The meter: counts the tokens of prompts and replies (METER-1…3, CNT-1). See docs/metering.md. */
export { EACH_TEXT, meterPool, PromptCount, SYNC_LIMIT, threadsBudget } from './count-prompt.ts'
export { countTokens, encode, TokenCounter } from './counter.ts'
export { jsonBytes, parseJson } from './json.ts'
export { KnownPrompt } from './known-prompt.ts'
export { createMeterPool, MeterBusy, type MeterPool, type MeterPoolOptions, type NormalText } from './pool.ts'
export type { MediaMinimums } from './prompt.ts'
