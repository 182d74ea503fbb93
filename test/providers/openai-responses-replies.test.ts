import { openaiResponses } from '../../providers/openai-responses/index.ts'
import { testReplies } from './dialect-replies.ts'

testReplies(openaiResponses)
