-- Ends the script when this process cannot read the layout (lease_take.lua has the keys and arguments).
if tonumber(redis.call('HGET', KEYS[3], 'min_reader') or 1) > tonumber(ARGV[3]) then return 0 end
