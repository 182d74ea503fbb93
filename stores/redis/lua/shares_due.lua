-- Takes organizations that have something to forget, so that no other process takes them for a while.
-- KEYS: when each has something to forget. ARGV: how many at most; for how long they are taken, ms.
--@include now
local orgs = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, org in ipairs(orgs) do redis.call('ZADD', KEYS[1], now + ARGV[2], org) end
return orgs
