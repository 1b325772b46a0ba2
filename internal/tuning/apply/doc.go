// Package apply turns the findings of an audit into exact steps, makes them in a safe order, and takes them back. What
// was there is on disk before anything changes, so an undo works after a kill at any moment. Steps reach files through
// an os.Root only: "/" is the live host, any other directory a recorded one on which programs and the kernel are
// simulated.
//
// It never decides what is wanted, never kills a process and never moves a VM.
package apply
