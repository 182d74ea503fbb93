-- Brings the level of a bucket up to now. When capacity times elapsed time may exceed 2^53, the sum is split as in
-- `refill` of rules.ts. Below that, the product is exact, and so is the remainder (the quotient of such numbers never
-- rounds up to a whole number).
if u_PLACE ~= 0 then
  local t = e
  if p_PLACE < 0 then
    t = e - p_PLACE
    p_PLACE = 0
  end
  local x = t * c_PLACE + p_PLACE
  if x < 9e15 then
    p_PLACE = x % WINDOW_MS
    u_PLACE = u_PLACE - (x - p_PLACE) / WINDOW_MS
  else
    local windows = floor(t / WINDOW_MS)
    local rest = t - windows * WINDOW_MS
    local per_ms = floor(c_PLACE / WINDOW_MS)
    local parts = rest * (c_PLACE - per_ms * WINDOW_MS) + p_PLACE
    local units = floor(parts / WINDOW_MS)
    p_PLACE = parts - units * WINDOW_MS
    if p_PLACE < 0 then
      units = units - 1
      p_PLACE = p_PLACE + WINDOW_MS
    end
    u_PLACE = u_PLACE - (windows * c_PLACE + rest * per_ms + units)
  end
  if u_PLACE <= 0 then
    u_PLACE = 0
    p_PLACE = 0
  end
end
