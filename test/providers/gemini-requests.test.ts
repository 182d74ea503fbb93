import { gemini } from '../../providers/gemini/index.ts'
import { testRequests } from './dialect-requests.ts'

testRequests(gemini)
