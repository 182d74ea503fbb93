-- KEYS: the set of names. Returns each with the number of its organizations.
local counts = {}
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  counts[#counts + 1] = name
  counts[#counts + 1] = redis.call('ZCARD', KEYS[1] .. ':' .. name)
end
return counts
