-- KEYS: organization, ids, version, changes, audit, ids of keys, their state, names, their state, what the gateway
-- ignores, ids of removed organizations, ids of removed keys, when organizations leave, credits, then the digests.
-- ARGV: what a digest's key begins with, id, expected version, settings or '', note for the audit, what the gateway
-- ignores or '', when it leaves ('-': it stays, '': as before), '1' to remove it, id and JSON of a credit or '' twice,
-- how many keys to remove and their ids, then id, settings and what is ignored (or '') of each key. Everything is
-- checked before anything is written.
--
-- A version is the time in microseconds, or one more than the last. A plain count would give a version a second time
-- after a failover that lost the latest changes, and a gateway that knows the first one would miss the second.
--@include account_names
local prefix, id, settings, about, leaves, remove = ARGV[1], ARGV[2], ARGV[4], ARGV[6], ARGV[7], ARGV[8] == '1'
if tonumber(redis.call('HGET', KEYS[1], 'v') or '0') ~= tonumber(ARGV[3]) then return {0} end
if ARGV[9] ~= '' and redis.call('HEXISTS', KEYS[14], ARGV[9]) == 1 then return {-3} end
if tonumber(ARGV[3]) == 0 and redis.call('SISMEMBER', KEYS[11], id) == 1 then return {-2, 0} end
local digests, removed = #KEYS - 14, tonumber(ARGV[11])
local first = 12 + removed
for i = 1, digests do
  local owner, key = redis.call('GET', KEYS[14 + i]), ARGV[first + 3 * (i - 1)]
  if owner and owner ~= id .. ' ' .. key then return {-1, i, owner} end
  if redis.call('SISMEMBER', KEYS[12], key) == 1 then return {-2, i} end
end
local time = redis.call('TIME')
local former = redis.call('GET', KEYS[3]) or '0'
local latest = math.max(tonumber(former) + 1, time[1] * 1000000 + time[2])
local version = string.format('%.0f', latest)
local before, after = {}, {}
-- A key that goes is as one that names nothing.
local function drop(key)
  local known = redis.call('HGET', KEYS[1], 'k:' .. key)
  if not known then return end
  collect(string.sub(known, 65), before)
  redis.call('DEL', prefix .. string.sub(known, 1, 64))
  redis.call('HDEL', KEYS[1], 'k:' .. key)
  redis.call('HDEL', KEYS[10], 'k:' .. key)
  redis.call('ZREM', KEYS[6], key .. ' ' .. id)
  redis.call('SADD', KEYS[12], key)
end
collect(redis.call('HGET', KEYS[1], 's') or '', before, true)
redis.call('SET', KEYS[3], version)
if remove then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 2) == 'k:' then drop(string.sub(field, 3)) end
  end
  redis.call('DEL', KEYS[1], KEYS[10], KEYS[12])
  redis.call('ZREM', KEYS[2], id)
  redis.call('SADD', KEYS[11], id)
else
  redis.call('HSET', KEYS[1], 'v', version)
  if settings ~= '' then redis.call('HSET', KEYS[1], 's', settings) end
  if about ~= '' then redis.call('HSET', KEYS[10], 'o', about) end
  collect(redis.call('HGET', KEYS[1], 's') or '', after, true)
  redis.call('ZADD', KEYS[2], 0, id)
end
if remove or leaves == '-' then redis.call('ZREM', KEYS[13], id)
elseif leaves ~= '' then redis.call('ZADD', KEYS[13], leaves, id) end
for i = 1, digests do
  local at = first + 3 * (i - 1)
  local key, digest = ARGV[at], string.sub(KEYS[14 + i], #prefix + 1)
  local known = redis.call('HGET', KEYS[1], 'k:' .. key)
  if known and string.sub(known, 1, 64) ~= digest then redis.call('DEL', prefix .. string.sub(known, 1, 64)) end
  if known then collect(string.sub(known, 65), before) end
  collect(ARGV[at + 1], after)
  redis.call('HSET', KEYS[1], 'k:' .. key, digest .. ARGV[at + 1])
  if ARGV[at + 2] ~= '' then redis.call('HSET', KEYS[10], 'k:' .. key, ARGV[at + 2]) end
  redis.call('SET', KEYS[14 + i], id .. ' ' .. key)
  redis.call('ZADD', KEYS[6], 0, key .. ' ' .. id)
end
for i = 1, removed do drop(ARGV[11 + i]) end
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
if ARGV[9] ~= '' then redis.call('HSET', KEYS[14], ARGV[9], ARGV[10]) end
redis.call('XADD', KEYS[4], 'MAXLEN', '~', CHANGES_KEPT, version .. '-0', 'o', id)
redis.call('XADD', KEYS[5], '*', 'o', id, 'e', ARGV[5])
return {latest}
