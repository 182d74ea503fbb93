-- Fills in the missing ones of `groups` groups in `found`. Zeros mean full buckets, free slots and a past period.
for g = 1, groups do
  if not found[g] then found[g] = string.rep('\0', GROUP_BYTES) end
end
