-- One text for both engines: TEXT, BIGINT and nothing else. Names are compared byte by byte, as Go does.

-- One row. Each write transaction begins by raising revision, which locks the row: writers come one after the other, and their
-- revisions in the order of their commits, which a sequence would not give.
CREATE TABLE farm (
    id        BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    revision  BIGINT NOT NULL,
    feed_from BIGINT NOT NULL  -- changes has all that is above this revision
);
INSERT INTO farm (id, revision, feed_from) VALUES (1, 0, 0);

CREATE TABLE changes (
    revision BIGINT NOT NULL,
    kind     TEXT COLLATE "C" NOT NULL,
    id       TEXT COLLATE "C" NOT NULL,
    project  TEXT COLLATE "C" NOT NULL,
    host     TEXT COLLATE "C" NOT NULL,
    deleted  BIGINT NOT NULL,
    PRIMARY KEY (revision, kind, id, host)
);

-- The lease of the loops. It has no time of any clock: see lease.go.
CREATE TABLE lease (
    id     BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    holder TEXT COLLATE "C" NOT NULL,
    epoch  BIGINT NOT NULL,
    beat   BIGINT NOT NULL
);
INSERT INTO lease (id, holder, epoch, beat) VALUES (1, '', 0, 0);

CREATE TABLE vms (
    id       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL,
    -- What people want.
    changed  BIGINT NOT NULL, -- the revision at which they last wanted something else
    project  TEXT COLLATE "C" NOT NULL,
    name     TEXT COLLATE "C" NOT NULL,
    owner    TEXT COLLATE "C" NOT NULL,
    grp      TEXT COLLATE "C" NOT NULL,
    network  TEXT COLLATE "C" NOT NULL, -- this and the next four: the lease
    address  TEXT COLLATE "C" NOT NULL,
    bits     BIGINT NOT NULL,           -- of the address that are its network's
    mac      TEXT COLLATE "C" NOT NULL,
    hostname TEXT COLLATE "C" NOT NULL,
    cpus     BIGINT NOT NULL,           -- this and the next two: of the shape, for sums
    memory   BIGINT NOT NULL,
    scratch  BIGINT NOT NULL,
    expires  BIGINT NOT NULL,           -- nanoseconds since 1970; 0: never
    deleting BIGINT NOT NULL,
    wanted   TEXT NOT NULL,             -- JSON: all else
    -- Where it is; written by the placer.
    cell     TEXT COLLATE "C" NOT NULL,
    host     TEXT COLLATE "C" NOT NULL,
    booking  TEXT NOT NULL,
    waiting  TEXT NOT NULL,
    plan     TEXT NOT NULL,             -- JSON
    -- What its host says.
    state    TEXT NOT NULL,
    observed TEXT NOT NULL              -- JSON
);
CREATE UNIQUE INDEX vms_name ON vms (project, name);
CREATE UNIQUE INDEX vms_address ON vms (network, address) WHERE address <> '';
CREATE UNIQUE INDEX vms_hostname ON vms (network, hostname) WHERE hostname <> '';
CREATE UNIQUE INDEX vms_mac ON vms (mac) WHERE mac <> '';
CREATE INDEX vms_host ON vms (host);
CREATE INDEX vms_cell ON vms (cell);
CREATE INDEX vms_owner ON vms (owner);
CREATE INDEX vms_expires ON vms (expires) WHERE expires <> 0;

CREATE TABLE hosts (
    id       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL,
    name     TEXT COLLATE "C" NOT NULL,
    cell     TEXT COLLATE "C" NOT NULL,
    machine  TEXT COLLATE "C" NOT NULL,
    wanted   TEXT NOT NULL, -- JSON: all else that people want
    -- What it says.
    facts    TEXT NOT NULL, -- JSON
    seen     BIGINT NOT NULL,
    clock    BIGINT NOT NULL
);
CREATE UNIQUE INDEX hosts_name ON hosts (name);
CREATE INDEX hosts_machine ON hosts (machine);
CREATE INDEX hosts_cell ON hosts (cell);

-- Small things that are read whole, by their kind and name.
CREATE TABLE objects (
    kind     TEXT COLLATE "C" NOT NULL,
    name     TEXT COLLATE "C" NOT NULL,
    owner    TEXT COLLATE "C" NOT NULL, -- whose it is: the user of a token, the host of a stream
    revision BIGINT NOT NULL,
    body     TEXT NOT NULL,             -- JSON
    PRIMARY KEY (kind, name)
);
CREATE INDEX objects_owner ON objects (kind, owner);

CREATE TABLE subjects (
    subject TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    person  TEXT COLLATE "C" NOT NULL
);
CREATE INDEX subjects_person ON subjects (person);

CREATE TABLE entries (
    id      BIGINT NOT NULL PRIMARY KEY,
    at      BIGINT NOT NULL,
    project TEXT COLLATE "C" NOT NULL,
    who     TEXT COLLATE "C" NOT NULL,
    body    TEXT NOT NULL -- JSON
);
CREATE INDEX entries_project ON entries (project, id);
CREATE INDEX entries_who ON entries (who, id);
CREATE INDEX entries_at ON entries (at);

CREATE TABLE answers (
    who    TEXT COLLATE "C" NOT NULL,
    key    TEXT COLLATE "C" NOT NULL,
    at     BIGINT NOT NULL,
    digest TEXT NOT NULL, -- base64, as is the answer
    answer TEXT NOT NULL,
    PRIMARY KEY (who, key)
);
CREATE INDEX answers_at ON answers (at);
