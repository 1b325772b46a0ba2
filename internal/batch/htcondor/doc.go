// Package htcondor drives HTCondor for the server, and reads what a job's ad asks of grange. Package setup below it has
// what a site configures. It changes no job, and starts nothing but HTCondor's own commands.
package htcondor
