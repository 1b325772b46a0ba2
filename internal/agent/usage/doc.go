// Package usage keeps the records of what VMs of a host have used: one for each VM of a job, and one for each interval
// of a cloud VM. A record is on the disk before its VM runs, and is ended exactly once, whatever becomes of the agent,
// the VM and the host. It decides nothing about VMs, and nothing of a VM waits for it but the disk.
package usage
