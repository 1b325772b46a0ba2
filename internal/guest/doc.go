// Package guest is the protocol between a host and grange-guest, both ends. It never starts a process and never touches a
// machine; inside/ does that in the VM.
//
// Two virtio-serial ports lead into a VM:
//
//   - the control port, between agent and grange-guest: JSON lines that hand the job over (control.go);
//   - the job port, between `grange exec` and grange-guest: the job's streams, signals, exit and bound directories, as
//     numbered streams of one Session (session.go). The agent opens it to the caller and never reads it.
//
// Either port's host side may vanish at any byte. A Session keeps what the other side has not taken, and a new host side
// carries on where the old one stopped.
package guest

// Names of the virtio-serial ports, as the guest sees them.
const (
	ControlPort = "org.grange.control"
	JobPort     = "org.grange.job"
)

// Streams of a job's Session.
const (
	StreamMessages = 0 // JSON lines: HostMessage to the guest, GuestMessage back
	StreamStdin    = 1
	StreamStdout   = 2
	StreamStderr   = 3
	StreamBind     = 16 // the first bound directory; the next has 17, and so on
)

// MaxBinds bounds the bound directories of one job.
const MaxBinds = 32
