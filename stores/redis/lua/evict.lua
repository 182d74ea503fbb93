-- What the scripts of retained things share. Each has a `keep` of its own: the members of an index have the bytes and
-- the name (`SIZE NAME`), their score is when they end (Unix ms). `bytes()` is the sum of an organization, `add`
-- changes it. Such a script returns {bytes of the organization, evicted, when its next member ends, or -1}.
local function parse(member)
  local size, name = string.match(member, '^(%d+) (.*)$')
  return tonumber(size), name
end
local function evict(cap, most)
  local evicted = 0
  while bytes() > cap and evicted < most do
    local index, member = oldest()
    if not member then
      add(-bytes())
      break
    end
    redis.call('ZREM', index, member)
    local size, name = parse(member)
    add(-size)
    give_up(index, name)
    evicted = evicted + 1
  end
  return evicted
end
local function ends(indexes)
  local first = -1
  for _, index in ipairs(indexes) do
    local head = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
    local at = tonumber(head[2] or -1)
    if at >= 0 and (first < 0 or at < first) then first = at end
  end
  return first
end
