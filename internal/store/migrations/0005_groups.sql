-- The VMs of a server group, by name, which are looked for whenever it is shown or changed. Most VMs are in none, and not in here.
CREATE INDEX vms_group ON vms (project, grp, name) WHERE grp <> '';
