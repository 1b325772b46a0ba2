package fleet

import (
	"time"

	"github.com/grange-project/grange/api"
)

// Capability is what an agent or server of this release understands of the protocol between them. It rises by one with each change, and
// never for anything else:
//
//	1  2026-11-21  enrolment, wanted list, reports, streams
const Capability = 1

// CapabilityHeader carries the sender's Capability on every request and answer between host and server.
const CapabilityHeader = "Grange-Capability"

// EnrolRequest trades a join token for a certificate. It is the one request that a host makes without one.
type EnrolRequest struct {
	Token     string    `json:"token"`
	CSR       []byte    `json:"csr,omitempty"` // PKCS #10, DER; its subject is not looked at. None: the connection shows a certificate of the site's
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
	Taken          []api.Plan `json:"taken,omitempty"`    // what VMs and jobs hold that the server did not place
	Images         []string   `json:"images,omitempty"`   // names and digests
	Networks       []string   `json:"networks,omitempty"` // bridges
	ScratchFree    uint64     `json:"scratch_free"`
	Short          []string   `json:"short,omitempty"`
	Trusts         []string   `json:"trusts,omitempty"` // fingerprints (SHA-256) of the authorities that the host believes about servers
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
	// What the host's kernel does not tell is taken to be plain.
	CoresUntold   bool `json:"cores_untold,omitempty"`
	SocketsUntold bool `json:"sockets_untold,omitempty"`
}

// Report tells the server what has changed on the host. Facts come when they have changed, and at each new connection; VMs that have not
// changed since the last report that was answered may be left out, unless Whole.
type Report struct {
	Instance string     `json:"instance"`
	Wanted   int64      `json:"wanted_revision,omitempty"` // of the wanted list that the host had taken over when it looked at its VMs
	Facts    *Facts     `json:"facts,omitempty"`
	VMs      []Observed `json:"vms,omitempty"`
	Whole    bool       `json:"whole,omitempty"` // VMs is all there is: what is wanted of this host and not in it is not there
}

// ReportAnswer paces the host.
type ReportAnswer struct {
	Next float64 `json:"next_seconds"` // until the next report when nothing changes
	// Spread is for a connection that breaks: come back at a random time within it, so that not all hosts come at once.
	Spread float64 `json:"spread_seconds"`
	// Clock is the host's clock minus the server's, in seconds, where they are so far apart that somebody should know.
	Clock float64 `json:"clock_seconds,omitempty"`
	CA    []byte  `json:"ca,omitempty"`    // PEM: whom to believe about servers from now on, where that is not what the host's facts say
	Renew bool    `json:"renew,omitempty"` // ask for the next certificate now: the present one is of an authority that is replaced
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
	Name    string    `json:"name,omitempty"` // "project/name", of one that the wanted list lacks: the server may not know it
}

// WantedList is all that the server wants of a host: level, not edge. What runs on the host as a VM of the server and is not in it is
// left alone, and reported: only Power "deleted" deletes.
type WantedList struct {
	Revision int64         `json:"revision"` // poll again with ?after=
	VMs      []WantedVM    `json:"vms"`
	Streams  []StreamOrder `json:"streams,omitempty"`
	Settings Settings      `json:"settings"`
	Next     float64       `json:"next_seconds"`     // wait so long before the next poll
	Spread   float64       `json:"spread_seconds"`   // as ReportAnswer's
	Closed   bool          `json:"closed,omitempty"` // the host is closed to new VMs: for people who look at the host
}

// Settings are the part of the agents' configuration that the server keeps for all hosts (W9). Nil: as the host's own file says.
type Settings struct {
	BootTimeout  *float64          `json:"boot_timeout_seconds,omitempty"`
	DefaultImage *string           `json:"default_image,omitempty"`
	Facts        map[string]string `json:"facts,omitempty"`
}

// WantedVM is a VM as the server wants it on this host.
type WantedVM struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Project  string            `json:"project"`
	Owner    string            `json:"owner"`
	Cell     string            `json:"cell,omitempty"` // where it is: its VM may ask
	Power    string            `json:"power"`          // on, off, deleted
	Boots    int               `json:"boots"`
	Builds   int               `json:"builds"`
	Fresh    int               `json:"fresh"`
	Image    string            `json:"image"`
	Shape    Shape             `json:"shape"`
	Plan     *api.Plan         `json:"plan,omitempty"` // exactly this, or refuse; nil: the host plans
	Job      string            `json:"job,omitempty"`  // the job of the host's batch system that holds the VM's place, as slurm/17: the VM goes where that job is
	Bridge   string            `json:"bridge,omitempty"`
	VLAN     int               `json:"vlan,omitempty"`
	Address  string            `json:"address,omitempty"` // with the length of the prefix
	MAC      string            `json:"mac,omitempty"`
	Gateway  string            `json:"gateway,omitempty"`
	DNS      []string          `json:"dns,omitempty"`
	Hostname string            `json:"hostname"`
	Keys     []string          `json:"keys,omitempty"`
	UserData []byte            `json:"user_data,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
}

// StreamOrder asks the host to open a stream to one of its VMs, and to bring it to the server.
type StreamOrder struct {
	ID     string `json:"id"`
	VM     string `json:"vm"`
	Kind   string `json:"kind"` // console, or tcp
	Port   int    `json:"port,omitempty"`
	Server string `json:"server"` // URL of the server that waits for it
}

// Kinds of stream.
const (
	StreamConsole = "console"
	StreamTCP     = "tcp"
)

// The routes between host and server. All but RouteEnrol need the host's certificate.
const (
	RouteEnrol  = "/v1/host/enrol"    // POST EnrolRequest → EnrolAnswer
	RouteRenew  = "/v1/host/renew"    // POST RenewRequest → EnrolAnswer
	RouteReport = "/v1/host/report"   // POST Report → ReportAnswer
	RouteWanted = "/v1/host/wanted"   // GET ?after=REVISION&instance=ID → WantedList at once when it is another one; 204 when nothing changed for a while
	RouteStream = "/v1/host/streams/" // POST + ID, "Upgrade: grange-stream": then bytes both ways
)
