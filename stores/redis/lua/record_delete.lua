-- Deletes a record.
-- KEYS: as record_keep.lua has them; the index of this record's kind. ARGV: id. Returns as evict.lua says.
--@include now
--@include record_keep
local name = KEYS[5] .. ':' .. ARGV[1]
local size = redis.call('STRLEN', name)
redis.call('DEL', name)
if redis.call('ZREM', KEYS[5], size .. ' ' .. ARGV[1]) == 1 then add(-size) end
return {bytes(), 0, ends(indexes)}
