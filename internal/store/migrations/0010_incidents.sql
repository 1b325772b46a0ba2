-- Shared records of problems: what each one concerns, and what people said of it. Entries are added, and never changed.
CREATE TABLE incidents (
    id       BIGINT NOT NULL PRIMARY KEY,
    closed   BIGINT NOT NULL,
    opener   TEXT COLLATE "C" NOT NULL,
    touched  BIGINT NOT NULL, -- when its last entry was written
    revision BIGINT NOT NULL,
    body     TEXT NOT NULL    -- JSON
);
CREATE INDEX incidents_closed ON incidents (closed, id);
CREATE INDEX incidents_opener ON incidents (opener);
CREATE TABLE incident_entries (
    incident BIGINT NOT NULL,
    number   BIGINT NOT NULL,
    body     TEXT NOT NULL,   -- JSON
    PRIMARY KEY (incident, number)
);
-- By which words an incident is found: what it concerns by name and ID, and the projects and cells that this is in.
CREATE TABLE incident_words (
    kind     TEXT COLLATE "C" NOT NULL,
    word     TEXT COLLATE "C" NOT NULL,
    incident BIGINT NOT NULL,
    PRIMARY KEY (kind, word, incident)
);
CREATE INDEX incident_words_of ON incident_words (incident);
