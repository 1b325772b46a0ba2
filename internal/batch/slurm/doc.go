// Package slurm knows Slurm: how the plug-in is compiled and installed, what must be in its configuration and why, and
// what its hooks do. It never changes slurm.conf unasked.
package slurm
