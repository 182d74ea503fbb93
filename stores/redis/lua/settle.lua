-- Settles reservations.
-- KEYS: the organization's hash; the set of marks that reclaim.lua took from the same lease. ARGV: number of groups,
-- their names…, then for each settlement its request (its amounts are what was reserved) with the final figures, and
-- its mark. A reservation that was reclaimed in the meantime has been given back whole, so its final figures are
-- charged in full. An unknown reservation is skipped. Returns how many were settled.
local call, pack_, unpack_, floor = redis.call, struct.pack, struct.unpack, math.floor
local groups = tonumber(ARGV[1])
local due, mine, gone = {}, {}, {}
for i = groups + 2, #ARGV, 2 do
  local mark = ARGV[i + 1]
  local held = not gone[mark] and call('HSTRLEN', KEYS[1], mark) > 0
  if held or call('SREM', KEYS[2], mark) == 1 then
    due[#due + 1] = ARGV[i]
    mine[#due] = held
  end
  if held then
    gone[mark] = true
    gone[#gone + 1] = mark
  end
end
if #due == 0 then return 0 end
local found = call('HMGET', KEYS[1], unpack(ARGV, 2, groups + 1))
--@include group_fill
local set = {}
for index = 1, groups do
  local
  --@include group
  = unpack_(GROUP_FORMAT, found[index])
  for i = 1, #due do
    local request, held = due[i], mine[i]
    local now, current_day, current_month = unpack_('<ddd', request)
    --@include request
    local
    --@each place
    final_PLACE,
    --@end
    charged_day, charged_month = unpack_(FINALS_FORMAT, request,
      REQUEST_START + groups * REQUEST_BYTES + (index - 1) * FINALS_BYTES)
    --@include pass
    --@each bucket
    if capacity_PLACE ~= NONE then
      --@include bucket_advance
      used_PLACE = used_PLACE + final_PLACE - (held and amount_PLACE or 0)
      if used_PLACE <= 0 then used_PLACE, part_PLACE = 0, 0 end
    else
      --@include bucket_owe
    end
    --@end
    --@each slots
    if capacity_PLACE ~= NONE then
      -- A slot is held only while the request runs: its final figure is 0. That of a balance stays taken.
      used_PLACE = used_PLACE + final_PLACE - (held and amount_PLACE or 0)
      if used_PLACE <= 0 then used_PLACE = 0 end
    end
    --@end
    --@each spend
    if capacity_PLACE ~= NONE then
      --@include spend_advance
      if period_PLACE == charged_PLACE then
        used_PLACE = used_PLACE + final_PLACE - (held and amount_PLACE or 0)
        if used_PLACE <= 0 then used_PLACE = 0 end
      end
    end
    --@end
  end
  set[2 * index - 1] = ARGV[index + 1]
  set[2 * index] = pack_(GROUP_FORMAT,
  --@include group
  )
end
call('HSET', KEYS[1], unpack(set))
if #gone > 0 then call('HDEL', KEYS[1], unpack(gone)) end
return #due
