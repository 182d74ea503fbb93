import { anthropicMessages } from '../../providers/anthropic-messages/index.ts'
import { testRequests } from './dialect-requests.ts'

testRequests(anthropicMessages)
