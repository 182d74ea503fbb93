import { anthropicMessages } from '../../providers/anthropic-messages/index.ts'
import { testPairs } from './pair-kit.ts'

testPairs(anthropicMessages)
