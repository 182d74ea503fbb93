-- Finds where a request of an end user takes, and puts that group into `found` (stores/limits/users.ts does the same).
-- KEYS[2]: the hash of the groups of a key's users; KEYS[3]: their names, by the order of their last admissions;
-- KEYS[4]: the keys that have such groups. `shared` is the group of all who are not kept, `name` the user's, `most` how
-- many are kept. Nothing is written before there is room for the request (users_enter.lua).
local nothing = string.rep('\0', GROUP_BYTES)
local target = shared .. ':' .. name
local theirs = call('HMGET', KEYS[2], shared, target)
local others, mine = theirs[1] or nothing, theirs[2]
local kept = mine
local function running(bytes) return (unpack_('<d', bytes, RUNNING_OFFSET + 1)) end
local function with_running(bytes, count)
  return string.sub(bytes, 1, RUNNING_OFFSET) .. pack_('<d', count) .. string.sub(bytes, RUNNING_OFFSET + 9)
end
-- Requests that run in the shared group may be this user's, so they count as his.
local elsewhere = running(others)
local empty, busy, victim, merged = {}, {}, nil, nil
if not mine then
  local index = groups + 1
  --@include request
  local function advanced(bytes)
    local
    --@include group
    = unpack_(GROUP_FORMAT, bytes)
    --@include pass
    --@each bucket
    if capacity_PLACE ~= NONE then
      --@include bucket_advance
    else
      --@include bucket_owe
    end
    --@end
    --@each spend
    if capacity_PLACE ~= NONE then
      --@include spend_advance
    end
    --@end
    return {
    --@include group
    }
  end
  local function is_empty(numbers)
    return
    --@each place
    numbers[USED] == 0 and
    --@end
    true
  end
  local names, fields = call('ZRANGE', KEYS[3], 0, USERS_LOOKED_AT - 1), {}
  for i, user in ipairs(names) do fields[i] = shared .. ':' .. user end
  local groups_of, idle = #names > 0 and call('HMGET', KEYS[2], unpack(fields)) or {}, nil
  for i, user in ipairs(names) do
    local numbers = advanced(groups_of[i] or nothing)
    if groups_of[i] and running(groups_of[i]) > 0 then busy[#busy + 1] = user
    elseif is_empty(numbers) then empty[#empty + 1] = user
    elseif not idle then idle, victim = numbers, user end
  end
  if call('ZCARD', KEYS[3]) - #empty < most then victim = nil
  elseif not victim then target = shared end
  if target == shared then
    mine, elsewhere = others, 0
  else
    local level = advanced(others)
    if victim then
      level[1] = math.max(level[1], idle[1])
      --@each bucket
      if idle[USED] > level[USED] or (idle[USED] == level[USED] and idle[USED + 1] < level[USED + 1]) then
        level[USED], level[USED + 1] = idle[USED], idle[USED + 1]
      end
      --@end
      --@each spend
      level[USED], level[USED + 1] = math.max(level[USED], idle[USED]), math.max(level[USED + 1], idle[USED + 1])
      --@end
      merged = pack_(GROUP_FORMAT, unpack(level))
    end
    mine = with_running(pack_(GROUP_FORMAT, unpack(level)), 0)
  end
end
if elsewhere > 0 then mine = with_running(mine, running(mine) + elsewhere) end
found[groups + 1] = mine
