-- Computes the milliseconds that have passed for the buckets of a group (`elapsed`), and sets the group's new time.
local elapsed = now - at
if elapsed > 0 or elapsed < -86400000 then at = now end
if elapsed < 0 then elapsed = 0 end
