-- Admits a request: takes all its amounts, or none.
-- KEYS: the organization's hash. ARGV: group names…, request, mark of the reservation. The request ends with the
-- group names, because reclaim.lua reads them there.
-- Returns '1' (admitted) or '0', followed by the groups: as they are after the step, or unchanged when nothing was
-- taken. When the reservation exists already, the answer is '1' and nothing is taken again. When give_up.lua came
-- before this call, the answer is '0'.
local call, pack_, unpack_, floor = redis.call, struct.pack, struct.unpack, math.floor
local q = table.remove(ARGV, #ARGV - 1)
local now, day, month, groups = unpack_('<dddd', q)
local found = call('HMGET', KEYS[1], unpack(ARGV))
local held = found[groups + 1]
found[groups + 1] = nil
--@include group_fill
if held then return (held == '' and '0' or '1') .. table.concat(found) end
local room = true
local after, set = { '1' }, {}
for g = 1, groups do
  local
  --@include group
  = unpack_(GROUP_FORMAT, found[g])
  --@include request
  --@include pass
  --@each bucket
  if c_PLACE ~= NONE then
    --@include bucket_advance
    u_PLACE = u_PLACE + n_PLACE
    if n_PLACE > 0 and u_PLACE > c_PLACE then room = false end
  else
    --@include bucket_owe
  end
  --@end
  --@each slots
  if c_PLACE ~= NONE then
    u_PLACE = u_PLACE + n_PLACE
    if n_PLACE > 0 and u_PLACE > c_PLACE then room = false end
  end
  --@end
  --@each spend
  if c_PLACE ~= NONE then
    --@include spend_advance
    u_PLACE = u_PLACE + n_PLACE
    if n_PLACE > 0 and u_PLACE > c_PLACE then room = false end
  end
  --@end
  if room then
    local group = pack_(GROUP_FORMAT,
    --@include group
    )
    after[g + 1] = group
    set[2 * g - 1] = ARGV[g]
    set[2 * g] = group
  end
end
if not room then return '0' .. table.concat(found) end
set[2 * groups + 1] = ARGV[groups + 1]
set[2 * groups + 2] = q
call('HSET', KEYS[1], unpack(set))
return table.concat(after)
