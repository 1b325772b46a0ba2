-- Why a record of a host counts for nobody, a word; '': it counts.
ALTER TABLE usage_records ADD COLUMN outside TEXT COLLATE "C" NOT NULL DEFAULT '';
-- When the server took it; 0: before this was kept.
ALTER TABLE usage_records ADD COLUMN came BIGINT NOT NULL DEFAULT 0;
CREATE INDEX usage_outside ON usage_records (host, outside, id) WHERE outside <> '';
-- Since when a VM has been on its host, 0: not known; and the most CPUs that it had there.
ALTER TABLE vms ADD COLUMN placed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE vms ADD COLUMN most_cpus BIGINT NOT NULL DEFAULT 0;
-- Stays of VMs on hosts that are over. They are kept as long as records.
CREATE TABLE places (
    vm      TEXT COLLATE "C" NOT NULL, -- ID
    host    TEXT COLLATE "C" NOT NULL, -- ID
    since   BIGINT NOT NULL,           -- 0: not known
    until   BIGINT NOT NULL,
    project TEXT COLLATE "C" NOT NULL,
    owner   TEXT COLLATE "C" NOT NULL,
    cpus    BIGINT NOT NULL,           -- the most that it had
    PRIMARY KEY (vm, host, since)
);
CREATE INDEX places_until ON places (until);
-- Core seconds that records of a host charge for each hour of a day.
CREATE TABLE usage_hours (
    host  TEXT COLLATE "C" NOT NULL, -- name
    day   TEXT COLLATE "C" NOT NULL, -- in UTC, as 2026-10-20
    hours TEXT NOT NULL,             -- JSON: a list of 24 numbers
    PRIMARY KEY (host, day)
);
CREATE INDEX usage_hours_day ON usage_hours (day);
