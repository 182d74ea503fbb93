-- Declares a lease dead if it has expired.
-- KEYS: the set of leases that may hold something; the set of dead leases; the lease's key. ARGV: its id.
if redis.call('EXISTS', KEYS[3]) == 1 then return 0 end
return redis.call('SMOVE', KEYS[1], KEYS[2], ARGV[1])
