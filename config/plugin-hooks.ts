/** For `node --import`: lets tests of plugins outside the clone import `sluice` and `sluice/testing`. */
import { registerPluginHooks } from './modules.ts'

registerPluginHooks()
