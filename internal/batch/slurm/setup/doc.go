// Package setup knows how Slurm is made ready for jobs in VMs: how the plug-in is compiled and installed, what must be
// in Slurm's configuration and why, and what its prolog does. It never changes slurm.conf unasked.
package setup
