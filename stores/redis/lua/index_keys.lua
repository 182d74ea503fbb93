-- Brings the index of keys up to date (catch_up.lua).
-- KEYS: the index, its state, ids, changes, version. ARGV: what an organization's key begins with, at most how many
-- organizations. Returns 1 when more is to be done.
--@include catch_up_begin
local function index(id)
  for _, field in ipairs(redis.call('HKEYS', ARGV[1] .. id)) do
    if string.sub(field, 1, 2) == 'k:' then redis.call('ZADD', KEYS[1], 0, string.sub(field, 3) .. ' ' .. id) end
  end
end
--@include catch_up
