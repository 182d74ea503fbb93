import { anthropicMessages } from '../../providers/anthropic-messages/index.ts'
import { testReplies } from './dialect-replies.ts'

testReplies(anthropicMessages)
