-- Requests from a file as bench/requests.ts writes it, with a counter in each prompt, so that no two have the same text.
-- Every answer's length is checked, and that it holds the reply's text.
-- wrk -s wrk.lua URL -- FILE FIRST_COUNTER LEAST_BYTES MOST_BYTES TEXT
local before, after = {}, {}
local count, at, counter = 0, 0, 0
local least, most, text = 0, 0, ''
local threads = {}

-- Each thread has a Lua of its own, and so has done(); what they share are global names.
wrong = 0

function setup(thread)
  table.insert(threads, thread)
end

function init(args)
  local file = assert(io.open(args[1], 'rb'))
  counter = tonumber(args[2])
  least, most, text = tonumber(args[3]), tonumber(args[4]), args[5]
  while true do
    local line = file:read('*l')
    if not line then break end
    local pre, post = line:match('^(%d+) (%d+)$')
    count = count + 1
    before[count] = file:read(tonumber(pre))
    after[count] = file:read(tonumber(post))
  end
  file:close()
end

function request()
  at = at % count + 1
  counter = (counter + 1) % 100000000
  return before[at] .. string.format('%08d', counter) .. after[at]
end

function response(status, headers, body)
  if status == 200 and (#body < least or #body > most or not string.find(body, text, 1, true)) then wrong = wrong + 1 end
end

function done(summary, latency)
  local errors, different = summary.errors, 0
  for _, thread in ipairs(threads) do different = different + thread:get('wrong') end
  io.write(string.format(
    '\nreport {"requests":%d,"bytes":%d,"micros":%d,"p50":%d,"p99":%d,"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d,"wrong":%d}\n',
    summary.requests, summary.bytes, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect, errors.read, errors.write, errors.status, errors.timeout, different))
end
