-- The generation of balances. A gateway that starts while no other is alive begins a new one, so that each balance is
-- built anew from credits and rows when it is next used.
-- KEYS: the set of held leases; the generation. ARGV: what a lease's key begins with; own lease; '1' at a start.
local alone = ARGV[3] == '1'
for _, lease in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if lease ~= ARGV[2] and redis.call('EXISTS', ARGV[1] .. lease) == 1 then alone = false end
end
local generation = not alone and redis.call('GET', KEYS[2])
return tonumber(generation or redis.call('INCR', KEYS[2]))
