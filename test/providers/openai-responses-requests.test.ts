import { openaiResponses } from '../../providers/openai-responses/index.ts'
import { testRequests } from './dialect-requests.ts'

testRequests(openaiResponses)
