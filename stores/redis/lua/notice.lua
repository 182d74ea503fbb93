-- Adds a notice to the stream of notices, once for each identity, however many gateways find it.
-- KEYS: the stream; the set of identities of one period. ARGV: the organization; the notice as JSON; how long the set
-- is kept, in ms; the identity, and others after which it is no news. Returns 1 when none of these was there, else 0.
for i = 4, #ARGV do
  if redis.call('SISMEMBER', KEYS[2], ARGV[i]) == 1 then return 0 end
end
redis.call('SADD', KEYS[2], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
redis.call('XADD', KEYS[1], 'MAXLEN', '~', NOTICES_KEPT, '*', 'o', ARGV[1], 'n', ARGV[2])
return 1
