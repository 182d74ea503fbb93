-- Appends rows to the ledger's stream, each once, and counts what stands in the stream in the sums by hour. `summed` is
-- the id of the last entry that is counted. A gateway of an earlier release appends and counts nothing; the next call
-- counts what stands behind `summed`. So sums are right beside such gateways, and are made of what they left.
--
-- KEYS: the stream; the set of ids that this journal has sent and may not have noted as delivered; `summed`; the months
-- that have sums, with which the keys of sums begin; the hash of what was shipped; with what the keys of last entries
-- begin; the hash of what prepaid rows cost; the months that have sums of tags, as those of sums; the id of the last
-- entry that is in the index of rows; with what the keys of that index begin, in which a list of entries follows for
-- each day of the rows and each organization. ARGV: the oldest stream id to keep, or ''; '1' to replace the set (a
-- living owner offers the same rows until they are taken) or '0' to add to it; the rows as JSON; the number of the
-- oldest month to keep, or ''; the target to which rows must have been shipped before they are removed, or ''; for rows
-- that were not shipped, the oldest stream id to keep, or '' for all; for how long rows are kept, in ms, or ''; the
-- same for the index. Each row is an array of name, value, name, value…, all strings, its request id first. One JSON
-- argument is used because separate arguments took the gateway longer than all other work for a row. Returns 1 when
-- there may be more to count.
local row, sums, tagged, months, latest, indexed = {}, {}, {}, {}, {}, {}
local function monthOf(hour)
  local day = math.floor(hour / 24) + 719468
  local era = math.floor(day / 146097)
  day = day - era * 146097
  local year = math.floor((day - math.floor(day / 1460) + math.floor(day / 36524) - math.floor(day / 146096)) / 365)
  day = day - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local number = (era * 400 + year - 1970) * 12 + math.floor((5 * day + 2) / 153) + 2
  return {number, string.format(':%04d-%02d', 1970 + math.floor(number / 12), number % 12 + 1)}
end
-- Adds the row to the sum of this name in `all`.
local function add(all, org, hour, name)
  local found = all[org]
  if not found then
    found = {}
    all[org] = found
  end
  local sum = found[name]
  if not sum then
    if not months[hour] then months[hour] = monthOf(hour) end
    sum = {hour, SUM_ZEROS}
    found[name] = sum
  end
  sum[2] = sum[2] + 1
  if row.provider_cost then sum[COSTED] = sum[COSTED] + 1 end
  --@each figure
  if row.COLUMN then sum[INDEX] = sum[INDEX] + (tonumber(row.COLUMN) or 0) end
  --@end
end
local function count(entry, fields)
  --@each counted ,
  row.COLUMN
  --@end
  = nil
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
  local name = hour
  --@each text
  .. '\n' .. (row.COLUMN or '')
  --@end
  add(sums, org, hour, name)
  if row.tags then
    for tag, value in pairs(cjson.decode(row.tags)) do
      add(tagged, org, hour, table.concat({hour, tag, value, row.key_id or '', row.model or ''}, '\n'))
    end
  end
end

-- Not in `count`: a gateway of an earlier release may count what stands in the stream, and never appends a prepaid row.
local prepaid = string.find(ARGV[3], '"billing","prepaid"', 1, true)
local function bill(fields)
  local of = {}
  for i = 1, #fields, 2 do of[fields[i]] = fields[i + 1] end
  if of.billing == 'prepaid' then redis.call('HINCRBY', KEYS[7], of.organization, of.cost) end
end

local function index(entry, fields)
  local time, org
  for i = 1, #fields, 2 do
    if fields[i] == 'time' then time = tonumber(fields[i + 1]) end
    if fields[i] == 'organization' then org = fields[i + 1] end
  end
  if not time or not org then return end
  local day = math.floor(time / 86400000)
  local key = string.format('%s%.0f:%s', KEYS[10], day, org)
  local list = indexed[key]
  if not list then
    list = {day = day}
    indexed[key] = list
  end
  list[#list + 1] = entry
end

local ids, appended, offered = {}, {}, {}
local left = 0
local rows = cjson.decode(ARGV[3])
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
for i, fields in ipairs(rows) do
  local id = fields[2]
  ids[i] = id
  if not offered[id] and redis.call('SISMEMBER', KEYS[2], id) == 0 then
    offered[id] = true
    local entry = redis.call('XADD', KEYS[1], '*', unpack(fields))
    if prepaid then bill(fields) end
    appended[#appended + 1] = {entry, fields}
  end
end
-- Hands to `each` what stands behind a mark: the rows of this call, or first what others have left there.
local function catch_up(mark, each)
  local done = redis.call('GET', mark)
  local entries = appended
  if last and last[1] ~= done then
    local most = #rows + COUNTED_TOGETHER
    entries = redis.call('XRANGE', KEYS[1], done and '(' .. done or '-', '+', 'COUNT', most)
    if #entries == most then left = 1 end
  end
  for _, entry in ipairs(entries) do each(entry[1], entry[2]) end
  if #entries > 0 then redis.call('SET', mark, entries[#entries][1]) end
end
catch_up(KEYS[3], count)
catch_up(KEYS[9], index)
local function save(all, base)
  for org, found in pairs(all) do
    for name, sum in pairs(found) do
      local month = months[sum[1]]
      local set = base .. month[2]
      local key = set .. ':' .. org
      local known = redis.call('HGET', key, name)
      if known then
        local at = 2
        for figure in string.gmatch(known, '%d+') do
          sum[at] = sum[at] + figure
          at = at + 1
        end
      else
        redis.call('SADD', set, org)
        redis.call('ZADD', base, month[1], set)
      end
      redis.call('HSET', key, name, string.format(SUM_FORMAT, unpack(sum, 2)))
    end
  end
end
save(sums, KEYS[4])
save(tagged, KEYS[8])
for org, list in pairs(latest) do
  local key = KEYS[6] .. org
  redis.call('LPUSH', key, unpack(list))
  redis.call('LTRIM', key, 0, LAST_RECENT)
  if ARGV[7] ~= '' then redis.call('PEXPIRE', key, ARGV[7]) end
end
for key, list in pairs(indexed) do
  redis.call('RPUSH', key, unpack(list))
  if ARGV[8] ~= '' then redis.call('PEXPIREAT', key, string.format('%.0f', (list.day + 1) * 86400000 + ARGV[8])) end
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
  for _, base in ipairs({KEYS[4], KEYS[8]}) do
    local old = redis.call('ZRANGEBYSCORE', base, '-inf', '(' .. ARGV[4], 'LIMIT', 0, 1)[1]
    if old then
      for _, org in ipairs(redis.call('SPOP', old, COUNTED_TOGETHER)) do redis.call('UNLINK', old .. ':' .. org) end
      if redis.call('EXISTS', old) == 0 then redis.call('ZREM', base, old) end
    end
  end
end
return left
