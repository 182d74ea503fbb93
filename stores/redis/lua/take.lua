-- Takes the amount from a place, and notes when there is no room for it.
used_PLACE = used_PLACE + amount_PLACE
if amount_PLACE > 0 and used_PLACE > capacity_PLACE then room = false end
