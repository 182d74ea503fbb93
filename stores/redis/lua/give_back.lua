-- Gives the whole reservation of `mark` back, and counts it in `count`.
-- Levels are not brought up to now here: subtracting an amount and refilling give the same result in either order.
local q = call('HGET', KEYS[1], mark)
if q and q ~= '' then
  count = count + 1
  local _, day, month, groups = unpack_('<dddd', q)
  local g = 0
  for name in string.gmatch(string.sub(q, REQUEST_START + groups * REQUEST_BYTES), '[^%z]+') do
    g = g + 1
    local bytes = call('HGET', KEYS[1], name) or string.rep('\0', GROUP_BYTES)
    local
    --@include group
    = unpack_(GROUP_FORMAT, bytes)
    --@include request
    --@each bucket
    if c_PLACE ~= NONE then
      u_PLACE = u_PLACE - n_PLACE
      if u_PLACE <= 0 then u_PLACE, p_PLACE = 0, 0 end
    end
    --@end
    --@each slots
    if c_PLACE ~= NONE then
      u_PLACE = u_PLACE - n_PLACE
      if u_PLACE <= 0 then u_PLACE = 0 end
    end
    --@end
    --@each spend
    if c_PLACE ~= NONE and a_PLACE == PLACE then
      u_PLACE = u_PLACE - n_PLACE
      if u_PLACE <= 0 then u_PLACE = 0 end
    end
    --@end
    call('HSET', KEYS[1], name, pack_(GROUP_FORMAT,
    --@include group
    ))
  end
  if KEYS[2] then call('SADD', KEYS[2], mark) end
end
