-- Which job of its cell's batch system a record is of, as slurm/17; '': of none, or nobody may know any more.
ALTER TABLE usage_records ADD COLUMN batch TEXT COLLATE "C" NOT NULL DEFAULT '';
-- How the host was tuned, a digest; '': not known. Scores of a core depend on it.
ALTER TABLE usage_records ADD COLUMN tuning TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX usage_batch ON usage_records (cell, batch) WHERE batch <> '';
