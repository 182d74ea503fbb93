-- Brings the level of a bucket up to now. When capacity times elapsed time may exceed 2^53, the sum is split as in
-- `refill` of rules.ts. Below that, the product is exact, and so is the remainder (the quotient of such numbers never
-- rounds up to a whole number).
if used_PLACE ~= 0 then
  local time = elapsed
  if part_PLACE < 0 then
    time = elapsed - part_PLACE
    part_PLACE = 0
  end
  local total = time * capacity_PLACE + part_PLACE
  if total < 9e15 then
    part_PLACE = total % WINDOW_MS
    used_PLACE = used_PLACE - (total - part_PLACE) / WINDOW_MS
  else
    local windows = floor(time / WINDOW_MS)
    local rest = time - windows * WINDOW_MS
    local per_ms = floor(capacity_PLACE / WINDOW_MS)
    local parts = rest * (capacity_PLACE - per_ms * WINDOW_MS) + part_PLACE
    local units = floor(parts / WINDOW_MS)
    part_PLACE = parts - units * WINDOW_MS
    if part_PLACE < 0 then
      units = units - 1
      part_PLACE = part_PLACE + WINDOW_MS
    end
    used_PLACE = used_PLACE - (windows * capacity_PLACE + rest * per_ms + units)
  end
  if used_PLACE <= 0 then
    used_PLACE = 0
    part_PLACE = 0
  end
end
