-- Everybody who reads datapoints queues behind one who waits to drop a day. It is tried again instead.
ALTER FUNCTION drop_days(regclass, date) SET lock_timeout = '250ms';
