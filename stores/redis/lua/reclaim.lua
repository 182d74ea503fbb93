-- Gives whole reservations back. KEYS: the organization's hash; for a dead lease also its set of reclaimed marks, so
-- that a late settlement is still charged. ARGV: marks. Returns how many were given back.
local call, pack_, unpack_ = redis.call, struct.pack, struct.unpack
local count = 0
for _, mark in ipairs(ARGV) do
  --@include give_back
  call('HDEL', KEYS[1], mark)
end
if KEYS[2] and count > 0 then call('PEXPIRE', KEYS[2], 7200000) end
return count
