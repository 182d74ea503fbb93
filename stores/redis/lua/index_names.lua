-- Brings the index of names up to date (catch_up.lua). What an organization named before a change by a gateway that
-- does not keep the index is not known any more, so it leaves all sets that it is not to be in.
-- KEYS: the index, its state, ids, changes, version. ARGV: what an organization's key begins with, at most how many
-- organizations. Returns 1 when more is to be done.
--@include catch_up_begin
--@include account_names
local known = {}
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do known[#known + 1] = name end
most = math.max(1, math.min(most, math.floor(20000 / (#known + 1))))
local function index(id)
  local all = collectAll(ARGV[1] .. id)
  for _, name in ipairs(known) do if not all[name] then disuse(KEYS[1], name, id) end end
  for name in pairs(all) do use(KEYS[1], name, id) end
end
--@include catch_up
