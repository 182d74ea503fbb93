-- Builds what is taken of an organization's balance: what its rows cost, and what is reserved. A balance of this
-- generation never falls by it, since it also has what is settled and has no row yet. What the rows cost must be read
-- before this: a row is there only when its reservation is settled.
-- KEYS: the organization's hash. ARGV: group of the balance, cost of the rows, generation.
local call, pack_, unpack_ = redis.call, struct.pack, struct.unpack
local taken, generation = tonumber(ARGV[2]), tonumber(ARGV[3])
for _, mark in ipairs(call('HKEYS', KEYS[1])) do
  local request = string.sub(mark, 1, 1) == '@' and call('HGET', KEYS[1], mark)
  if request and request ~= '' then
    local _, _, _, groups = unpack_('<dddd', request)
    local at = REQUEST_START
    for name in string.gmatch(string.sub(request, REQUEST_START + groups * REQUEST_BYTES), '[^%z]+') do
      if name == ARGV[1] then taken = taken + unpack_('<d', request, at + BALANCE_AMOUNT_OFFSET) end
      at = at + REQUEST_BYTES
    end
  end
end
local group = call('HGET', KEYS[1], ARGV[1]) or string.rep('\0', GROUP_BYTES)
if unpack_('<d', group, GENERATION_OFFSET + 1) == generation then
  taken = math.max(taken, (unpack_('<d', group, TAKEN_OFFSET + 1)))
end
call('HSET', KEYS[1], ARGV[1], string.sub(group, 1, TAKEN_OFFSET) .. pack_('<d', taken)
  .. string.sub(group, TAKEN_OFFSET + 9, GENERATION_OFFSET) .. pack_('<d', generation)
  .. string.sub(group, GENERATION_OFFSET + 9))
return 1
