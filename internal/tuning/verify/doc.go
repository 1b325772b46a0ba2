// Package verify compares what was planned, what libvirt says and what the kernel does, for every VM on a host. It is
// pure.
package verify
