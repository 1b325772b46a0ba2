-- What each VM writes, less: a farm that starts a thousand of them a second waits for its disk.

-- No table beside the index that holds the same.
CREATE TABLE feed (
    revision BIGINT NOT NULL,
    kind     TEXT COLLATE "C" NOT NULL,
    id       TEXT COLLATE "C" NOT NULL,
    project  TEXT COLLATE "C" NOT NULL,
    host     TEXT COLLATE "C" NOT NULL,
    deleted  BIGINT NOT NULL,
    PRIMARY KEY (revision, kind, id, host)
) WITHOUT ROWID;
INSERT INTO feed SELECT revision, kind, id, project, host, deleted FROM changes;
DROP TABLE changes;
ALTER TABLE feed RENAME TO changes;

-- Lists of an owner's VMs and of a cell's read all of them, which takes a fraction of a second; those that a batch system has booked are looked at
-- every few seconds.
DROP INDEX vms_owner;
DROP INDEX vms_cell;
CREATE INDEX vms_booked ON vms (cell) WHERE booking <> '';

-- A VM enters the list of its host once, and not before it has one.
DROP INDEX vms_host;
CREATE INDEX vms_host ON vms (host) WHERE host <> '';
