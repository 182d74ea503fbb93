-- Books charges from a dead instance's journal whose settlement did not reach Redis. It must run after reclaim.lua.
-- KEYS: the organization's hash; the set of reclaimed marks of the lease. ARGV: mark, then for each charge: group,
-- index of the first double of the cell in the group, period index of spend or BUCKET, amount. A bucket is charged only
-- in a group that is there, as it is when a reservation had a cell in it. Returns 1 when charged.
if redis.call('SREM', KEYS[2], ARGV[1]) == 0 then return 0 end
for i = 2, #ARGV, 4 do
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  local group = stored or string.rep('\0', GROUP_BYTES)
  local from, index = tonumber(ARGV[i + 1]) * 8, tonumber(ARGV[i + 2])
  local used, period = struct.unpack('<dd', group, from + 1)
  if index > period and index ~= BUCKET then
    used = 0
    period = index
  end
  if period == index or index == BUCKET then used = used + tonumber(ARGV[i + 3]) end
  if stored or index ~= BUCKET then
    redis.call('HSET', KEYS[1], ARGV[i],
      string.sub(group, 1, from) .. struct.pack('<dd', used, period) .. string.sub(group, from + 17))
  end
end
return 1
