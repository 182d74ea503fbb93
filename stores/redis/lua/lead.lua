-- Takes or renews the lease of the process that ships the ledger.
-- KEYS: the lease. ARGV: the process, ms; 0 ms ends the lease. Returns 1 when it has the lease, else 0.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then redis.call('DEL', KEYS[1])
else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return 1
