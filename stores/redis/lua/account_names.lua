-- The names of plans and models in the settings of an organization or of a key, and the sets of who uses a name.
-- `used` is the key of the set of all names.
local function collect(text, into, own)
  -- Most settings of keys name nothing, and need no parsing.
  if not own and not string.find(text, '"model', 1, true) then return end
  local ok, value = pcall(cjson.decode, text)
  if not ok or type(value) ~= 'table' then return end
  if own then
    if type(value.plan) == 'string' then into['plan:' .. value.plan] = true end
  elseif value.status == 'revoked' then return end
  if type(value.models) == 'table' then
    for _, name in ipairs(value.models) do if type(name) == 'string' then into['model:' .. name] = true end end
  end
  if type(value.model_limits) == 'table' then
    for name in pairs(value.model_limits) do if type(name) == 'string' then into['model:' .. name] = true end end
  end
end
local function collectAll(organization)
  local all, fields = {}, redis.call('HGETALL', organization)
  for i = 1, #fields, 2 do
    if fields[i] == 's' then collect(fields[i + 1], all, true)
    elseif string.sub(fields[i], 1, 2) == 'k:' then collect(string.sub(fields[i + 1], 65), all) end
  end
  return all
end
local function use(used, name, id)
  redis.call('ZADD', used .. ':' .. name, 0, id)
  redis.call('SADD', used, name)
end
local function disuse(used, name, id)
  redis.call('ZREM', used .. ':' .. name, id)
  if redis.call('EXISTS', used .. ':' .. name) == 0 then redis.call('SREM', used, name) end
end
