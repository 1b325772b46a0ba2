-- Jobs and workers of hosts that have not ended, as their hosts reported them last.
CREATE TABLE host_jobs (
    host    TEXT COLLATE "C" NOT NULL, -- ID
    id      TEXT COLLATE "C" NOT NULL,
    kind    TEXT COLLATE "C" NOT NULL,
    state   TEXT COLLATE "C" NOT NULL,
    owner   TEXT COLLATE "C" NOT NULL,
    project TEXT COLLATE "C" NOT NULL,
    asked   BIGINT NOT NULL,
    body    TEXT NOT NULL,             -- JSON: all of it
    PRIMARY KEY (host, id)
);
CREATE INDEX host_jobs_asked ON host_jobs (asked, id);
CREATE INDEX host_jobs_id ON host_jobs (id, host);
-- Which job a record is of; '': of none, or of a release before.
ALTER TABLE usage_records ADD COLUMN job TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX usage_job ON usage_records (job) WHERE job <> '';
DROP INDEX usage_ended;
CREATE INDEX usage_ended ON usage_records (ended, id);
CREATE INDEX usage_owner ON usage_records (owner, ended, id);
CREATE INDEX usage_host ON usage_records (host, ended, id);
-- Findings of hosts' audits that came and went. Rule '': the host was audited for the first time.
CREATE TABLE finding_changes (
    host    TEXT COLLATE "C" NOT NULL, -- ID
    at      BIGINT NOT NULL,
    rule    TEXT COLLATE "C" NOT NULL,
    came    BIGINT NOT NULL,
    updated BIGINT NOT NULL,           -- with another release of grange
    PRIMARY KEY (host, at, rule)
);
CREATE INDEX finding_changes_at ON finding_changes (at);
