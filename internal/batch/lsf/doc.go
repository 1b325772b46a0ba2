// Package lsf knows IBM Spectrum LSF: the job starter, esub and elim that put jobs of a queue into VMs, how they are
// installed, what must hold for them, and a driver for the server. It changes nothing of an LSF by itself.
package lsf
