-- Does what reclaim.lua does, for admissions whose answer was lost: keys, arguments and reply are the same. Such an
-- admission may reach Redis later, on a connection that this process has closed and Redis has not yet. So an empty
-- value is left under the mark, which makes the admission take nothing. A later run of reclaim.lua removes it.
local call, pack_, unpack_ = redis.call, struct.pack, struct.unpack
local count = 0
for _, mark in ipairs(ARGV) do
  --@include give_back
  call('HSET', KEYS[1], mark, '')
end
if KEYS[2] and count > 0 then call('PEXPIRE', KEYS[2], 7200000) end
return count
