-- Adds a notice to the stream of notices, once for each identity, however many gateways find it.
-- KEYS: the stream; the set of identities of one period. ARGV: the identity; the organization; the notice as JSON; how
-- long the set is kept, in ms. Returns 1 when it was not there yet, else 0.
if redis.call('SADD', KEYS[2], ARGV[1]) == 0 then return 0 end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
redis.call('XADD', KEYS[1], 'MAXLEN', '~', NOTICES_KEPT, '*', 'o', ARGV[2], 'n', ARGV[3])
return 1
