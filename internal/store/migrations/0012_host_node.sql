-- The name of a host in its batch system, as its agent reports it; '': it reports none.
ALTER TABLE hosts ADD COLUMN node TEXT COLLATE "C" NOT NULL DEFAULT '';
