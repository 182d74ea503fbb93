-- Gives the whole reservation of `mark` back, and counts it in `count`.
-- Levels are not brought up to now here: subtracting an amount and refilling give the same result in either order.
local request = call('HGET', KEYS[1], mark)
if request and request ~= '' then
  count = count + 1
  local _, current_day, current_month, groups = unpack_('<dddd', request)
  local index = 0
  for name in string.gmatch(string.sub(request, REQUEST_START + groups * REQUEST_BYTES), '[^%z]+') do
    index = index + 1
    local bytes = call('HGET', KEYS[1], name) or string.rep('\0', GROUP_BYTES)
    local
    --@include group
    = unpack_(GROUP_FORMAT, bytes)
    --@include request
    --@each bucket
    if capacity_PLACE ~= NONE then
      used_PLACE = used_PLACE - amount_PLACE
      if used_PLACE <= 0 then used_PLACE, part_PLACE = 0, 0 end
    end
    --@end
    --@each slots
    if capacity_PLACE ~= NONE then
      used_PLACE = used_PLACE - amount_PLACE
      if used_PLACE <= 0 then used_PLACE = 0 end
    end
    --@end
    --@each spend
    if capacity_PLACE ~= NONE and period_PLACE == current_PLACE then
      used_PLACE = used_PLACE - amount_PLACE
      if used_PLACE <= 0 then used_PLACE = 0 end
    end
    --@end
    call('HSET', KEYS[1], name, pack_(GROUP_FORMAT,
    --@include group
    ))
  end
  if KEYS[2] then call('SADD', KEYS[2], mark) end
end
