// Package machine has one way from a plan to a machine that runs, for jobs, workers and cloud VMs alike: Define makes
// it with stopped CPUs and proves where the kernel will run it, Run lets it go. With the machine come its ends on the
// host: control port, console and heartbeat, a user and directories; and what all machines of a host share.
package machine
