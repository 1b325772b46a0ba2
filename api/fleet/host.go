package fleet

import (
	"time"

	"github.com/grange-project/grange/api"
)

// Capability is what an agent or server of this release understands of the protocol between them. It rises by one with
// each change, and never for anything else:
//
//	1  2026-11-21  enrolment, wanted list, reports, streams
//	2  2026-11-22  VMs move from host to host
//	3  2026-11-23  hosts have a copy of the catalogue of images, and fetch from it
//	4  2026-11-25  hosts filter what VMs send on bridges, and keep networks that isolate or are closed
//	5  2026-11-26  hosts bring records of what VMs have used
//	6  2026-11-27  hosts report jobs that have not ended
//	7  2026-11-28  VMs may have a display
const Capability = 7

// OldestCapability is that of the oldest agents and servers that this release works with: those of the two releases
// before it. There is none yet, so nothing is too old. An agent with an older server says the server's capability.
const OldestCapability = 1

// CapabilityHeader carries the sender's Capability on every request and answer between host and server.
const CapabilityHeader = "Grange-Capability"

// EnrolRequest trades a join token for a certificate. It is the one request that a host makes without one.
type EnrolRequest struct {
	Token string `json:"token"`
	// PKCS #10, DER; its subject is not looked at. None: the connection shows a certificate of the site's
	CSR       []byte    `json:"csr,omitempty"`
	Name      string    `json:"name"`
	MachineID string    `json:"machine_id"`        // hashed
	Replace   bool      `json:"replace,omitempty"` // of a host of this name that was installed anew
	Now       time.Time `json:"now"`               // the host's clock
}

// EnrolAnswer is a host's identity.
type EnrolAnswer struct {
	Host        string   `json:"host"` // its ID
	Name        string   `json:"name"`
	Certificate []byte   `json:"certificate,omitempty"` // PEM, with its chain
	CA          []byte   `json:"ca"`                    // PEM
	Servers     []string `json:"servers"`               // URLs
}

// RenewRequest asks for the next certificate, with the present one.
type RenewRequest struct {
	CSR []byte `json:"csr"`
}

// Facts are what a host says of itself. Unknown fields are passed over.
type Facts struct {
	Version        string     `json:"version"`
	Capability     int        `json:"capability"`
	Instance       string     `json:"instance"` // random, of the agent's process
	Boot           string     `json:"boot"`     // of the kernel
	Now            time.Time  `json:"now"`
	Accelerator    string     `json:"accelerator"`
	Kind           string     `json:"kind"`
	Topology       Topology   `json:"topology"`
	ReservedCPUs   string     `json:"reserved_cpus,omitempty"`
	ReservedMemory uint64     `json:"reserved_memory,omitempty"`
	Taken          []api.Plan `json:"taken,omitempty"`  // what VMs and jobs hold that the server did not place
	Images         []string   `json:"images,omitempty"` // names and digests
	ImageUse       []ImageUse `json:"image_use,omitempty"`
	// bridges, vlan:100-199, and flows:bridge where its kernel follows connections on bridges
	Networks    []string `json:"networks,omitempty"`
	ScratchFree uint64   `json:"scratch_free"`
	Bandwidth   uint64   `json:"bandwidth,omitempty"` // bits a second that its network carries each way
	// of that, what VMs have that the server did not place
	BookedIn    uint64           `json:"booked_in,omitempty"`
	BookedOut   uint64           `json:"booked_out,omitempty"`
	Short       []string         `json:"short,omitempty"`
	FileSystems []HostFileSystem `json:"file_systems,omitempty"`
	// whether the agent has audited its host, and what that found of it, by rule
	Audited  bool          `json:"audited,omitempty"`
	Findings []HostFinding `json:"findings,omitempty"`
	// fingerprints (SHA-256) of the authorities that the host believes about servers
	Trusts []string `json:"trusts,omitempty"`
	// the host's name in its batch system, as its agent is configured; none: it belongs to none
	BatchNode string `json:"batch_node,omitempty"`
}

// HostFinding is what a rule of the tuning audit found of a host itself, not of single VMs.
type HostFinding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity" enum:"advice,warning,fault"`
	Places   int    `json:"places"`
}

// Topology is a host's, in the words of api.Host.
type Topology struct {
	Online   string       `json:"online"`
	CPU      api.CPU      `json:"cpu"`
	Sockets  []api.Socket `json:"sockets"`
	Cores    []api.Core   `json:"cores"`
	Nodes    []api.Node   `json:"nodes"`
	L3       []string     `json:"l3,omitempty"`
	Distance [][]int      `json:"distance,omitempty"`
	// The host's kernel does not report its cores or sockets: each thread is a core then, all on one socket.
	CoresUntold   bool `json:"cores_untold,omitempty"`
	SocketsUntold bool `json:"sockets_untold,omitempty"`
}

// Report is what the agent reports to the server: what has changed on the host. Facts come when they have changed, and
// at each new connection; VMs that have not changed since the last report that was answered may be left out, unless
// Whole.
type Report struct {
	Instance string `json:"instance"`
	// of the wanted list that the host had taken over when it looked at its VMs
	Wanted int64      `json:"wanted_revision,omitempty"`
	Facts  *Facts     `json:"facts,omitempty"`
	VMs    []Observed `json:"vms,omitempty"`
	// VMs is all there is: what is wanted of this host and not in it is not there
	Whole bool `json:"whole,omitempty"`
}

// ReportAnswer paces the host.
type ReportAnswer struct {
	Next float64 `json:"next_seconds"` // until the next report when nothing changes
	// Spread is for a connection that breaks: come back at a random time within it, so that not all hosts come at once.
	Spread float64 `json:"spread_seconds"`
	// Clock is the host's clock minus the server's, in seconds, where they are so far apart that somebody should know.
	Clock float64 `json:"clock_seconds,omitempty"`
	// PEM: whom to believe about servers from now on, where that is not what the host's facts say
	CA []byte `json:"ca,omitempty"`
	// ask for the next certificate now: the present one is of an authority that is replaced
	Renew bool `json:"renew,omitempty"`
}

// Observed is what a host says of a VM.
type Observed struct {
	ID      string    `json:"id"`
	State   string    `json:"state"`
	Reason  string    `json:"reason,omitempty"` // what quotes the guest's console stands in lines behind the first
	Since   time.Time `json:"since"`
	Boots   int       `json:"boots"`
	Builds  int       `json:"builds"`
	Ready   bool      `json:"ready,omitempty"`
	Plan    *api.Plan `json:"plan,omitempty"`
	CPUTime float64   `json:"cpu_seconds,omitempty"`
	Digest  string    `json:"digest,omitempty"`
	// "project/name", of one that the wanted list lacks: the server may not know it
	Name string    `json:"name,omitempty"`
	Move *MoveSide `json:"move,omitempty"` // of one that goes to another host, or comes from there
}

// MoveSide is what one of its two hosts reports of a move.
type MoveSide struct {
	ID      string `json:"id"`
	Phase   string `json:"phase"`
	Reason  string `json:"reason,omitempty"`  // of a failure
	Host    string `json:"host,omitempty"`    // ID of the other host
	Address string `json:"address,omitempty"` // where the target waits, as "192.0.2.7:8445"
	Total   uint64 `json:"total,omitempty"`   // bytes, which grow as the guest writes
	Done    uint64 `json:"done,omitempty"`
}

// Phases of a move. The source's last word is MoveGone or MoveFailed, and final: it is on its disk.
const (
	MoveWaiting = "waiting" // the target has made room, and waits for the source
	MoveCopying = "copying" // the source copies; the guest runs there
	MoveGone    = "gone"    // the source has given the VM away: it runs there never again
	MoveCome    = "come"    // the target has it
	MoveFailed  = "failed"  // the VM stays where it was, or this target cannot have it
)

// WantedList is all that the server wants of a host: level, not edge. What runs on the host as a cloud VM and
// is not in it is left alone, and reported: only Power "deleted" deletes.
type WantedList struct {
	Revision int64         `json:"revision"` // poll again with ?after=
	VMs      []WantedVM    `json:"vms"`
	Streams  []StreamOrder `json:"streams,omitempty"`
	Settings Settings      `json:"settings"`
	Next     float64       `json:"next_seconds"`     // wait so long before the next poll
	Spread   float64       `json:"spread_seconds"`   // as ReportAnswer's
	Closed   bool          `json:"closed,omitempty"` // the host is closed to new VMs: for people who look at the host
	// revision of the catalogue of images, for RouteCatalogue; 0: there is none
	Catalogue int64        `json:"catalogue,omitempty"`
	Images    []ImageOrder `json:"images,omitempty"` // what to do with images
	// all that the server drains of network file systems
	FileSystems []api.FileSystemDrain `json:"file_systems,omitempty"`
}

// Settings are the part of the agents' configuration that the server keeps for all hosts (W9). Nil: as the host's own
// file says.
type Settings struct {
	BootTimeout  *float64          `json:"boot_timeout_seconds,omitempty"`
	DefaultImage *string           `json:"default_image,omitempty"`
	Facts        map[string]string `json:"facts,omitempty"`
}

// WantedVM is a VM as the server wants it on this host.
type WantedVM struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Project string    `json:"project"`
	Owner   string    `json:"owner"`
	Cell    string    `json:"cell,omitempty"` // where it is: its VM may ask
	Power   string    `json:"power"`          // on, off, deleted
	Boots   int       `json:"boots"`
	Builds  int       `json:"builds"`
	Fresh   int       `json:"fresh"`
	Image   string    `json:"image"`
	Digest  string    `json:"image_digest,omitempty"` // of an image of the catalogue: exactly this
	Shape   Shape     `json:"shape"`
	Plan    *api.Plan `json:"plan,omitempty"` // exactly this, or refuse; nil: the host plans
	// the job of the host's batch system that holds the VM's place, as slurm/17: the VM goes where that job is
	Job      string            `json:"job,omitempty"`
	Bridge   string            `json:"bridge,omitempty"`
	Network  string            `json:"network,omitempty"` // of the host, as vlan:120, where that is no bridge of it
	Address  string            `json:"address,omitempty"` // with the length of the prefix
	MAC      string            `json:"mac,omitempty"`
	Gateway  string            `json:"gateway,omitempty"`
	DNS      []string          `json:"dns,omitempty"`
	Isolated bool              `json:"isolated,omitempty"` // from other isolated VMs on the host's bridge
	Closed   bool              `json:"closed,omitempty"`   // off from the local network
	Firewall *Firewall         `json:"firewall,omitempty"` // of its security groups; nil: it is in none
	Hostname string            `json:"hostname"`
	Keys     []string          `json:"keys,omitempty"`
	UserData []byte            `json:"user_data,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
	Move     *MoveOrder        `json:"move,omitempty"`
}

// Firewall is what a VM may begin, and others with it. What no rule lets pass is dropped; answers pass.
type Firewall struct {
	Rules []FirewallRule `json:"rules"`
}

// FirewallRule is a SecurityRule with addresses in the place of groups.
type FirewallRule struct {
	Direction string   `json:"direction"`          // in, out
	Protocol  string   `json:"protocol,omitempty"` // tcp, udp, sctp, icmp; none: any
	Ports     string   `json:"ports,omitempty"`    // as 22, or 8000-8080; none: all
	Peers     []string `json:"peers,omitempty"`    // prefixes; none: whoever
}

// MoveOrder asks one of two hosts for its part of a live migration. The source alone decides that the VM is the
// target's: it writes that down, and then tells the target.
type MoveOrder struct {
	ID string `json:"id"` // of this attempt
	// the VM comes here, and is not this host's before the source says so; false: it goes from here
	Come    bool   `json:"come,omitempty"`
	Host    string `json:"host"`    // ID of the other host, as its certificate has it
	Name    string `json:"name"`    // of the other host, for people
	Address string `json:"address"` // where the target waits; "": it does not yet
	Digest  string `json:"digest"`  // of the VM's image
	// it is not wanted any more: the source says MoveFailed, unless the VM has gone
	Cancel bool `json:"cancel,omitempty"`
}

// StreamOrder asks the host to open a stream to one of its VMs, and to bring it to the server.
type StreamOrder struct {
	ID     string `json:"id"`
	VM     string `json:"vm"`
	Kind   string `json:"kind"` // console, display, or tcp
	Port   int    `json:"port,omitempty"`
	Server string `json:"server"` // URL of the server that waits for it
}

// Kinds of stream.
const (
	StreamConsole = "console"
	StreamDisplay = "display" // the protocol of VNC (RFB, RFC 6143)
	StreamTCP     = "tcp"
)

// The routes between host and server. All but RouteEnrol need the host's certificate.
const (
	RouteEnrol  = "/v1/host/enrol"  // POST EnrolRequest → EnrolAnswer
	RouteRenew  = "/v1/host/renew"  // POST RenewRequest → EnrolAnswer
	RouteReport = "/v1/host/report" // POST Report → ReportAnswer
	// GET ?after=REVISION&instance=ID → WantedList at once when it is another one; 204 when nothing changed for a while
	RouteWanted = "/v1/host/wanted"
	RouteStream = "/v1/host/streams/" // POST + ID, "Upgrade: grange-stream": then bytes both ways
	// GET → Catalogue
	RouteCatalogue = "/v1/host/catalogue"
	RouteBlob      = "/v1/host/blobs/" // GET, HEAD + SHA-256 of a file of an image, in hex; ranges
)
