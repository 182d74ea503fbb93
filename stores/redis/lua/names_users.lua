-- KEYS: the set of names. ARGV: how many ids, then names. Returns the number of organizations and the first ids of
-- each.
local users = {}
for i = 2, #ARGV do
  local key = KEYS[1] .. ':' .. ARGV[i]
  users[i - 1] = {redis.call('ZCARD', key), redis.call('ZRANGE', key, 0, tonumber(ARGV[1]) - 1)}
end
return users
