import { openaiResponses } from '../../providers/openai-responses/index.ts'
import { testPairs } from './pair-kit.ts'

testPairs(openaiResponses)
