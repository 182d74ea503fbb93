-- KEYS: the key's hash. ARGV: request id, fingerprint, lease ms, ttl ms. The owner of a running mark is about to end,
-- and is fenced: its request id is the token, which is another after a takeover. From now on nobody takes the key over;
-- an owner that dies before idem_finish.lua counts as running for one more lease, and as executed after that. (A mark
-- that ran out and that nobody took is the owner's still.) Returns 0 when another has the key.
--
-- The state stays 'running', which older processes know.
local record = redis.call('HMGET', KEYS[1], 'request', 'state')
if record[1] and (record[1] ~= ARGV[1] or record[2] ~= 'running') then return 0 end
local until_ms = redis.call('TIME')[1] * 1000 + tonumber(ARGV[3])
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[2], 'request', ARGV[1], 'state', 'running', 'claimed', until_ms)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
