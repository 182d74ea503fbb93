-- Brings a level of spend to the present day or month.
if PLACE > a_PLACE then u_PLACE = 0 end
if PLACE > a_PLACE or PLACE < a_PLACE - FAR_AHEAD then a_PLACE = PLACE end
