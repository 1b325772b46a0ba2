// Package worker is what Slurm's power saving calls, and what watches over it: nodes of a cluster are VMs that agents
// make and end. It asks agents and Slurm for what is, and tells them what to do; it keeps nothing itself, so each of
// its programs may die at any point and be called again. It never makes a VM's node name up: Slurm chooses CLOUD nodes,
// people name dynamic ones.
package worker
