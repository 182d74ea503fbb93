-- Forgets what has expired, and evicts. KEYS: as record_keep.lua has them. ARGV: bytes that may stay.
--@include now
--@include record_keep
expire(RETAINED_SLICE)
local evicted = evict(tonumber(ARGV[1]), RETAINED_SLICE)
if ends(indexes) < 0 then redis.call('DEL', KEYS[1]) end
return {bytes(), evicted, ends(indexes)}
