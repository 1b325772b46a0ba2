-- What somebody owns is asked for in the order of names: without them in its index SQLite takes the primary key and reads all of the kind, for each request of
-- a user and each report of a host.
DROP INDEX objects_owner;
CREATE INDEX objects_owner ON objects (kind, owner, name);
