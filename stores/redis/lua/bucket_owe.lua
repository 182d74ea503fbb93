-- For a bucket without a capacity in this request: adds the elapsed time to the refill that is owed (layout.ts). The
-- fraction of a unit is lost, the time is not.
if used_PLACE ~= 0 and elapsed > 0 then
  if part_PLACE > 0 then part_PLACE = 0 end
  part_PLACE = part_PLACE - elapsed
end
