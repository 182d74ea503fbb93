-- Takes a new lease.
-- KEYS: the set of leases that may hold something; this lease's key; the mark of the layout. ARGV: lease id, life in
-- ms, version of the layout that this process knows. Returns 0 when this process cannot read the layout.
--@include may_read
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
return 1
