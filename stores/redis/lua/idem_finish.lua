-- Ends the first use of an idempotency key.
-- KEYS: the key's hash; the index of replies; the sum of the bytes of both; the index of marks. The scores of an index
-- are when each member expires, Unix ms. ARGV: fingerprint, request id, time to live in ms, the organization's share in
-- bytes, prefix of key names, key, and for a kept reply: status, headers, body, whole, and what was asked for, where
-- that is known. It changes nothing when the lease had expired and another request has taken the key over, and nothing
-- when it is sent again. Returns as evict.lua says, or nothing when it changed nothing.
local record = redis.call('HMGET', KEYS[1], 'request', 'state')
if record[1] and (record[1] ~= ARGV[2] or record[2] ~= 'running') then return {} end
local ttl = tonumber(ARGV[3])
--@include now
local replies, sum, marks, prefix = KEYS[2], KEYS[3], KEYS[4], ARGV[5]
--@include idem_keep
redis.call('DEL', KEYS[1])
expire(EXPIRED_BY_PUT)
local size = mark_size(ARGV[6])
if #ARGV == 6 then
  redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1], 'request', ARGV[2], 'state', 'not_kept')
  keep(KEYS[4], now + ttl, size, ARGV[6])
else
  redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1], 'request', ARGV[2], 'state', 'done',
    'status', ARGV[7], 'headers', ARGV[8], 'body', ARGV[9], 'whole', ARGV[10])
  if ARGV[11] then redis.call('HSET', KEYS[1], 'asked', ARGV[11]) end
  keep(KEYS[2], now + ttl, size + #ARGV[8] + #ARGV[9], ARGV[6])
end
redis.call('PEXPIRE', KEYS[1], ttl)
local evicted = evict(tonumber(ARGV[4]), RETAINED_SLICE)
for i = 2, 4 do redis.call('PEXPIRE', KEYS[i], ttl * 2) end
return {bytes(), evicted, ends({KEYS[2], KEYS[4]})}
