/** Every page of the console, in the order of the menu. A new page is a folder, and a line here. */
import { account } from './account/index.ts'
import { audit } from './audit/index.ts'
import { billing } from './billing/index.ts'
import { keys } from './keys/index.ts'
import { limits } from './limits/index.ts'
import { members } from './members/index.ts'
import { overview } from './overview/index.ts'
import { playground } from './playground/index.ts'
import { requests } from './requests/index.ts'
import { signIn } from './sign-in/index.ts'
import { staffBilling } from './staff/billing.ts'
import { staff } from './staff/index.ts'
import { start } from './start/index.ts'
import { usage } from './usage/index.ts'
import type { Page } from './web/visit.ts'

export const PAGES: readonly Page[] = [
  ...[overview, keys, playground, usage, limits, requests, members, billing, audit],
  ...[staff, staffBilling, account, start, signIn],
]
