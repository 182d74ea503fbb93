import type { PluginContext } from '../core/plugin.ts'

/** True on a chain whose terminal is `count-tokens`: a body that would be refused is still counted (decisions 2, CNT-1). */
export function isCountingChain(context: PluginContext<'pipelines'>): boolean {
  return context.config.pipelines[context.pipeline]?.some(entry => entry.plugin === 'count-tokens') ?? false
}
