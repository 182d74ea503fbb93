/**
 * The Lua scripts. Each is one atomic step, names what it does by an id so that sending it twice is the same as once, and touches keys of one
 * hash slot only.
 *
 * Levels (stores/limits/rules.ts) are kept in groups (plan.ts): a field of the organization's hash holds the SLOTS levels of one scope, each three
 * little-endian doubles: used, part, at. One field for the organization and one for the key make an admission two reads and two writes instead of
 * forty-four; with a field for each cell the script took twice as long.
 *
 * A request comes as doubles: now, the numbers of buckets, spend cells and slots, then for each cell in that order its place (index of `used` in the
 * levels of the groups named), capacity, windowMs (spend: period index) and amount. `advance` is rules.ts `advance` in Lua; the model test holds them together.
 */
import { SLOTS } from './plan.ts'

const LEVELS = 3 * SLOTS
const BYTES = 8 * LEVELS

/**
 * Reads the groups named from ARGV[`first`] on into one string, `all`. A missing group is zeros: full buckets, free slots, a period long past. One cell is
 * taken out of it and put into `out` at a time: unpacking them all at once into tables took twice as long.
 */
const read = (first: number) => `
local call, pack_, unpack_, floor = redis.call, struct.pack, struct.unpack, math.floor
local groups = #ARGV - ${first - 1}
local found = call('HMGET', KEYS[1], unpack(ARGV, ${first}))
for g = 1, groups do
  if not found[g] then found[g] = string.rep('\\0', ${BYTES}) end
end
local all = groups == 1 and found[1] or table.concat(found)
local out = {}
`

/** Puts the groups together again out of `out` and what was not touched, stores them and leaves them in `found`. */
const write = (first: number) => `
local sub = string.sub
local set = {}
for g = 1, groups do
  local list, m = {}, 1
  local from = g * ${LEVELS} - ${LEVELS - 1}
  for p = from, from + ${LEVELS - 3}, 3 do
    list[m] = out[p] or sub(all, p * 8 - 7, p * 8 + 16)
    m = m + 1
  end
  local group = table.concat(list)
  found[g] = group
  set[2 * g - 1] = ARGV[g + ${first - 1}]
  set[2 * g] = group
end
call('HSET', KEYS[1], unpack(set))
`

/** The next cell of the request q and its level. */
const NEXT = `
local p, capacity, window, amount
p, capacity, window, amount, pos = unpack_('<dddd', q, pos)
local used, part, at = unpack_('<ddd', all, p * 8 - 7)
`
/** rules.ts `advance` of a bucket. */
const ADVANCE_BUCKET = `
local elapsed = now - at
if elapsed > 0 then
  if used ~= 0 then
    local windows = floor(elapsed / window)
    local rest = elapsed - windows * window
    local per_ms = floor(capacity / window)
    local parts = rest * (capacity - per_ms * window) + part
    local units = floor(parts / window)
    part = parts - units * window
    if part < 0 then
      units = units - 1
      part = part + window
    end
    used = used - (windows * capacity + rest * per_ms + units)
    if used <= 0 then
      used = 0
      part = 0
    end
  end
  at = now
elseif used ~= 0 and elapsed < -86400000 then
  at = now
end
`
/** rules.ts `advance` of a spend cell; `window` is the period index. */
const ADVANCE_SPEND = `
if window > at or window < at - 1 then
  used = 0
  at = window
end
`
const TAKE = `
if amount > 0 and used + amount > capacity then room = false end
out[p] = pack_('<ddd', used + amount, part, at)
`

/**
 * KEYS: cells hash; held hash of the lease. ARGV: request id, request, group names…
 * Returns '1' (admitted) or '0', then the groups: after the step, or as they stand when nothing was taken. A reservation that stands is answered again, not
 * taken twice.
 */
export const ADMIT = `${read(3)}
local q = ARGV[2]
local now, buckets, spends, slots, pos = unpack_('<dddd', q)
local room = true
for _ = 1, buckets do ${NEXT} ${ADVANCE_BUCKET} ${TAKE} end
for _ = 1, spends do ${NEXT} ${ADVANCE_SPEND} ${TAKE} end
for _ = 1, slots do ${NEXT} ${TAKE} end
if room and call('HSETNX', KEYS[2], ARGV[1], q .. table.concat(ARGV, '\\0', 3)) == 1 then
  ${write(3)}
  return '1' .. table.concat(found)
end
if not room and call('HEXISTS', KEYS[2], ARGV[1]) == 1 then room = true end
return (room and '1' or '0') .. all
`

const PUT = `
if used <= 0 then
  used = 0
  part = 0
end
out[p] = pack_('<ddd', used, part, at)
`

/**
 * ARGV: request id, request (amount: what was reserved), pairs of doubles (final, period charged), group names…
 * A reservation that was reclaimed meanwhile (an empty value) has had everything given back, so its final figures count in full. Returns 1, or 0 when it is not known.
 */
export const SETTLE = `
local held = redis.call('HGET', KEYS[2], ARGV[1])
if not held then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
local kept = 1
if held == '' then kept = 0 end
${read(4)}
local q = ARGV[2]
local ends, epos = ARGV[3], 1
local now, buckets, spends, slots, pos = unpack_('<dddd', q)
for _ = 1, buckets do ${NEXT} ${ADVANCE_BUCKET}
  local final, charged
  final, charged, epos = unpack_('<dd', ends, epos)
  used = used + final - kept * amount
  ${PUT}
end
for _ = 1, spends do ${NEXT} ${ADVANCE_SPEND}
  local final, charged
  final, charged, epos = unpack_('<dd', ends, epos)
  if at == charged then used = used + final - kept * amount end
  ${PUT}
end
for _ = 1, slots do ${NEXT}
  used = used - kept * amount
  ${PUT}
end
${write(4)}
return 1
`

/**
 * Gives reservations back whole. ARGV: either nothing (all of a dead lease; each leaves an empty value behind, so that a late settlement is
 * still charged) or request ids (never settled later: they go). Returns how many were given back.
 *
 * Nothing is brought up to date here: taking an amount off a level and letting it refill come to the same in either order.
 */
export const RECLAIM = `
local call = redis.call
local ids, values = {}, {}
if #ARGV > 0 then
  ids = ARGV
  values = call('HMGET', KEYS[2], unpack(ARGV))
else
  local all = call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    ids[#ids + 1] = all[i]
    values[#values + 1] = all[i + 1]
  end
end
local levels = {}
local count = 0
for i = 1, #ids do
  local value = values[i]
  if value and value ~= '' then
    count = count + 1
    local _, buckets, spends, slots, pos = struct.unpack('<dddd', value)
    local names = {}
    for name in string.gmatch(string.sub(value, pos + (buckets + spends + slots) * 32), '[^%z]+') do names[#names + 1] = name end
    for c = 1, buckets + spends + slots do
      local place, window, amount
      local place, window, amount
      place, _, window, amount, pos = struct.unpack('<dddd', value, pos)
      local group = math.floor((place - 1) / ${LEVELS})
      local name = names[group + 1]
      local p = place - group * ${LEVELS}
      local l = levels[name]
      if not l then
        l = { struct.unpack('<${'d'.repeat(LEVELS)}', call('HGET', KEYS[1], name) or string.rep('\\0', ${BYTES})) }
        levels[name] = l
      end
      local spend = c > buckets and c <= buckets + spends
      if not spend or l[p + 2] == window then
        l[p] = l[p] - amount
        if l[p] <= 0 then
          l[p] = 0
          l[p + 1] = 0
        end
      end
    end
  end
  if #ARGV == 0 then
    call('HSET', KEYS[2], ids[i], '')
  elseif value then
    call('HDEL', KEYS[2], ids[i])
  end
end
for name, l in pairs(levels) do call('HSET', KEYS[1], name, struct.pack('<${'d'.repeat(LEVELS)}', unpack(l, 1, ${LEVELS}))) end
if #ARGV == 0 and #ids > 0 then call('PEXPIRE', KEYS[2], 7200000) end
return count
`

/**
 * Charges found in a dead instance's journal whose settlement did not arrive. ARGV: request id, then (group, place in it, period index, amount)…
 * Must run after RECLAIM of that lease. Returns 1 when charged.
 */
export const CHARGE = `
local held = redis.call('HGET', KEYS[2], ARGV[1])
if held ~= '' then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
for i = 2, #ARGV, 4 do
  local p, index = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local l = { struct.unpack('<${'d'.repeat(LEVELS)}', redis.call('HGET', KEYS[1], ARGV[i]) or string.rep('\\0', ${BYTES})) }
  if index > l[p + 2] then
    l[p] = 0
    l[p + 2] = index
  end
  if l[p + 2] == index then l[p] = l[p] + tonumber(ARGV[i + 3]) end
  redis.call('HSET', KEYS[1], ARGV[i], struct.pack('<${'d'.repeat(LEVELS)}', unpack(l, 1, ${LEVELS})))
end
return 1
`

/**
 * KEYS: stream; set of ids that this journal has sent and not yet noted as delivered. ARGV: oldest stream id to keep or '', '1' to start the set anew (a living
 * owner offers the same rows until they are taken) or '0' to only add to it, number of fields, field names…, then per row its values. The first value is the request id.
 */
export const APPEND = `
local fields = tonumber(ARGV[3])
local names = {}
for i = 1, fields do names[i] = ARGV[3 + i] end
local ids = {}
local added = 0
for first = 4 + fields, #ARGV, fields do
  local id = ARGV[first]
  ids[#ids + 1] = id
  if redis.call('SISMEMBER', KEYS[2], id) == 0 then
    local pairs_ = {}
    for i = 1, fields do
      local value = ARGV[first + i - 1]
      if value ~= '' then
        pairs_[#pairs_ + 1] = names[i]
        pairs_[#pairs_ + 1] = value
      end
    end
    redis.call('XADD', KEYS[1], '*', unpack(pairs_))
    added = added + 1
  end
end
if ARGV[2] == '1' then redis.call('DEL', KEYS[2]) end
if #ids > 0 then redis.call('SADD', KEYS[2], unpack(ids)) end
redis.call('PEXPIRE', KEYS[2], 604800000)
if ARGV[1] ~= '' then redis.call('XTRIM', KEYS[1], 'MINID', '~', ARGV[1]) end
return added
`

/**
 * KEYS: the key's hash. ARGV: fingerprint, request id, lease ms.
 * Returns {state, request id, status, headers, body, whole}; a repeated send by the owner is `first` again.
 */
export const IDEM_BEGIN = `
local h = redis.call('HMGET', KEYS[1], 'fingerprint', 'request', 'state', 'status', 'headers', 'body', 'whole')
if not h[1] then
  redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1], 'request', ARGV[2], 'state', 'running')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {'first'}
end
if h[1] ~= ARGV[1] then return {'conflict'} end
if h[3] == 'running' then
  if h[2] == ARGV[2] then return {'first'} end
  return {'running'}
end
if h[3] == 'not_kept' then return {'not_kept', h[2]} end
return {'replay', h[2], h[4], h[5], h[6], h[7]}
`

/**
 * KEYS: the key's hash; index of kept replies (score: expiry); their bytes. ARGV: fingerprint, request id, ttl ms, cap bytes, prefix of key names, key, and for a kept reply
 * status, headers, body, whole. A first use whose lease ran out and that another has taken over keeps nothing.
 */
export const IDEM_FINISH = `
local owner = redis.call('HGET', KEYS[1], 'request')
if owner and owner ~= ARGV[2] then return 0 end
local ttl = tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('DEL', KEYS[1])
if #ARGV == 6 then
  redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1], 'request', ARGV[2], 'state', 'not_kept')
  redis.call('PEXPIRE', KEYS[1], ttl)
  return 1
end
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1], 'request', ARGV[2], 'state', 'done', 'status', ARGV[7], 'headers', ARGV[8], 'body', ARGV[9], 'whole', ARGV[10])
redis.call('PEXPIRE', KEYS[1], ttl)
local size = #ARGV[8] + #ARGV[9]
local function drop(member)
  redis.call('ZREM', KEYS[2], member)
  local bytes, key = string.match(member, '^(%d+) (.*)$')
  redis.call('DECRBY', KEYS[3], bytes)
  return key
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 100)) do drop(member) end
redis.call('ZADD', KEYS[2], now + ttl, size .. ' ' .. ARGV[6])
local total = redis.call('INCRBY', KEYS[3], size)
local cap = tonumber(ARGV[4])
while total > cap do
  local oldest = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if not oldest then break end
  local name = ARGV[5] .. drop(oldest)
  if redis.call('HGET', name, 'state') == 'done' then
    redis.call('HDEL', name, 'status', 'headers', 'body', 'whole')
    redis.call('HSET', name, 'state', 'not_kept')
  end
  total = tonumber(redis.call('GET', KEYS[3]))
end
redis.call('PEXPIRE', KEYS[2], ttl * 2)
redis.call('PEXPIRE', KEYS[3], ttl * 2)
return 1
`

/** KEYS: the key's hash. ARGV: request id, lease ms (0: free the key). Only the owner of a running mark renews or frees it. */
export const IDEM_LEASE = `
local h = redis.call('HMGET', KEYS[1], 'request', 'state')
if h[1] ~= ARGV[1] or h[2] ~= 'running' then return 0 end
if ARGV[2] == '0' then return redis.call('DEL', KEYS[1]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
`

/** KEYS: leases that may hold something; this lease's key. ARGV: lease id, life in ms. */
export const LEASE_TAKE = `
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
return 1
`

/** The same, for a lease that was taken before: 0 when it has been declared dead. One that ran out unnoticed lives on. */
export const LEASE_RENEW = `
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
return 1
`

/** KEYS: leases that may hold something; dead ones; a lease's key. ARGV: its id. Declares it dead if it has run out. */
export const LEASE_BURY = `
if redis.call('EXISTS', KEYS[3]) == 1 then return 0 end
return redis.call('SMOVE', KEYS[1], KEYS[2], ARGV[1])
`
