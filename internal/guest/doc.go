// Package guest is the protocol between a host and grange-guest, both ends. It never starts a process and never touches
// a machine; inside/ does that in the VM.
//
// Virtio-serial ports lead into a VM:
//
//   - the control port, between agent and grange-guest: JSON lines that hand jobs over (control.go);
//   - a job port for each job that runs, between `grange exec` and grange-guest: the job's streams, signals, exit and
//     bound directories, as numbered streams of one Session (session.go). The agent opens it to the caller and never
//     reads it;
//   - the service port, between agent and grange-guest: connections of the VM to services of its host (relay.go).
//
// Any port's host side may vanish at any byte. A Session keeps what the other side has not taken, and a new host side
// carries on where the old one stopped. A job port serves one job after the other: a session begins with the name of
// its job.
package guest

import "strconv"

// ControlPort is the name of the agent's virtio-serial port, as the guest sees it.
const ControlPort = "org.grange.control"

// ServicePort is the name of the port that carries connections to services of the host.
const ServicePort = "org.grange.service"

// BindPort is the port of a directory that comes by sftp.
func BindPort(tag string) string { return "org.grange." + tag }

// JobPort is the name of a job port: they are numbered from 0.
func JobPort(number int) string {
	if number == 0 {
		return "org.grange.job"
	}
	return "org.grange.job." + strconv.Itoa(number)
}

// Streams of a job's Session.
const (
	StreamMessages = 0 // JSON lines: HostMessage to the guest, GuestMessage back
	StreamStdin    = 1
	StreamStdout   = 2
	StreamStderr   = 3
	StreamPublish  = 4  // connections to ports of the VM: see relay
	StreamBind     = 16 // the first bound directory; the next has 17, and so on
)

// MaxBinds bounds the bound directories of one job.
const MaxBinds = 32

// MaxPublished bounds the ports of a VM that its job's caller may connect to.
const MaxPublished = 16
