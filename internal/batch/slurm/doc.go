// Package slurm drives Slurm for the server, and reads the bundles by which Slurm hands jobs with --container over to
// grange exec. Package setup below it has what a site configures, package worker the nodes that are VMs.
package slurm
