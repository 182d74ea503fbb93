-- Brings a level of spend to the present day or month.
if current_PLACE > period_PLACE then used_PLACE = 0 end
if current_PLACE > period_PLACE or current_PLACE < period_PLACE - FAR_AHEAD then period_PLACE = current_PLACE end
