// Package setup has what puts jobs of OpenPBS's queues into VMs: the hook, its configuration and installation, and the
// check of what must hold for it. It changes nothing of a PBS by itself.
package setup
