-- KEYS: organization, ids, version, changes, audit, ids of keys, their state, names, their state, credits, then the
-- digests. ARGV: what a digest's key begins with, id, expected version, settings or '', note for the audit, id and JSON
-- of a credit or '' twice, then id and settings of each key. Everything is checked before anything is written.
--
-- A version is the time in microseconds, or one more than the last. A plain count would give a version a second time
-- after a failover that lost the latest changes, and a gateway that knows the first one would miss the second.
--@include account_names
local prefix, id, settings = ARGV[1], ARGV[2], ARGV[4]
if tonumber(redis.call('HGET', KEYS[1], 'v') or '0') ~= tonumber(ARGV[3]) then return {0} end
if ARGV[6] ~= '' and redis.call('HEXISTS', KEYS[10], ARGV[6]) == 1 then return {-2} end
local digests = #KEYS - 10
for i = 1, digests do
  local owner = redis.call('GET', KEYS[10 + i])
  if owner and owner ~= id .. ' ' .. ARGV[6 + 2 * i] then return {-1, i, owner} end
end
local time = redis.call('TIME')
local former = redis.call('GET', KEYS[3]) or '0'
local latest = math.max(tonumber(former) + 1, time[1] * 1000000 + time[2])
local version = string.format('%.0f', latest)
local before, after = {}, {}
collect(redis.call('HGET', KEYS[1], 's') or '', before, true)
redis.call('SET', KEYS[3], version)
redis.call('HSET', KEYS[1], 'v', version)
if settings ~= '' then redis.call('HSET', KEYS[1], 's', settings) end
collect(redis.call('HGET', KEYS[1], 's') or '', after, true)
for i = 1, digests do
  local key, digest = ARGV[6 + 2 * i], string.sub(KEYS[10 + i], #prefix + 1)
  local known = redis.call('HGET', KEYS[1], 'k:' .. key)
  if known and string.sub(known, 1, 64) ~= digest then redis.call('DEL', prefix .. string.sub(known, 1, 64)) end
  if known then collect(string.sub(known, 65), before) end
  collect(ARGV[7 + 2 * i], after)
  redis.call('HSET', KEYS[1], 'k:' .. key, digest .. ARGV[7 + 2 * i])
  redis.call('SET', KEYS[10 + i], id .. ' ' .. key)
  redis.call('ZADD', KEYS[6], 0, key .. ' ' .. id)
end
local all -- Another key may name a model that this change leaves out.
for name in pairs(before) do
  if not after[name] then
    all = all or collectAll(KEYS[1])
    if not all[name] then disuse(KEYS[8], name, id) end
  end
end
for name in pairs(after) do use(KEYS[8], name, id) end
for _, state in ipairs({KEYS[7], KEYS[9]}) do
  if former == '0' or redis.call('HGET', state, 'v') == former then redis.call('HSET', state, 'v', version) end
end
if ARGV[6] ~= '' then redis.call('HSET', KEYS[10], ARGV[6], ARGV[7]) end
redis.call('ZADD', KEYS[2], 0, id)
redis.call('XADD', KEYS[4], 'MAXLEN', '~', CHANGES_KEPT, version .. '-0', 'o', id)
redis.call('XADD', KEYS[5], '*', 'o', id, 'e', ARGV[5])
return {latest}
