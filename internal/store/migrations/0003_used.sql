-- What the VMs of each project hold that are not to be deleted: to add them up takes as long as there are VMs, and each new one is held against its
-- project's quota while all writers wait.
CREATE TABLE used (
    project TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    vms     BIGINT NOT NULL,
    cpus    BIGINT NOT NULL,
    memory  BIGINT NOT NULL,
    scratch BIGINT NOT NULL
);
INSERT INTO used SELECT project, COUNT(*), SUM(cpus), SUM(memory), SUM(scratch) FROM vms WHERE deleting = 0 GROUP BY project;
