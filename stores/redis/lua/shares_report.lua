-- Reports what organizations have.
-- KEYS: their bytes (sorted set); when each has something to forget (sorted set, Unix ms); the sum. ARGV: the most
-- bytes of all; then for each organization: its id, its bytes, when its next member ends. Returns the sum and, when it
-- is above the most, the organization with the largest share, that share, and the share of the next.
local call = redis.call
for i = 2, #ARGV, 3 do
  local org, bytes = ARGV[i], tonumber(ARGV[i + 1])
  local before = tonumber(call('ZSCORE', KEYS[1], org) or 0)
  if bytes > 0 then
    call('ZADD', KEYS[1], bytes, org)
    call('ZADD', KEYS[2], ARGV[i + 2], org)
  else
    call('ZREM', KEYS[1], org)
    call('ZREM', KEYS[2], org)
  end
  call('INCRBY', KEYS[3], bytes - before)
end
local total = tonumber(call('GET', KEYS[3]) or 0)
if total <= tonumber(ARGV[1]) then return {total} end
local largest = call('ZRANGE', KEYS[1], -2, -1, 'WITHSCORES')
local next = #largest == 4 and largest[2] or '0'
return {total, largest[#largest - 1], largest[#largest], next}
