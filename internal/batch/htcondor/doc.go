// Package htcondor is what grange knows of HTCondor: the configuration that puts its wrapper in the place of jobs, what
// a job's ad asks for, what a host says of itself, and the driver for a server. It changes no job, and starts nothing
// but HTCondor's own commands.
package htcondor
