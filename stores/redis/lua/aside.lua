-- Sets the data aside for `sluice store move`, unless a gateway serves from it.
-- KEYS: the mark; the set of leases that may hold something. ARGV: the prefix of lease keys; the new min_reader, which
-- nobody reads; the `MoveMark`. Returns the living leases. With any, nothing is changed.
local living = {}
for _, id in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  if redis.call('EXISTS', ARGV[1] .. id) == 1 then living[#living + 1] = id end
end
if #living > 0 then return living end
redis.call('HSETNX', KEYS[1], 'version', 1)
redis.call('HSETNX', KEYS[1], 'min_reader_before', redis.call('HGET', KEYS[1], 'min_reader') or 1)
redis.call('HSET', KEYS[1], 'min_reader', ARGV[2], 'move', ARGV[3])
return living
