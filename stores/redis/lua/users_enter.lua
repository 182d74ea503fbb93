-- Stores what users.lua has found, with the user's own part of the reservation, and makes him the one admitted last.
local group, head = after[groups + 2], string.sub(request, 1, REQUEST_START - 9)
if elsewhere > 0 then group = with_running(group, running(group) - elsewhere) end
if victim then
  empty[#empty + 1] = victim
  call('HSET', KEYS[2], shared, merged)
end
if #empty > 0 then
  call('ZREM', KEYS[3], unpack(empty))
  for i, user in ipairs(empty) do empty[i] = shared .. ':' .. user end
  call('HDEL', KEYS[2], unpack(empty))
end
-- A count and not the time: of those admitted within one millisecond, too, the last is the last.
local count = call('HINCRBY', KEYS[2], '#', #busy + 1)
for i, user in ipairs(busy) do call('ZADD', KEYS[3], count - #busy - 1 + i, user) end
if target == shared then after[1] = '3' else call('ZADD', KEYS[3], count, name) end
local ends = REQUEST_START + groups * REQUEST_BYTES
call('HSET', KEYS[2], target, group,
  ARGV[groups + 1], head .. pack_('<d', 1) .. string.sub(request, ends, ends + REQUEST_BYTES - 1) .. target)
if not kept then call('SADD', KEYS[4], string.match(shared, '^k:([^:]+):u$')) end
if not kept or floor(unpack_('<d', kept) / 86400000) ~= current_day then
  for i = 2, 4 do call('PEXPIRE', KEYS[i], keep) end
end
request = head .. pack_('<d', groups) .. string.sub(request, REQUEST_START, ends - 1)
  .. table.concat(ARGV, '\0', 1, groups)
