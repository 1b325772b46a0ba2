-- What VMs have used, a row for each record of a host: its numbers for sums, and all of it.
CREATE TABLE usage_records (
    id       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    month    TEXT COLLATE "C" NOT NULL, -- that it counts in, as 2026-10
    late     BIGINT NOT NULL,           -- its own month was closed
    ended    BIGINT NOT NULL,
    kind     TEXT COLLATE "C" NOT NULL,
    owner    TEXT COLLATE "C" NOT NULL,
    project  TEXT COLLATE "C" NOT NULL,
    account  TEXT COLLATE "C" NOT NULL,
    vo       TEXT COLLATE "C" NOT NULL,
    cell     TEXT COLLATE "C" NOT NULL,
    host     TEXT COLLATE "C" NOT NULL,
    hardware TEXT COLLATE "C" NOT NULL,
    cores    BIGINT NOT NULL,
    wall_us  BIGINT NOT NULL,           -- microseconds, as are the next two
    cpu_us   BIGINT NOT NULL,
    job_us   BIGINT NOT NULL,
    masked   BIGINT NOT NULL,           -- the person is not in it any more
    body     TEXT NOT NULL              -- JSON: all of it
);
CREATE INDEX usage_month ON usage_records (month, id);
CREATE INDEX usage_ended ON usage_records (ended);
CREATE INDEX usage_unmasked ON usage_records (ended) WHERE masked = 0;
