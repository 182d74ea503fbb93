/**
 * The registry of budgets: whatever bounds what a tenant, a connection, a request or the process may hold or do. A new
 * bound is an entry here, beside its mechanism: /metrics, docs/security.md and the tests know it by that.
 */
import { troublesBudget } from '../admin/troubles.ts'
import { REQUEST_WORK, usedUpBudgets } from '../core/canon/work.ts'
import { type Budget, counter, option, setting } from '../core/engine/budget.ts'
import { longWork, loopSlices } from '../core/engine/loop-turn.ts'
import { youngBudget } from '../http/overload.ts'
import { readsBudget } from '../http/uws/body.ts'
import { tunnelBudget } from '../http/uws/tunnel.ts'
import { turnPiecesBudget } from '../http/uws/turn.ts'
import { messageBudgets } from '../http/web-socket.ts'
import { threadsBudget } from '../meter/index.ts'
import { platformBudget } from '../plugins/admission/platform.ts'
import { recallBudget } from '../plugins/conversation/memory.ts'
import { fetchingBudget } from '../plugins/media/index.ts'
import { receiptsBudget } from '../plugins/own-receipts.ts'
import { usageBudget } from '../plugins/own-usage.ts'
import { missesBudget } from '../plugins/shared/directory.ts'
import { preparationBudget } from '../plugins/shared/preparation.ts'
import { readableBudget } from '../plugins/shared/readable.ts'
import { recentBudget } from '../plugins/shared/recent.ts'
import { sentBudget } from '../plugins/shared/sent-bound.ts'
import { unsentBudget } from '../plugins/shared/unsent.ts'
import { rememberedBudget } from '../plugins/upstream/breaker.ts'
import { queueBudget } from '../plugins/upstream/gate.ts'
import { heldBudget } from '../plugins/upstream/held.ts'
import { replyReadsBudget } from '../plugins/upstream/http1/client.ts'
import { bodyBudgets } from '../plugins/validation.ts'
import { patternsBudget } from '../providers/patterns.ts'

/** Bounds that are an option of a plugin, or a rule of another table, and have no mechanism of their own. */
const ruled: readonly Budget[] = [
  {
    name: 'count_tokens',
    bound: '`count_tokens` in a minute',
    owner: 'tenant',
    each: 'its `requests_per_minute`',
    over: '429 `requests_limit_exceeded`',
    seen: '`sluice_refused_total`, by route and code',
  },
  {
    name: 'written_schemas',
    bound: 'what is written of tool schemas, for servers with `tool_schema: openapi`',
    owner: 'request',
    each: 'four times what was sent, and 32 KiB; in units of work, with all else that a request provokes',
    over: 'the backend is unfit: the next one, or 400',
    seen: '`sluice_refused_total`, by code',
  },
  {
    name: 'fetched_media',
    bound: 'fetched media',
    owner: 'request',
    each: [...['max_files', 'max_bytes', 'max_text'].map(name => option('media', name)), 'the window'],
    over: '400, or a backend that takes the URL',
    seen: '`sluice_refused_total`, by code',
  },
  {
    name: 'own_searches',
    bound: "the gateway's own searches",
    owner: 'request',
    each: ['max_turns', 'max_searches', 'max_results'].map(name => option('web-search', name)),
    over: 'the model is told to answer',
    seen: '`usage` of the reply counts searches',
  },
  {
    name: 'compaction',
    bound: "the gateway's own compaction",
    owner: 'request',
    each: ['one call, reserved at admission', ...['max_summary', 'keep_text'].map(name => option('compaction', name))],
    over: '502 `upstream_server_error`: the summary did not end; older messages of the user do not stay',
    seen: '`usage` of the reply has both calls',
  },
  {
    name: 'request_work',
    bound: '[units of work](#units-of-work) that schemas, patterns and texts provoke',
    owner: 'request',
    each: [REQUEST_WORK, 'at most some 35 ms of the event loop, or 90 ms in code that never ran before'],
    over: 'nothing: what of its replies could not be checked any more passes',
    seen: '`sluice_work_used_up_total`',
    metrics: [
      counter(
        'sluice_work_used_up_total',
        'Requests whose schemas, patterns and texts needed more work than one may take.',
        usedUpBudgets,
      ),
    ],
  },
  {
    name: 'max_found',
    bound: 'personal data of a prompt, where `pii-mask` stands',
    owner: 'request',
    each: option('pii-mask', 'max_found'),
    over: '400 `content_limit_exceeded`',
    seen: '`sluice_content_refused_total{bound="max_found"}`',
  },
  {
    name: 'max_pattern_work',
    bound: 'instructions times characters of the patterns of `pii-mask`',
    owner: 'request',
    each: [option('pii-mask', 'max_pattern_work'), 'some 5 s of CPU time in slices; a hundredth for one search'],
    over: '400 `content_limit_exceeded`',
    seen: '`sluice_content_refused_total{bound="max_pattern_work"}`',
  },
  {
    name: 'runaway_waiting',
    bound: 'requests that `runaway` makes to wait',
    owner: 'tenant',
    each: [32, 'each for its option `delay`'],
    over: '429 `conversation_repeats`',
    seen: '`sluice_slowed_total`',
  },
  {
    name: 'runaway_places',
    bound: 'places of conversations that `runaway` knows',
    owner: 'tenant',
    each: 1024,
    all: 65_536,
    over: 'nothing: what was used longest ago is forgotten',
  },
  {
    name: 'stop',
    bound: 'a stop string',
    owner: 'request',
    each: '256 characters',
    over: '400',
    seen: '`sluice_content_refused_total{bound="stop"}`',
  },
  {
    name: 'replies',
    bound: 'a reply of a provider',
    owner: 'request',
    each: [option('upstream', 'max_reply'), 'in one body 4 MiB', 'one event 8 MiB'],
    over: '502, or the next backend',
    seen: '`sluice_backend_oversized_replies_total`',
  },
  {
    name: 'retained',
    bound: 'retained data',
    owner: 'tenant',
    each: [setting('store.share'), 'of all'],
    all: setting('store.max_records'),
    over: 'nothing: its own oldest is evicted',
    seen: '`sluice_store_kept_bytes`, `sluice_store_evicted_total`',
  },
  {
    name: 'plugin_values',
    bound: 'what plugins keep in the store',
    owner: 'tenant',
    each: [setting('store.share'), 'of all'],
    all: setting('store.max_plugin_values'),
    over: 'nothing: its own oldest is evicted',
    seen: '`sluice_store_kept_bytes`, `sluice_store_evicted_total`',
  },
]

/** In the order in which a request meets them. */
export const budgets: readonly Budget[] = [
  ...[youngBudget, turnPiecesBudget, readsBudget, tunnelBudget],
  ...messageBudgets,
  ...[missesBudget, preparationBudget, loopSlices, longWork],
  ...bodyBudgets,
  ...[recentBudget, threadsBudget, recallBudget, fetchingBudget, unsentBudget, platformBudget],
  ...[
    queueBudget,
    heldBudget,
    sentBudget,
    replyReadsBudget,
    rememberedBudget,
    patternsBudget,
    usageBudget,
    receiptsBudget,
    readableBudget,
    troublesBudget,
  ],
  ...ruled,
]
