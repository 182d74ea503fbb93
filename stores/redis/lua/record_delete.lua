-- Deletes a record.
-- KEYS: as record_keep.lua has them. ARGV: id. Returns as evict.lua says.
--@include now
--@include record_keep
local index = KEYS[#KEYS]
local name = index .. ':' .. ARGV[1]
local size = redis.call('STRLEN', name)
redis.call('DEL', name)
if redis.call('ZREM', index, size .. ' ' .. ARGV[1]) == 1 then add(-size) end
return {bytes(), 0, ends(indexes)}
