// Package setup changes a Grid Engine cell, and checks it: how a queue is told to start its jobs in VMs and whether it
// really does, its load sensor, how a job is paused and ended, how hosts come and go.
package setup
