import { gemini } from '../../providers/gemini/index.ts'
import { testPairs } from './pair-kit.ts'

testPairs(gemini)
