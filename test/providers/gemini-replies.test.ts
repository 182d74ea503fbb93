import { gemini } from '../../providers/gemini/index.ts'
import { testReplies } from './dialect-replies.ts'

testReplies(gemini)
