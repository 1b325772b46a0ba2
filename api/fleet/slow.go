package fleet

import "time"

// SlowHosts are hosts on which guests boot more slowly than on others of their kind.
type SlowHosts struct {
	Since    time.Time  `json:"since"`
	Starts   int        `json:"starts"`   // of VMs, that were looked at
	Compared int        `json:"compared"` // hosts that have started the same often enough, and have peers
	Cut      bool       `json:"cut,omitempty"`
	Items    []SlowHost `json:"items"` // the slowest first
}

// SlowHost is one of them, by what it has started most often.
type SlowHost struct {
	Host      string  `json:"host"`
	Kind      string  `json:"kind"` // type of hardware
	Image     string  `json:"image"`
	CPUs      int     `json:"cpus"`
	Starts    int     `json:"starts"`       // of the host
	Boot      float64 `json:"boot_s"`       // the median of them, in seconds
	PeerHosts int     `json:"peer_hosts"`   // others of its kind that have started the same
	PeerBoot  float64 `json:"peers_boot_s"` // the median of all of theirs
	Ratio     float64 `json:"ratio"`
	P         float64 `json:"p"` // of such a difference by chance
}
