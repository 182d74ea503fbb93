/** What to do about each error: docs/errors.md and `sluice trace` say it. */
import type { ErrorCode } from '../core/canon/errors.ts'
import { DIMENSIONS, denialCode } from '../core/canon/limits.ts'

const denied = Object.fromEntries(DIMENSIONS.map(([name, { cure }]) => [denialCode(name), cure])) as Record<
  ReturnType<typeof denialCode>,
  string
>

/**
 * By error code: what the person who gets the error does next, as Markdown of docs/errors.md. The type makes sure that
 * every code is here.
 */
export const NEXT_STEPS: Record<ErrorCode, string> = {
  unknown_parameter:
    'Remove the member that `param` names, or let the operator set `unknown_fields` of [`validation`](configuration.md#validation) to `strip` for this surface.',
  unsupported_parameter: 'Remove the member that `param` names.',
  unsupported_value: 'Use one of the values that the message lists.',
  invalid_type: 'Send the type that the message asks for at `param`.',
  invalid_value: 'Correct the value at `param`. Operators: when a provider refused it, the log line has its words.',
  missing_required_parameter: 'Add the member that `param` names.',
  invalid_json: 'Send one JSON object as the body.',
  content_limit_exceeded: 'Send fewer or smaller parts; shorten the history.',
  bad_request: 'Correct the header that the message names.',
  request_exceeds_capacity: 'Shorten the prompt or lower the output cap; or ask the operator for a wider minute limit.',
  context_length_exceeded: 'Shorten the prompt, or use a model with a larger window.',
  request_requirements_unsatisfied: 'Drop the feature that the message names, or use another model.',
  conversation_invariant: 'Send exactly one result for each call, after it; see `details.call_id`.',
  previous_response_not_found: 'Send the whole conversation as `input`.',
  invalid_stream_id: 'Use 1 to 256 letters, digits, `_`, `-` or `.`; or none.',
  websocket_stream_limit_reached: 'Use a lane of before, or another connection.',
  websocket_connection_limit_reached: 'Open a new connection.',
  websocket_queue_full: 'Wait for a response to end.',
  missing_authorization: 'Send `Authorization: Bearer KEY`.',
  bearer_scheme_required: 'Write `Bearer ` in front of the key.',
  invalid_api_key: 'Check the key; it may be revoked, or of another gateway.',
  address_not_allowed:
    'Call from a network that the operator has allowed. Operators: see [`ip-access`](plugins.md#ip-access).',
  model_not_available: 'Use a model of your plan, or ask the operator for this one.',
  streaming_not_available: 'Send the request without `stream`, or ask the operator.',
  model_not_found: 'Use an id of `GET /v1/models`. Operators: a model without a price is not served.',
  response_not_found: 'Keep what you need of a response; `store: false` and `conversation.retain` say what is stored.',
  receipt_not_found:
    'Use the `x-request-id` of a reply, with a key of the organization that sent the request, once the reply has ended.',
  not_found: 'Correct the path.',
  method_not_allowed: 'Use a method of the `Allow` header.',
  request_body_timeout: 'Send the body faster, then retry.',
  idempotency_key_conflict: 'Use a new key for a new request; for a running first use, wait and retry.',
  endpoint_retired: 'Write `/v1` instead of `/v24b/v1`.',
  request_too_large: 'Send less; images and documents by URL where the gateway fetches them.',
  unsupported_media_type: 'Send `Content-Type: application/json` and an uncompressed body.',
  upgrade_required: 'Send it as a plain HTTP request; agents fall back by themselves.',
  ...denied,
  request_token_budget_exceeded: 'Shorten the prompt or lower the output cap.',
  request_spend_cap_exceeded: 'Shorten the prompt, lower the output cap, or use a cheaper model.',
  conversation_repeats:
    'Send something new with the conversation, begin another one, or wait as `Retry-After` says. Operators: [`exempt` of `runaway`](runaway.md#lift-it) lifts it at once.',
  capacity_exceeded: 'Wait as `Retry-After` says.',
  insufficient_quota: 'Operators: pay or raise the quota at the provider.',
  internal_error: 'Retry. Operators: `npx sluice trace REQUEST_ID` shows where it was thrown.',
  not_implemented: 'Ask in the way that the message names. Operators: change the route.',
  upstream_auth_error:
    'Retry where `retryable` is true: the credential is fetched again. Operators: correct the `api_key` or the `auth` of the provider.',
  upstream_server_error:
    'Retry where `retryable` is true. Operators: `npx sluice trace REQUEST_ID` shows the provider’s status and error of each attempt.',
  account_unavailable:
    'Ask the operator; nothing in the request is wrong. Operators: the log and `sluice check --store` name the [plan or the setting](accounts.md#plans-and-models-that-go).',
  route_capacity:
    'Retry shortly. Operators: raise `max_connections` or `queue` of the provider, or `platform.preparation`.',
  route_unavailable: 'Retry shortly.',
  provider_unavailable:
    'Retry as `Retry-After` says. Operators: `npx sluice trace REQUEST_ID` shows why each backend failed or was left out; look at the store too.',
  gateway_timeout: 'Retry; ask for less output, or stream.',
}
