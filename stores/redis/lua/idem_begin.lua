-- Begins an exchange with an idempotency key.
-- KEYS: the key's hash. ARGV: fingerprint, request id, lease ms.
-- Returns {state, request id, status, headers, body, whole}. When the owner sends it again, the state is `first` again.
local h = redis.call('HMGET', KEYS[1],
  'fingerprint', 'request', 'state', 'status', 'headers', 'body', 'whole', 'claimed', 'asked')
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
