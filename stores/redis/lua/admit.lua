-- Admits a request: takes all its amounts, or none.
-- KEYS: the organization's hash. ARGV: group names…, request, mark of the reservation. The request ends with the
-- group names, because reclaim.lua reads them there.
-- Returns '1' (admitted) or '0', followed by the groups: as they are after the step, or unchanged when nothing was
-- taken. When the reservation exists already, the answer is '1' and nothing is taken again. When give_up.lua came
-- before this call, the answer is '0'.
-- Where the last group is that of a balance, the answer is '2' alone when the balance has to be built first.
--
-- With an end user: the shared group of users is the last of all groups, and the user's name, how many are kept and for
-- how long (ms) follow the mark. KEYS as users.lua has them. The answer '3' is '1', and the user takes from the shared
-- group.
local call, pack_, unpack_, floor = redis.call, struct.pack, struct.unpack, math.floor
--@each user
local keep = table.remove(ARGV)
local most = tonumber(table.remove(ARGV))
local name = table.remove(ARGV)
--@end
local request = table.remove(ARGV, #ARGV - 1)
local now, current_day, current_month, groups = unpack_('<dddd', request)
--@each user
local shared = table.remove(ARGV, groups)
groups = groups - 1
--@end
local found = call('HMGET', KEYS[1], unpack(ARGV))
local held = found[groups + 1]
found[groups + 1] = nil
--@each balance
local balance = found[groups]
local asked = REQUEST_START + (groups - 1) * REQUEST_BYTES + ASKED_GENERATION_OFFSET
if not held and (not balance or unpack_('<d', balance, GENERATION_OFFSET + 1) ~= unpack_('<d', request, asked)) then
  return '2'
end
--@end
--@include group_fill
--@each user
if held then found[groups + 1] = string.rep('\0', GROUP_BYTES) end
--@end
if held then return (held == '' and '0' or '1') .. table.concat(found) end
local room, last = true, groups
local after, set = { '1' }, {}
--@each user
--@include users
last = groups + 1
--@end
for index = 1, last do
  local
  --@include group
  = unpack_(GROUP_FORMAT, found[index])
  --@include request
  --@include pass
  --@each bucket
  if capacity_PLACE ~= NONE then
    --@include bucket_advance
    --@include take
  else
    --@include bucket_owe
  end
  --@end
  --@each slots
  if capacity_PLACE ~= NONE then
    --@include take
  end
  --@end
  --@each spend
  if capacity_PLACE ~= NONE then
    --@include spend_advance
    --@include take
  end
  --@end
  if room then
    local group = pack_(GROUP_FORMAT,
    --@include group
    )
    after[index + 1] = group
    set[2 * index - 1] = ARGV[index]
    set[2 * index] = group
  end
end
if not room then return '0' .. table.concat(found) end
--@each user
--@include users_enter
--@end
set[2 * groups + 1] = ARGV[groups + 1]
set[2 * groups + 2] = request
call('HSET', KEYS[1], unpack(set))
return table.concat(after)
