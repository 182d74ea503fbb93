-- Unpacks what the request `q` has for group `g`: capacity and amount of each place.
local
--@each place ,
c_PLACE, n_PLACE
--@end
= unpack_(REQUEST_FORMAT, q, REQUEST_START + (g - 1) * REQUEST_BYTES)
