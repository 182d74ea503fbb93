-- Raises the mark of the layout.
-- KEYS: the mark; the set of leases that may hold something. ARGV: the prefix of lease keys; the new version and
-- min_reader. Returns the old version and min_reader, then the living leases of processes that know only versions below
-- the new min_reader. With any such lease, nothing is changed. (Releases without a mark wrote leases with the value 1.)
local mark = redis.call('HMGET', KEYS[1], 'version', 'min_reader')
local found_version = tonumber(mark[1] or 1)
local found_reader = tonumber(mark[2] or 1)
local version = math.max(found_version, tonumber(ARGV[2]))
local reader = math.max(found_reader, tonumber(ARGV[3]))
local reply = {found_version, found_reader}
if reader > found_reader then
  for _, id in ipairs(redis.call('SMEMBERS', KEYS[2])) do
    local knows = redis.call('GET', ARGV[1] .. id)
    if knows and tonumber(knows) < reader then reply[#reply + 1] = id end
  end
end
if #reply == 2 then redis.call('HSET', KEYS[1], 'version', version, 'min_reader', reader) end
return reply
