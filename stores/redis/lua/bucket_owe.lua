-- For a bucket without a capacity in this request: adds the elapsed time to the refill that is owed (layout.ts). The
-- fraction of a unit is lost, the time is not.
if u_PLACE ~= 0 and e > 0 then
  if p_PLACE > 0 then p_PLACE = 0 end
  p_PLACE = p_PLACE - e
end
