-- The stored numbers of a group: its time, then used for each place; for a bucket also the part, for spend the period.
at
--@each bucket
, u_PLACE, p_PLACE
--@end
--@each slots
, u_PLACE
--@end
--@each spend
, u_PLACE, a_PLACE
--@end
