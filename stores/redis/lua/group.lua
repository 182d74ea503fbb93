-- The stored numbers of a group: its time, then `used` of each place, behind it for a bucket also the part of a unit
-- that is refilled, for spend the period (rules.ts).
at
--@each bucket
, used_PLACE, part_PLACE
--@end
--@each slots
, used_PLACE
--@end
--@each spend
, used_PLACE, period_PLACE
--@end
