-- Begins to bring an index up to date, or ends the script when nothing is to be done (catch_up.lua).
local most = tonumber(ARGV[2])
local latest = redis.call('GET', KEYS[5])
if not latest then return 0 end
local version, at = unpack(redis.call('HMGET', KEYS[2], 'v', 'at'))
if version == latest and not at then return 0 end
