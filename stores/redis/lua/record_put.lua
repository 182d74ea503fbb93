-- Stores a record. KEYS: as record_keep.lua has them. ARGV: id, value, time to live in ms, the organization's share in
-- bytes. Returns as evict.lua says.
--@include now
--@include record_keep
local index, ttl = KEYS[#KEYS], tonumber(ARGV[3])
local name = index .. ':' .. ARGV[1]
local before = redis.call('STRLEN', name)
redis.call('SET', name, ARGV[2], 'PX', ttl)
if redis.call('ZREM', index, before .. ' ' .. ARGV[1]) == 1 then add(-before) end
expire(EXPIRED_BY_PUT)
if redis.call('ZADD', index, now + ttl, #ARGV[2] .. ' ' .. ARGV[1]) == 1 then add(#ARGV[2]) end
redis.call('HSET', KEYS[1], index, ttl)
local evicted = evict(tonumber(ARGV[4]), RETAINED_SLICE)
for _, key in ipairs({KEYS[1], index}) do
  if redis.call('PTTL', key) < ttl * 2 then redis.call('PEXPIRE', key, ttl * 2) end
end
return {bytes(), evicted, ends(indexes)}
