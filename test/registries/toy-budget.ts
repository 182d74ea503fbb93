/** A budget of teapots: three of all, two of each tenant; whoever wants more waits. */
import { type Budget, gauge, setting } from '../../core/engine/budget.ts'
import { FairGate } from '../../core/tools/fair.ts'

export const teapotBudget = {
  name: 'teapots',
  bound: 'teapots in use',
  owner: 'tenant',
  each: 2,
  all: [3, setting('directory.misses')],
  refused: { all: { code: 'route_capacity', message: limit => `All ${limit} teapots are in use.` } },
  figures: () => ({ used: teapots.running, waiting: teapots.waiting }),
  metrics: [gauge('sluice_teapots', 'Teapots in use.', () => teapots.running)],
} as const satisfies Budget

export const teapots = new FairGate(teapotBudget.all[0], teapotBudget.each)
