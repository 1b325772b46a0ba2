// Package setup has what puts jobs of IBM Spectrum LSF's queues into VMs: the job starter, esub and elim, the lines
// that a site adds to LSF's files, and the check of all of them. It changes nothing of an LSF by itself.
package setup
