-- Replies of idempotency keys, and marks of those whose reply is not kept (marks.ts). The script sets `replies` (the
-- index of replies), `sum` (the sum of the bytes of both), `marks` (the index of marks) and `prefix` (of the keys'
-- names).
--
-- The oldest goes: a reply, which leaves a mark, or a mark, while these have more than half. For this each mark is
-- taken as MARK_BASE bytes, because their sum is not kept. So marks of short keys leave replies nearly half, and those
-- of keys of 255 characters may take the place of all. Marks that 0.1.0 left in the same Redis are in no index: they
-- are not counted, and end with their time to live.
local function bytes() return tonumber(redis.call('GET', sum) or 0) end
local function add(size) redis.call('INCRBY', sum, size) end
local function keep(index, ends, size, key)
  if redis.call('ZADD', index, ends, size .. ' ' .. key) == 1 then add(size) end
end
local function mark_size(key) return MARK_BASE + MARK_BYTES_PER_CHARACTER * #key end
local function oldest()
  local reply = redis.call('ZRANGE', replies, 0, 0)[1]
  local mark = redis.call('ZRANGE', marks, 0, 0)[1]
  if mark and (not reply or redis.call('ZCARD', marks) * TWO_MARKS > bytes()) then return marks, mark end
  return replies, reply
end
local function give_up(index, key)
  local name = prefix .. key
  local record = redis.call('HMGET', name, 'state', 'fingerprint', 'request')
  if index == marks then
    if record[1] == 'not_kept' then redis.call('DEL', name) end
  elseif record[1] == 'done' then
    local left = redis.call('PTTL', name)
    -- A hash that has lost its long fields takes twice the memory of a new one.
    redis.call('DEL', name)
    redis.call('HSET', name, 'fingerprint', record[2], 'request', record[3], 'state', 'not_kept')
    redis.call('PEXPIRE', name, left)
    keep(marks, now + left, mark_size(key), key)
  end
end
--@include evict
local function expire(most)
  for _, index in ipairs({replies, marks}) do
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, most)) do
      redis.call('ZREM', index, member)
      add(-parse(member))
    end
  end
end
