-- Begins an exchange with an idempotency key.
-- KEYS: the key's hash. ARGV: fingerprint, request id, lease ms.
-- Returns {state, request id, status, headers, body, whole, what was asked for}. When the owner sends it again, the
-- state is `first` again.
local record = redis.call('HMGET', KEYS[1],
  'fingerprint', 'request', 'state', 'status', 'headers', 'body', 'whole', 'claimed', 'asked')
if not record[1] then
  redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1], 'request', ARGV[2], 'state', 'running')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {'first'}
end
if record[1] ~= ARGV[1] then return {'conflict'} end
if record[3] == 'running' then
  if record[2] == ARGV[2] then return {'first'} end
  if record[8] then
    local time = redis.call('TIME')
    if time[1] * 1000 > tonumber(record[8]) then return {'not_kept', record[2]} end
  end
  return {'running'}
end
if record[3] == 'not_kept' then return {'not_kept', record[2]} end
return {'replay', record[2], record[4], record[5], record[6], record[7], record[9]}
