// Package cloud keeps a host's cloud VMs as the server wants them, and without any server as it wanted them last: it
// makes them, takes them over after a restart, moves them to other hosts, tells their guests what they are, and reports
// how they do. It knows nothing of jobs.
package cloud
