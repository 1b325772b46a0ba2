// Package steps starts steps of a Slurm job for the job's script in a VM: the script's srun asks, and the host's srun
// runs, as the job's user. Whatever is asked for, all that runs on a host is srun itself with options of an allow-list
// and an environment of our own; the step's command and environment are only data to it, for the `grange exec` that
// Slurm starts in the task's place. It never runs anything else, and nothing of it is trusted because a VM says so.
package steps
