-- KEYS: the key's hash. ARGV: request id, lease ms (0: free the key), fingerprint. Only the owner of a running mark
-- renews or frees it; one that ran out and that nobody took is set again. Returns 0 when another has the key.
local record = redis.call('HMGET', KEYS[1], 'request', 'state', 'claimed')
if not record[1] and ARGV[2] ~= '0' then
  redis.call('HSET', KEYS[1], 'fingerprint', ARGV[3], 'request', ARGV[1], 'state', 'running')
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if record[1] ~= ARGV[1] or record[2] ~= 'running' then return 0 end
if ARGV[2] == '0' then return redis.call('DEL', KEYS[1]) end
if record[3] then return 1 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
