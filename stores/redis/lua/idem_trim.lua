-- Forgets what has expired, and evicts.
-- KEYS: the index of replies; the sum of the bytes of both; the index of marks. ARGV: prefix of key names; bytes that
-- may stay. Returns as evict.lua says.
--@include now
local replies, sum, marks, prefix = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
--@include idem_keep
expire(RETAINED_SLICE)
local evicted = evict(tonumber(ARGV[2]), RETAINED_SLICE)
return {bytes(), evicted, ends({KEYS[1], KEYS[3]})}
