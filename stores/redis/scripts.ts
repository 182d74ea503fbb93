/**
 * The Lua scripts. Each script is one atomic step. Each identifies its work by an id, so that sending it twice has the
 * same effect as once. Each uses keys of one hash slot only.
 *
 * Levels (stores/limits/rules.ts) are stored in groups (layout.ts). So an admission reads and writes two fields, one
 * for the organization and one for the key, instead of forty-four. The code for each place is written out, without a
 * loop, so that the numbers of a group are local variables, which one call unpacks and one call packs. A loop over
 * cells with two calls for each cell took three times as long.
 *
 * `advanced` is `advance` of rules.ts in Lua. A model test checks that both agree.
 */
import { RECENT_ROWS } from '../../core/store.ts'
import { FAR_AHEAD } from '../limits/rules.ts'
import { MARK_BASE, MARK_BYTES_PER_CHARACTER } from '../marks.ts'
import { FIGURES } from '../usage.ts'
import { FINALS, GROUP_BYTES, GROUP_DOUBLES, HEAD, NONE, PLACE_DOUBLES, PLACES } from './layout.ts'

type Place = (typeof PLACES)[number]

/** The struct format of `count` little-endian doubles, as a Lua string. */
const doubles = (count: number) => `'<${'d'.repeat(count)}'`
/** Lua code for each place. In the code, `#` stands for the number of the place, from 1: `u#` becomes `u1`, `u2` … */
const each = (code: (place: Place) => string, joint = '') =>
  PLACES.map((place, i) => code(place).replaceAll('#', String(i + 1))).join(joint)
/**
 * The variables of a place that are stored: used; for a bucket also the part, for spend also the period. In all scripts
 * u is used, p the part, a the period, c the capacity, n the amount and f the final figure.
 */
const stored = ({ kind }: Place) => (kind === 'bucket' ? 'u#, p#' : kind === 'spend' ? 'u#, a#' : 'u#')

const GROUP = `at, ${each(stored, ', ')}`
const GROUP_FORMAT = doubles(GROUP_DOUBLES)
const REQUEST_BYTES = 8 * PLACE_DOUBLES * PLACES.length

const LOCALS = 'local call, pack_, unpack_, floor = redis.call, struct.pack, struct.unpack, math.floor'
/** Fills in the missing ones of `groups` groups in `found`. Zeros mean full buckets, free slots and a past period. */
const FILL = `
for g = 1, groups do
  if not found[g] then found[g] = string.rep('\\0', ${GROUP_BYTES}) end
end
`
/** Unpacks the stored numbers of a group. */
const UNPACK_GROUP = (bytes: string) => `
local ${GROUP} = unpack_(${GROUP_FORMAT}, ${bytes})`
/** Unpacks what the request `q` has for group `g`: capacity and amount of each place. */
const UNPACK_REQUEST = `
local ${each(() => 'c#, n#', ', ')} = unpack_(${doubles(PLACE_DOUBLES * PLACES.length)}, q, ${8 * HEAD + 1} + (g - 1) * ${REQUEST_BYTES})
`
const PACK = `pack_(${GROUP_FORMAT}, ${GROUP})`
/** Computes the milliseconds that have passed for the buckets of a group (`e`), and sets the new time of the group. */
const PASS = `
local e = now - at
if e > 0 or e < -86400000 then at = now end
if e < 0 then e = 0 end
`

/**
 * Brings the level of a bucket up to now. When capacity times elapsed time may exceed 2^53, the sum is split as in
 * `refill` of rules.ts. Below that, the product is exact, and so is the remainder (the quotient of such numbers never
 * rounds up to a whole number).
 */
const ADVANCE_BUCKET = (windowMs: number) => `
if u# ~= 0 then
  local t = e
  if p# < 0 then
    t = e - p#
    p# = 0
  end
  local x = t * c# + p#
  if x < 9e15 then
    p# = x % ${windowMs}
    u# = u# - (x - p#) / ${windowMs}
  else
    local windows = floor(t / ${windowMs})
    local rest = t - windows * ${windowMs}
    local per_ms = floor(c# / ${windowMs})
    local parts = rest * (c# - per_ms * ${windowMs}) + p#
    local units = floor(parts / ${windowMs})
    p# = parts - units * ${windowMs}
    if p# < 0 then
      units = units - 1
      p# = p# + ${windowMs}
    end
    u# = u# - (windows * c# + rest * per_ms + units)
  end
  if u# <= 0 then
    u# = 0
    p# = 0
  end
end`
/**
 * For a bucket without a capacity in this request: adds the elapsed time to the refill that is owed (layout.ts). The
 * fraction of a unit is lost, the time is not.
 */
const OWE = `
if u# ~= 0 and e > 0 then
  if p# > 0 then p# = 0 end
  p# = p# - e
end`
const ADVANCE_SPEND = (period: 'day' | 'month') => `
if ${period} > a# then u# = 0 end
if ${period} > a# or ${period} < a# - ${FAR_AHEAD[period]} then a# = ${period} end`
/** Brings each place that has a cell up to now, then runs `code` for it. */
const advanced = (code: (place: Place) => string) =>
  PASS +
  each(
    place => `
  if c# ~= ${NONE} then
    ${place.windowMs ? ADVANCE_BUCKET(place.windowMs) : place.period ? ADVANCE_SPEND(place.period) : ''}
    ${code(place)}
  ${place.windowMs ? `else ${OWE}` : ''}
  end`,
  )
/** Sets a level to zero. */
const EMPTY = ({ kind }: Place) => (kind === 'bucket' ? 'u#, p# = 0, 0' : 'u# = 0')

/**
 * Admits a request: takes all its amounts, or none.
 * KEYS: the organization's hash. ARGV: group names…, request, mark of the reservation. The request ends with the group
 * names, because RECLAIM reads them there.
 * Returns '1' (admitted) or '0', followed by the groups: as they are after the step, or unchanged when nothing was
 * taken. When the reservation exists already, the answer is '1' and nothing is taken again. When GIVE_UP came before
 * this call, the answer is '0'.
 */
export const ADMIT = `
${LOCALS}
local q = table.remove(ARGV, #ARGV - 1)
local now, day, month, groups = unpack_('<dddd', q)
local found = call('HMGET', KEYS[1], unpack(ARGV))
local held = found[groups + 1]
found[groups + 1] = nil
${FILL}
if held then return (held == '' and '0' or '1') .. table.concat(found) end
local room = true
local after, set = { '1' }, {}
for g = 1, groups do
  ${UNPACK_GROUP('found[g]')}
  ${UNPACK_REQUEST}
  ${advanced(
    () => `
    u# = u# + n#
    if n# > 0 and u# > c# then room = false end`,
  )}
  if room then
    local group = ${PACK}
    after[g + 1] = group
    set[2 * g - 1] = ARGV[g]
    set[2 * g] = group
  end
end
if not room then return '0' .. table.concat(found) end
set[2 * groups + 1] = ARGV[groups + 1]
set[2 * groups + 2] = q
call('HSET', KEYS[1], unpack(set))
return table.concat(after)
`

/**
 * Settles reservations.
 * KEYS: the organization's hash; the set of marks that RECLAIM took from the same lease. ARGV: number of groups, their
 * names…, then for each settlement its request (its amounts are what was reserved) with the final figures, and its
 * mark. A reservation that was reclaimed in the meantime has been given back whole, so its final figures are charged in
 * full. An unknown reservation is skipped. Returns how many were settled.
 */
export const SETTLE = `
${LOCALS}
local groups = tonumber(ARGV[1])
local due, mine, gone = {}, {}, {}
for i = groups + 2, #ARGV, 2 do
  local mark = ARGV[i + 1]
  local held = not gone[mark] and call('HSTRLEN', KEYS[1], mark) > 0
  if held or call('SREM', KEYS[2], mark) == 1 then
    due[#due + 1] = ARGV[i]
    mine[#due] = held
  end
  if held then
    gone[mark] = true
    gone[#gone + 1] = mark
  end
end
if #due == 0 then return 0 end
local found = call('HMGET', KEYS[1], unpack(ARGV, 2, groups + 1))
${FILL}
local set = {}
for g = 1, groups do
  ${UNPACK_GROUP('found[g]')}
  for i = 1, #due do
    local q, held = due[i], mine[i]
    local now, day, month = unpack_('<ddd', q)
    ${UNPACK_REQUEST}
    local ${each(() => 'f#', ', ')}, day_charged, month_charged = unpack_(${doubles(FINALS)}, q, ${8 * HEAD + 1} + groups * ${REQUEST_BYTES} + (g - 1) * ${8 * FINALS})
    ${advanced(
      place => `
    ${place.period ? `if a# == ${place.period}_charged then` : 'do'}
      u# = u# + ${place.kind === 'slots' ? '0' : 'f#'} - (held and n# or 0)
      if u# <= 0 then ${EMPTY(place)} end
    end`,
    )}
  end
  set[2 * g - 1] = ARGV[g + 1]
  set[2 * g] = ${PACK}
end
call('HSET', KEYS[1], unpack(set))
if #gone > 0 then call('HDEL', KEYS[1], unpack(gone)) end
return #due
`

/**
 * Gives whole reservations back. KEYS: the organization's hash; for a dead lease also its set of reclaimed marks, so
 * that a late settlement is still charged. ARGV: marks. Returns how many were given back.
 *
 * GIVE_UP does the same for admissions whose answer was lost. Such an admission may reach Redis later, on a connection
 * that this process has closed and Redis has not yet. So GIVE_UP leaves an empty value under the mark, which makes the
 * admission take nothing. A later RECLAIM removes it.
 *
 * Levels are not brought up to now here: subtracting an amount and refilling give the same result in either order.
 */
export const RECLAIM = reclaim("call('HDEL', KEYS[1], mark)")
export const GIVE_UP = reclaim("call('HSET', KEYS[1], mark, '')")
function reclaim(leave: string): string {
  return `
local call, pack_, unpack_ = redis.call, struct.pack, struct.unpack
local count = 0
for _, mark in ipairs(ARGV) do
  local q = call('HGET', KEYS[1], mark)
  if q and q ~= '' then
    count = count + 1
    local _, day, month, groups = unpack_('<dddd', q)
    local g = 0
    for name in string.gmatch(string.sub(q, ${8 * HEAD + 1} + groups * ${REQUEST_BYTES}), '[^%z]+') do
      g = g + 1
      local bytes = call('HGET', KEYS[1], name) or string.rep('\\0', ${GROUP_BYTES})
      ${UNPACK_GROUP('bytes')}
      ${UNPACK_REQUEST}
      ${each(
        place => `
      if c# ~= ${NONE}${place.period ? ` and a# == ${place.period}` : ''} then
        u# = u# - n#
        if u# <= 0 then ${EMPTY(place)} end
      end`,
      )}
      call('HSET', KEYS[1], name, ${PACK})
    end
    if KEYS[2] then call('SADD', KEYS[2], mark) end
  end
  ${leave}
end
if KEYS[2] and count > 0 then call('PEXPIRE', KEYS[2], 7200000) end
return count
`
}

/** In CHARGE, the place of the period of a cell that is a bucket. */
export const BUCKET = -1
/**
 * Books charges from a dead instance's journal whose settlement did not reach Redis. It must run after RECLAIM.
 * KEYS: the organization's hash; the set of reclaimed marks of the lease. ARGV: mark, then for each charge: group,
 * index of the first double of the cell in the group, period index of spend or BUCKET, amount. A bucket is charged only
 * in a group that is there, as it is when a reservation had a cell in it. Returns 1 when charged.
 */
export const CHARGE = `
if redis.call('SREM', KEYS[2], ARGV[1]) == 0 then return 0 end
for i = 2, #ARGV, 4 do
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  local group = stored or string.rep('\\0', ${GROUP_BYTES})
  local from, index = tonumber(ARGV[i + 1]) * 8, tonumber(ARGV[i + 2])
  local used, period = struct.unpack('<dd', group, from + 1)
  if index > period and index ~= ${BUCKET} then
    used = 0
    period = index
  end
  if period == index or index == ${BUCKET} then used = used + tonumber(ARGV[i + 3]) end
  if stored or index ~= ${BUCKET} then
    redis.call('HSET', KEYS[1], ARGV[i], string.sub(group, 1, from) .. struct.pack('<dd', used, period) .. string.sub(group, from + 17))
  end
end
return 1
`

/** The columns of the ledger that APPEND reads: those that name a sum beside its hour and organization, and all. */
const TEXTS = ['key_id', 'model', 'provider', 'surface', 'outcome']
const COUNTED = ['time', 'organization', ...TEXTS, ...FIGURES]
/** One call of APPEND counts at most this many entries that others have left uncounted, beside its own. */
export const COUNTED_TOGETHER = 200

/**
 * Appends rows to the ledger's stream, each once, and counts what stands in the stream in the sums by hour. `summed` is
 * the id of the last entry that is counted. A gateway of an earlier release appends and counts nothing; the next call
 * counts what stands behind `summed`. So sums are right beside such gateways, and are made of what they left.
 *
 * KEYS: the stream; the set of ids that this journal has sent and may not have noted as delivered; `summed`; the months
 * that have sums, with which the keys of sums begin; the hash of what was shipped; with what the keys of last entries
 * begin. ARGV: the oldest stream id to keep, or ''; '1' to replace the set (a living owner offers the same rows until
 * they are taken) or '0' to add to it; the rows as JSON; the number of the oldest month to keep, or ''; the target to
 * which rows must have been shipped before they are removed, or ''; for rows that were not shipped, the oldest stream id
 * to keep, or '' for all; for how long rows are kept, in ms, or ''. Each row is an array of name, value, name, value…,
 * all strings, its request id first. One JSON argument is used because separate arguments took the gateway longer than all other work for a row. Returns 1
 * when there may be more to count.
 */
export const APPEND = `
local row, sums, months, latest = {}, {}, {}, {}
local function monthOf(hour)
  local day = math.floor(hour / 24) + 719468
  local era = math.floor(day / 146097)
  day = day - era * 146097
  local year = math.floor((day - math.floor(day / 1460) + math.floor(day / 36524) - math.floor(day / 146096)) / 365)
  day = day - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local number = (era * 400 + year - 1970) * 12 + math.floor((5 * day + 2) / 153) + 2
  return {number, string.format('%s:%04d-%02d', KEYS[4], 1970 + math.floor(number / 12), number % 12 + 1)}
end
local function count(entry, fields)
  ${COUNTED.map(name => `row.${name}`).join(', ')} = nil
  for i = 1, #fields, 2 do row[fields[i]] = fields[i + 1] end
  local time, org = tonumber(row.time), row.organization
  if not time or not org then return end
  local list = latest[org]
  if not list then
    list = {}
    latest[org] = list
  end
  list[#list + 1] = entry
  local hour = math.floor(time / 3600000)
  local name = hour .. '\\n' .. ${TEXTS.map(name => `(row.${name} or '')`).join(" .. '\\n' .. ")}
  local found = sums[org]
  if not found then
    found = {}
    sums[org] = found
  end
  local sum = found[name]
  if not sum then
    if not months[hour] then months[hour] = monthOf(hour) end
    sum = {hour, 0, 0, 0, 0, 0, 0, 0, 0}
    found[name] = sum
  end
  sum[2] = sum[2] + 1
  ${FIGURES.map((name, i) => `if row.${name} then sum[${i + 3}] = sum[${i + 3}] + (tonumber(row.${name}) or 0) end`).join('\n  ')}
end

local ids = {}
local left = 0
local rows = cjson.decode(ARGV[3])
local summed = redis.call('GET', KEYS[3])
local before = summed
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local current = not last or last[1] == summed
for i, fields in ipairs(rows) do
  local id = fields[2]
  ids[i] = id
  if redis.call('SISMEMBER', KEYS[2], id) == 0 then
    local entry = redis.call('XADD', KEYS[1], '*', unpack(fields))
    if current then
      count(entry, fields)
      summed = entry
    end
  end
end
if not current then
  local most = #rows + ${COUNTED_TOGETHER}
  local entries = redis.call('XRANGE', KEYS[1], summed and '(' .. summed or '-', '+', 'COUNT', most)
  for _, entry in ipairs(entries) do
    count(entry[1], entry[2])
    summed = entry[1]
  end
  if #entries == most then left = 1 end
end
if summed ~= before then redis.call('SET', KEYS[3], summed) end
for org, found in pairs(sums) do
  for name, sum in pairs(found) do
    local month = months[sum[1]]
    local key = month[2] .. ':' .. org
    local known = redis.call('HGET', key, name)
    if known then
      local at = 2
      for figure in string.gmatch(known, '%d+') do
        sum[at] = sum[at] + figure
        at = at + 1
      end
    else
      redis.call('SADD', month[2], org)
      redis.call('ZADD', KEYS[4], month[1], month[2])
    end
    redis.call('HSET', key, name, string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', unpack(sum, 2)))
  end
end
for org, list in pairs(latest) do
  local key = KEYS[6] .. org
  redis.call('LPUSH', key, unpack(list))
  redis.call('LTRIM', key, 0, ${RECENT_ROWS - 1})
  if ARGV[7] ~= '' then redis.call('PEXPIRE', key, ARGV[7]) end
end
if #ids > 0 then
  if ARGV[2] == '1' then redis.call('DEL', KEYS[2]) end
  redis.call('SADD', KEYS[2], unpack(ids))
  redis.call('PEXPIRE', KEYS[2], 604800000)
end
local keep = ARGV[1]
if keep ~= '' and ARGV[5] ~= '' then
  local shipped = redis.call('HGET', KEYS[5], ARGV[5])
  shipped = string.match(shipped or '', '^[%d-]+') or '0-0'
  if tonumber(string.match(shipped, '^%d+')) < tonumber(keep) then
    local least = ARGV[6]
    if least ~= '' and tonumber(string.match(shipped, '^%d+')) < tonumber(least) then keep = least
    else keep = shipped end
  end
end
if keep ~= '' then redis.call('XTRIM', KEYS[1], 'MINID', '~', keep) end
if ARGV[4] ~= '' then
  local old = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', '(' .. ARGV[4], 'LIMIT', 0, 1)[1]
  if old then
    for _, org in ipairs(redis.call('SPOP', old, ${COUNTED_TOGETHER})) do redis.call('UNLINK', old .. ':' .. org) end
    if redis.call('EXISTS', old) == 0 then redis.call('ZREM', KEYS[4], old) end
  end
end
return left
`

/**
 * Takes or renews the lease of the process that ships the ledger.
 * KEYS: the lease. ARGV: the process, ms; 0 ms ends the lease. Returns 1 when it has the lease, else 0.
 */
export const LEAD = `
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then redis.call('DEL', KEYS[1])
else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return 1
`

/**
 * Begins an exchange with an idempotency key.
 * KEYS: the key's hash. ARGV: fingerprint, request id, lease ms.
 * Returns {state, request id, status, headers, body, whole}. When the owner sends it again, the state is `first` again.
 */
export const IDEM_BEGIN = `
local h = redis.call('HMGET', KEYS[1], 'fingerprint', 'request', 'state', 'status', 'headers', 'body', 'whole', 'claimed', 'asked')
if not h[1] then
  redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1], 'request', ARGV[2], 'state', 'running')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {'first'}
end
if h[1] ~= ARGV[1] then return {'conflict'} end
if h[3] == 'running' then
  if h[2] == ARGV[2] then return {'first'} end
  if h[8] then
    local time = redis.call('TIME')
    if time[1] * 1000 > tonumber(h[8]) then return {'not_kept', h[2]} end
  end
  return {'running'}
end
if h[3] == 'not_kept' then return {'not_kept', h[2]} end
return {'replay', h[2], h[4], h[5], h[6], h[7], h[9]}
`

/** The time in ms, to the microsecond: what is stored within one millisecond leaves in the order in which it came. */
const NOW = `
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
`

/** A script that stores something forgets at most this many members that have expired. */
const EXPIRED_BY_PUT = 20
/** One call evicts at most this many members, and forgets at most this many of each index that have expired. */
export const RETAINED_SLICE = 500

/**
 * What the scripts of retained things share. Each has a `keep` of its own: the members of an index have the bytes and
 * the name (`SIZE NAME`), their score is when they end (Unix ms). `bytes()` is the sum of an organization, `add` changes
 * it. Such a script returns {bytes of the organization, evicted, when its next member ends, or -1}.
 */
const EVICT = `
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
`

/**
 * Replies of idempotency keys, and marks of those whose reply is not kept (marks.ts). The script sets `replies` (the
 * index of replies), `sum` (the sum of the bytes of both), `marks` (the index of marks) and `prefix` (of the keys' names).
 *
 * The oldest goes: a reply, which leaves a mark, or a mark, while these have more than half. So marks cannot take the
 * place of all replies, nor replies that of the marks. Marks that 0.1.0 left in the same Redis are in no index: they are
 * not counted, and end with their time to live.
 */
const IDEM_KEEP = `
local function bytes() return tonumber(redis.call('GET', sum) or 0) end
local function add(size) redis.call('INCRBY', sum, size) end
local function keep(index, ends, size, key)
  if redis.call('ZADD', index, ends, size .. ' ' .. key) == 1 then add(size) end
end
local function mark_size(key) return ${MARK_BASE} + ${MARK_BYTES_PER_CHARACTER} * #key end
local function oldest()
  local reply = redis.call('ZRANGE', replies, 0, 0)[1]
  local mark = redis.call('ZRANGE', marks, 0, 0)[1]
  if mark and (not reply or redis.call('ZCARD', marks) * ${2 * MARK_BASE} > bytes()) then return marks, mark end
  return replies, reply
end
local function give_up(index, key)
  local name = prefix .. key
  local h = redis.call('HMGET', name, 'state', 'fingerprint', 'request')
  if index == marks then
    if h[1] == 'not_kept' then redis.call('DEL', name) end
  elseif h[1] == 'done' then
    local left = redis.call('PTTL', name)
    -- A hash that has lost its long fields takes twice the memory of a new one.
    redis.call('DEL', name)
    redis.call('HSET', name, 'fingerprint', h[2], 'request', h[3], 'state', 'not_kept')
    redis.call('PEXPIRE', name, left)
    keep(marks, now + left, mark_size(key), key)
  end
end
${EVICT}
local function expire(most)
  for _, index in ipairs({replies, marks}) do
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, most)) do
      redis.call('ZREM', index, member)
      add(-parse(member))
    end
  end
end
`

/**
 * Ends the first use of an idempotency key.
 * KEYS: the key's hash; then as IDEM_KEEP has them, whose scores are when each expires, Unix ms. ARGV: fingerprint,
 * request id, time to live in ms, the organization's share in bytes, prefix of key names, key, and for a kept reply:
 * status, headers, body, whole, and what was asked for, where that is known. It changes nothing when the lease had
 * expired and another request has taken the key over, and nothing when it is sent again. Returns as EVICT says, or
 * nothing when it changed nothing.
 */
export const IDEM_FINISH = `
local h = redis.call('HMGET', KEYS[1], 'request', 'state')
if h[1] and (h[1] ~= ARGV[2] or h[2] ~= 'running') then return {} end
local ttl = tonumber(ARGV[3])
${NOW}
local replies, sum, marks, prefix = KEYS[2], KEYS[3], KEYS[4], ARGV[5]
${IDEM_KEEP}
redis.call('DEL', KEYS[1])
expire(${EXPIRED_BY_PUT})
local size = mark_size(ARGV[6])
if #ARGV == 6 then
  redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1], 'request', ARGV[2], 'state', 'not_kept')
  keep(KEYS[4], now + ttl, size, ARGV[6])
else
  redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1], 'request', ARGV[2], 'state', 'done', 'status', ARGV[7], 'headers', ARGV[8], 'body', ARGV[9], 'whole', ARGV[10])
  if ARGV[11] then redis.call('HSET', KEYS[1], 'asked', ARGV[11]) end
  keep(KEYS[2], now + ttl, size + #ARGV[8] + #ARGV[9], ARGV[6])
end
redis.call('PEXPIRE', KEYS[1], ttl)
local evicted = evict(tonumber(ARGV[4]), ${RETAINED_SLICE})
for i = 2, 4 do redis.call('PEXPIRE', KEYS[i], ttl * 2) end
return {bytes(), evicted, ends({KEYS[2], KEYS[4]})}
`

/**
 * Forgets what has expired, and evicts. KEYS: as IDEM_KEEP has them. ARGV: prefix of key names; bytes that may stay.
 * Returns as EVICT says.
 */
export const IDEM_TRIM = `
${NOW}
local replies, sum, marks, prefix = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
${IDEM_KEEP}
expire(${RETAINED_SLICE})
local evicted = evict(tonumber(ARGV[2]), ${RETAINED_SLICE})
return {bytes(), evicted, ends({KEYS[1], KEYS[3]})}
`

/**
 * Retained responses and continuation data. KEYS: a hash with the sum `bytes` and, for each kind, the time to live of
 * its last record in ms; the index of each kind, which is also the beginning of its keys' names. What was touched lives
 * longer than its score says, and gets its new score when the old one has come. The oldest is the one that was put, or
 * got its score, longest ago.
 */
const RECORD_KEEP = `
local indexes = {KEYS[2], KEYS[3], KEYS[4]}
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
${EVICT}
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
`

/**
 * Stores a record. KEYS: as RECORD_KEEP has them; the index of this record's kind. ARGV: id, value, time to live in ms,
 * the organization's share in bytes. Returns as EVICT says.
 */
export const RECORD_PUT = `
${NOW}
${RECORD_KEEP}
local index, name, ttl = KEYS[5], KEYS[5] .. ':' .. ARGV[1], tonumber(ARGV[3])
local before = redis.call('STRLEN', name)
redis.call('SET', name, ARGV[2], 'PX', ttl)
if redis.call('ZREM', index, before .. ' ' .. ARGV[1]) == 1 then add(-before) end
expire(${EXPIRED_BY_PUT})
if redis.call('ZADD', index, now + ttl, #ARGV[2] .. ' ' .. ARGV[1]) == 1 then add(#ARGV[2]) end
redis.call('HSET', KEYS[1], index, ttl)
local evicted = evict(tonumber(ARGV[4]), ${RETAINED_SLICE})
for _, key in ipairs({KEYS[1], index}) do
  if redis.call('PTTL', key) < ttl * 2 then redis.call('PEXPIRE', key, ttl * 2) end
end
return {bytes(), evicted, ends(indexes)}
`

/** Deletes a record. KEYS: as RECORD_KEEP has them; the index of this record's kind. ARGV: id. Returns as EVICT says. */
export const RECORD_DELETE = `
${NOW}
${RECORD_KEEP}
local name = KEYS[5] .. ':' .. ARGV[1]
local size = redis.call('STRLEN', name)
redis.call('DEL', name)
if redis.call('ZREM', KEYS[5], size .. ' ' .. ARGV[1]) == 1 then add(-size) end
return {bytes(), 0, ends(indexes)}
`

/** Forgets what has expired, and evicts. KEYS: as RECORD_KEEP has them. ARGV: bytes that may stay. */
export const RECORD_TRIM = `
${NOW}
${RECORD_KEEP}
expire(${RETAINED_SLICE})
local evicted = evict(tonumber(ARGV[1]), ${RETAINED_SLICE})
if ends(indexes) < 0 then redis.call('DEL', KEYS[1]) end
return {bytes(), evicted, ends(indexes)}
`

/**
 * Reports what organizations have.
 * KEYS: their bytes (sorted set); when each has something to forget (sorted set, Unix ms); the sum. ARGV: the most bytes
 * of all; then for each organization: its id, its bytes, when its next member ends. Returns the sum and, when it is
 * above the most, the organization with the largest share, that share, and the share of the next.
 */
export const SHARES_REPORT = `
local call = redis.call
for i = 2, #ARGV, 3 do
  local org, bytes = ARGV[i], tonumber(ARGV[i + 1])
  local before = tonumber(call('ZSCORE', KEYS[1], org) or 0)
  if bytes > 0 then
    call('ZADD', KEYS[1], bytes, org)
    call('ZADD', KEYS[2], ARGV[i + 2], org)
  else
    call('ZREM', KEYS[1], org)
    call('ZREM', KEYS[2], org)
  end
  call('INCRBY', KEYS[3], bytes - before)
end
local total = tonumber(call('GET', KEYS[3]) or 0)
if total <= tonumber(ARGV[1]) then return {total} end
local largest = call('ZRANGE', KEYS[1], -2, -1, 'WITHSCORES')
local next = #largest == 4 and largest[2] or '0'
return {total, largest[#largest - 1], largest[#largest], next}
`

/**
 * Takes organizations that have something to forget, so that no other process takes them for a while.
 * KEYS: when each has something to forget. ARGV: how many at most; for how long they are taken, ms.
 */
export const SHARES_DUE = `
${NOW}
local orgs = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, org in ipairs(orgs) do redis.call('ZADD', KEYS[1], now + ARGV[2], org) end
return orgs
`

/**
 * KEYS: the key's hash. ARGV: request id, fingerprint, lease ms, ttl ms. The owner of a running mark is about to end,
 * and is fenced: its request id is the token, which is another after a takeover. From now on nobody takes the key over;
 * an owner that dies before IDEM_FINISH counts as running for one more lease, and as executed after that. (A mark that
 * ran out and that nobody took is the owner's still.) Returns 0 when another has the key.
 *
 * The state stays 'running', which older processes know.
 */
export const IDEM_CLAIM = `
local h = redis.call('HMGET', KEYS[1], 'request', 'state')
if h[1] and (h[1] ~= ARGV[1] or h[2] ~= 'running') then return 0 end
local until_ms = redis.call('TIME')[1] * 1000 + tonumber(ARGV[3])
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[2], 'request', ARGV[1], 'state', 'running', 'claimed', until_ms)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
`

/**
 * KEYS: the key's hash. ARGV: request id, lease ms (0: free the key), fingerprint. Only the owner of a running mark
 * renews or frees it; one that ran out and that nobody took is set again. Returns 0 when another has the key.
 */
export const IDEM_LEASE = `
local h = redis.call('HMGET', KEYS[1], 'request', 'state', 'claimed')
if not h[1] and ARGV[2] ~= '0' then
  redis.call('HSET', KEYS[1], 'fingerprint', ARGV[3], 'request', ARGV[1], 'state', 'running')
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if h[1] ~= ARGV[1] or h[2] ~= 'running' then return 0 end
if ARGV[2] == '0' then return redis.call('DEL', KEYS[1]) end
if h[3] then return 1 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
`

/**
 * Raises the mark of the layout.
 * KEYS: the mark; the set of leases that may hold something. ARGV: the prefix of lease keys; the new version and
 * min_reader. Returns the old version and min_reader, then the living leases of processes that know only versions below
 * the new min_reader. With any such lease, nothing is changed. (Releases without a mark wrote leases with the value 1.)
 */
export const MARK = `
local mark = redis.call('HMGET', KEYS[1], 'version', 'min_reader')
local found_version = tonumber(mark[1] or 1)
local found_reader = tonumber(mark[2] or 1)
local version = math.max(found_version, tonumber(ARGV[2]))
local reader = math.max(found_reader, tonumber(ARGV[3]))
local reply = {found_version, found_reader}
if reader > found_reader then
  for _, id in ipairs(redis.call('SMEMBERS', KEYS[2])) do
    local knows = redis.call('GET', ARGV[1] .. id)
    if knows and tonumber(knows) < reader then reply[#reply + 1] = id end
  end
end
if #reply == 2 then redis.call('HSET', KEYS[1], 'version', version, 'min_reader', reader) end
return reply
`

/**
 * Sets the data aside for `sluice store move`, unless a gateway serves from it.
 * KEYS: the mark; the set of leases that may hold something. ARGV: the prefix of lease keys; the new min_reader, which
 * nobody reads; the `MoveMark`. Returns the living leases. With any, nothing is changed.
 */
export const ASIDE = `
local living = {}
for _, id in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  if redis.call('EXISTS', ARGV[1] .. id) == 1 then living[#living + 1] = id end
end
if #living > 0 then return living end
redis.call('HSETNX', KEYS[1], 'version', 1)
redis.call('HSETNX', KEYS[1], 'min_reader_before', redis.call('HGET', KEYS[1], 'min_reader') or 1)
redis.call('HSET', KEYS[1], 'min_reader', ARGV[2], 'move', ARGV[3])
return living
`

/** Puts data that was set aside into use again. KEYS: the mark. */
export const IN_USE = `
local before = redis.call('HGET', KEYS[1], 'min_reader_before')
if before then redis.call('HSET', KEYS[1], 'min_reader', before) end
return redis.call('HDEL', KEYS[1], 'move', 'min_reader_before')
`

const MAY_READ = `
if tonumber(redis.call('HGET', KEYS[3], 'min_reader') or 1) > tonumber(ARGV[3]) then return 0 end
`
/**
 * Takes a new lease.
 * KEYS: the set of leases that may hold something; this lease's key; the mark of the layout. ARGV: lease id, life in
 * ms, version of the layout that this process knows. Returns 0 when this process cannot read the layout.
 */
export const LEASE_TAKE = `
${MAY_READ}
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
return 1
`

/**
 * Renews a lease; keys and arguments as for LEASE_TAKE. Returns 0 also when the lease has been declared dead. A lease
 * that expired but was not declared dead is renewed.
 */
export const LEASE_RENEW = `
${MAY_READ}
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
return 1
`

/**
 * Declares a lease dead if it has expired.
 * KEYS: the set of leases that may hold something; the set of dead leases; the lease's key. ARGV: its id.
 */
export const LEASE_BURY = `
if redis.call('EXISTS', KEYS[3]) == 1 then return 0 end
return redis.call('SMOVE', KEYS[1], KEYS[2], ARGV[1])
`
