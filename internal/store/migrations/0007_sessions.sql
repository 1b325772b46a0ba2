-- Who is signed in. Of the secret only a hash is here. When a session was used is written without a revision: nobody waits for that.
CREATE TABLE sessions (
    id     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    person TEXT COLLATE "C" NOT NULL,
    used   BIGINT NOT NULL,
    ends   BIGINT NOT NULL,
    body   TEXT NOT NULL -- JSON
);
CREATE INDEX sessions_person ON sessions (person, id);
CREATE INDEX sessions_ends ON sessions (ends);
