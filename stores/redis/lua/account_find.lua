-- KEYS: of the digest. ARGV: what an organization's key begins with.
local owner = redis.call('GET', KEYS[1])
if not owner then return false end
local org, key = string.match(owner, '^(%S+) (%S+)$')
local found = redis.call('HMGET', ARGV[1] .. org, 'v', 's', 'k:' .. key)
return {org, key, found[1], found[2], found[3]}
