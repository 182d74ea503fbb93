-- Unpacks what the `request` has for the group `index`: capacity and amount of each place.
local
--@each place ,
capacity_PLACE, amount_PLACE
--@end
= unpack_(REQUEST_FORMAT, request, REQUEST_START + (index - 1) * REQUEST_BYTES)
