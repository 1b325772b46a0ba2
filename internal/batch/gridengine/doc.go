// Package gridengine is all that grange knows of Grid Engine (Son of Grid Engine 8.1, and those of its kind with the
// same qconf): how a queue is told to start its jobs in VMs and whether it really does, its load sensor, how a job is
// ended, how hosts come and go. It runs qconf and its sisters through internal/batch/program, and nothing else.
package gridengine
