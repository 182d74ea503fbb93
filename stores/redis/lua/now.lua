-- The time in ms, to the microsecond: what is stored within one millisecond leaves in the order in which it came.
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
