package fleet

// Farm is what people decide of the whole fleet, as data: what `grange apply` brings and `grange export` writes. A list
// that is null or missing is left as it is.
type Farm struct {
	Cells    []FarmCell    `json:"cells,omitzero"`
	Projects []FarmProject `json:"projects,omitzero"`
	Shapes   []Shape       `json:"shapes,omitzero"`
	Scores   []Score       `json:"scores,omitzero"`
	Networks []Network     `json:"networks,omitzero"`
	Groups   []Group       `json:"groups,omitzero"`
	Users    []User        `json:"users,omitzero"`
	Grants   []Grant       `json:"grants,omitzero"`
	Mappings []Mapping     `json:"mappings,omitzero"`
	Settings *Settings     `json:"settings,omitempty"` // of all hosts
	Maxima   *Maxima       `json:"maxima,omitempty"`
}

// Score is how much a core does, as the site has measured it in VMs of a size on hardware of a kind.
type Score struct {
	Name     string  `json:"name"`
	Hardware string  `json:"hardware"`
	CPUs     int     `json:"cpus,omitempty"`   // of the VM; 0: any
	Tuning   string  `json:"tuning,omitempty"` // digest of how the host is tuned; "": any
	Core     float64 `json:"core"`
	Unit     string  `json:"unit"`
	Source   string  `json:"source"`
}

// Maxima are what the site lets any VM have; 0 bounds nothing.
type Maxima struct {
	CPUs      int      `json:"cpus,omitempty"`
	Memory    uint64   `json:"memory,omitempty"`
	Scratch   uint64   `json:"scratch,omitempty"`
	Sockets   int      `json:"sockets,omitempty"` // that somebody may ask for, as the next two
	Cores     int      `json:"cores,omitempty"`
	Threads   int      `json:"threads,omitempty"`
	CPUModels []string `json:"cpu_models,omitempty"` // patterns; none: all
}

// FarmCell is a cell as people decide of it.
type FarmCell struct {
	Name       string            `json:"name"`
	Broker     string            `json:"broker,omitempty"` // grange, where nobody says
	Open       *bool             `json:"open,omitempty"`   // missing: as it is, and a new cell is open
	Reason     string            `json:"reason,omitempty"` // why it is closed
	Default    bool              `json:"default,omitempty"`
	Projects   []string          `json:"projects,omitempty"`
	Packing    string            `json:"packing,omitempty"` // pack, spread, group
	KeepWhole  int               `json:"keep_whole,omitempty"`
	Overcommit float64           `json:"overcommit,omitempty"`
	Limits     Quota             `json:"limits,omitzero"`
	PerHost    int               `json:"per_host,omitempty"`
	Services   bool              `json:"services,omitempty"`
	Batch      string            `json:"batch,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
}

// FarmProject is a project as people decide of it.
type FarmProject struct {
	Name           string   `json:"name"`
	Account        string   `json:"account,omitempty"` // in batch systems; its name, where nobody says
	Quota          Quota    `json:"quota,omitzero"`
	Networks       []string `json:"networks,omitempty"` // that its VMs may have, as the next two; none: all
	Shapes         []string `json:"shapes,omitempty"`
	Images         []string `json:"images,omitempty"` // patterns
	MaxAge         float64  `json:"max_age_seconds,omitempty"`
	Purpose        string   `json:"purpose,omitempty"`
	Pledge         int      `json:"pledge,omitempty"`          // CPUs that it was promised
	SecurityGroups bool     `json:"security_groups,omitempty"` // its VMs are in default, unless they name others
	SSHFrom        []string `json:"ssh_from,omitempty"`        // prefixes that default lets in, to port 22
}

// ApplyRequest brings a farm.
type ApplyRequest struct {
	Farm   Farm `json:"farm"`
	DryRun bool `json:"dry_run,omitempty"` // tell what would be done, and do nothing
	Prune  bool `json:"prune,omitempty"`   // delete what a list that is there lacks
	// Applied.Plan of a dry run: if it would do other things now, nothing is done
	Plan string `json:"plan,omitempty"`
}

// Applied is what an apply did, or would do.
type Applied struct {
	DryRun   bool         `json:"dry_run,omitempty"`
	Changes  []FarmChange `json:"changes"`
	Effects  []string     `json:"effects"`            // what changes for whom, in sentences
	Plan     string       `json:"plan"`               // stands for Changes
	Revision int64        `json:"revision,omitempty"` // of the store; none of a dry run
}

// FarmChange is one object that is made, changed or deleted.
type FarmChange struct {
	Op      string   `json:"op"`   // create, change, delete
	Kind    string   `json:"kind"` // cell, project, shape, network, group, user, grant, settings, maxima
	Name    string   `json:"name"`
	Details []string `json:"details,omitempty"` // "packing: pack → spread"
}
