-- Retained responses and continuation data; values of plugins. KEYS: a hash with the sum `bytes` and, for each kind,
-- the time to live of its last record in ms; the index of each kind, which is also the beginning of its keys' names. A
-- script for one record has the index of its kind once more, as the last key. What was touched lives longer than its
-- score says, and gets its new score when the old one has come. The oldest is the one that was put, or got its score,
-- longest ago.
local indexes = {unpack(KEYS, 2)}
local function bytes() return tonumber(redis.call('HGET', KEYS[1], 'bytes') or 0) end
local function add(size) redis.call('HINCRBY', KEYS[1], 'bytes', size) end
local function oldest()
  local found, member, since
  for _, index in ipairs(indexes) do
    local head = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
    if head[1] then
      local at = tonumber(head[2]) - tonumber(redis.call('HGET', KEYS[1], index) or 0)
      if not since or at < since then found, member, since = index, head[1], at end
    end
  end
  return found, member
end
local function give_up(index, id) redis.call('DEL', index .. ':' .. id) end
--@include evict
local function expire(most)
  for _, index in ipairs(indexes) do
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, most)) do
      local size, id = parse(member)
      local left = redis.call('PTTL', index .. ':' .. id)
      if left > 0 then redis.call('ZADD', index, now + left, member)
      else
        redis.call('ZREM', index, member)
        add(-size)
      end
    end
  end
end
