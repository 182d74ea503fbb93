-- Renews a lease; keys and arguments as for lease_take.lua. Returns 0 also when the lease has been declared dead. A
-- lease that expired but was not declared dead is renewed.
--@include may_read
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
return 1
