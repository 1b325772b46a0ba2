// Package agent keeps one host's VMs as wanted. It owns the ledger of threads, memory and pages, makes a VM for each
// job, and answers on a local socket. What it knows it can find again: every VM carries its record in the hypervisor's
// metadata, so an agent that was killed lists what runs, rebuilds the ledger, and goes on.
//
// It is never in the way of a job's bytes: `grange exec` connects to the VM's job port itself.
package agent
