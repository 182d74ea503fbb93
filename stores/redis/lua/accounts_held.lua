-- KEYS: ids. ARGV: ids of organizations; the reply has those that are there.
local held = {}
for _, id in ipairs(ARGV) do if redis.call('ZSCORE', KEYS[1], id) then held[#held + 1] = id end end
return held
