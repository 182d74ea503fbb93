-- Adds to an index what gateways of a release that does not keep it have changed, at most `most` organizations, with
-- the function `index(id)` of the script.
-- Its state is a hash: the index has all changes up to the version in the field `v`, of those organizations whose ids
-- are at most `at`; without `at`, of all. First it goes through all organizations, then through what has changed.
if version and not at then
  local entries = redis.call('XRANGE', KEYS[4], version .. '-0', '+', 'COUNT', most + 1)
  if entries[1] and entries[1][1] == version .. '-0' then
    for i = 2, #entries do index(entries[i][2][2]) end
    redis.call('HSET', KEYS[2], 'v', string.match(entries[#entries][1], '^%d+'))
    return #entries > most and 1 or 0
  end
  version = false -- The stream was cut behind that version.
end
if not version then
  at = ''
  redis.call('HSET', KEYS[2], 'v', latest)
end
local ids = redis.call('ZRANGEBYLEX', KEYS[3], at == '' and '-' or '(' .. at, '+', 'LIMIT', 0, most)
for _, id in ipairs(ids) do index(id) end
if #ids < most then redis.call('HDEL', KEYS[2], 'at') else redis.call('HSET', KEYS[2], 'at', ids[#ids]) end
return 1
