-- Admits a request: takes all its amounts, or none.
-- KEYS: the organization's hash. ARGV: group names…, request, mark of the reservation. The request ends with the
-- group names, because reclaim.lua reads them there.
-- Returns '1' (admitted) or '0', followed by the groups: as they are after the step, or unchanged when nothing was
-- taken. When the reservation exists already, the answer is '1' and nothing is taken again. When give_up.lua came
-- before this call, the answer is '0'.
-- Where the last group is that of a balance, the answer is '2' alone when the balance has to be built first.
local call, pack_, unpack_, floor = redis.call, struct.pack, struct.unpack, math.floor
local request = table.remove(ARGV, #ARGV - 1)
local now, current_day, current_month, groups = unpack_('<dddd', request)
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
if held then return (held == '' and '0' or '1') .. table.concat(found) end
local room = true
local after, set = { '1' }, {}
for index = 1, groups do
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
set[2 * groups + 1] = ARGV[groups + 1]
set[2 * groups + 2] = request
call('HSET', KEYS[1], unpack(set))
return table.concat(after)
