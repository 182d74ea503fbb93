/** A catalog with the built-in plugins' names, options and slots, and no code: what loading a configuration looks at. */
import type { DialectCapabilities } from '../../core/config/models.ts'
import { CAPABILITIES } from '../../core/dialect.ts'
import { definePlugin, type Plugin, type PluginHooks, slot } from '../../core/plugin.ts'
import * as options from '../../plugins/options.ts'

const [requestBody, request, conversation, identity, model, estimate, candidates, outbound, usage] = [
  'requestBody',
  'request',
  'conversation',
  'identity',
  'model',
  'estimate',
  'candidates',
  'outbound',
  'usage',
].map(name => slot(name)) as any[]

const create = (): PluginHooks => ({})
const fake = (plugin: Omit<Plugin, 'summary' | 'create'>): [string, Plugin] => [
  plugin.name,
  definePlugin<any>({ summary: `What ${plugin.name} does.`, create, ...plugin }),
]

export const catalog: ReadonlyMap<string, Plugin> = new Map([
  fake({ name: 'auth', config: options.authOptions, provides: [identity] }),
  fake({ name: 'validation', config: options.validationOptions, needs: [requestBody], provides: [request] }),
  fake({ name: 'idempotency', config: options.idempotencyOptions, needs: [identity, requestBody] }),
  fake({
    name: 'conversation',
    config: options.conversationOptions,
    needs: [identity, request],
    provides: [conversation, model],
  }),
  fake({ name: 'token-estimate', config: options.tokenEstimateOptions, needs: [conversation], provides: [estimate] }),
  fake({
    name: 'routing',
    config: options.routingOptions,
    needs: [conversation, model, estimate],
    provides: [candidates],
  }),
  fake({ name: 'admission', config: options.admissionOptions, needs: [identity], needsLate: [usage] }),
  fake({
    name: 'translation',
    config: options.translationOptions,
    needs: [conversation, candidates],
    provides: [outbound],
  }),
  fake({ name: 'upstream', config: options.upstreamOptions, needs: [outbound], terminal: true }),
  fake({ name: 'usage-capture', config: options.usageCaptureOptions, providesLate: [usage] }),
  fake({ name: 'header-stamp', config: options.headerStampOptions }),
  fake({ name: 'count-tokens', config: options.countTokensOptions, needs: [estimate], terminal: true }),
  fake({ name: 'models', config: options.modelsOptions, needs: [identity], terminal: true }),
  fake({ name: 'proxy', config: options.proxyOptions, terminal: true }),
])

const all = new Set(CAPABILITIES)
export const dialectCapabilities: DialectCapabilities = {
  'openai-chat': all,
  'openai-responses': all,
  'anthropic-messages': all,
  gemini: new Set(CAPABILITIES.filter(c => c !== 'logprobs')),
}
