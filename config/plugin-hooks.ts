/** For `node --import`: with it, tests of plugins in any folder can import `sluice`, `sluice/dialect` and `sluice/testing`. */
import { registerPluginHooks } from './modules.ts'

registerPluginHooks()
