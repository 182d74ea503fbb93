-- Fills in the missing ones of `groups` groups in `found`. Zeros mean full buckets, free slots and a past period.
for index = 1, groups do
  if not found[index] then found[index] = string.rep('\0', GROUP_BYTES) end
end
