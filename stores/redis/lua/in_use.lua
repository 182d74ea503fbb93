-- Puts data that was set aside into use again. KEYS: the mark.
local before = redis.call('HGET', KEYS[1], 'min_reader_before')
if before then redis.call('HSET', KEYS[1], 'min_reader', before) end
return redis.call('HDEL', KEYS[1], 'move', 'min_reader_before')
