// Package pbs knows OpenPBS: the hook that puts every job of a queue into a VM, how it is installed, what must hold for
// it, and a driver for the server. It changes nothing of a PBS by itself.
package pbs
