-- Computes the milliseconds that have passed for the buckets of a group (`e`), and sets the new time of the group.
local e = now - at
if e > 0 or e < -86400000 then at = now end
if e < 0 then e = 0 end
