package farmfile

// file is what people decide of a whole farm, as TOML. Its keys are explained in docs/guide/cells.md.
type file struct {
	Settings *settingsTable                   `toml:"settings,omitempty"`
	Maxima   *maximaTable                     `toml:"maxima,omitempty"`
	Cells    map[string]cellTable             `toml:"cells,omitempty"`
	Projects map[string]projectTable          `toml:"projects,omitempty"`
	Shapes   map[string]shapeTable            `toml:"shapes,omitempty"`
	Scores   map[string]scoreTable            `toml:"scores,omitempty"`
	Networks map[string]networkTable          `toml:"networks,omitempty"`
	Groups   map[string]map[string]groupTable `toml:"groups,omitempty"` // by project and name
	Users    map[string]userTable             `toml:"users,omitempty"`
	Grants   []grantTable                     `toml:"grants,omitempty"`
	Mappings []mappingTable                   `toml:"mappings,omitempty"`
}

type settingsTable struct {
	BootTimeout  string            `toml:"boot_timeout,omitempty"`
	DefaultImage string            `toml:"default_image,omitempty"`
	Facts        map[string]string `toml:"facts,omitempty,inline"`
}

type maximaTable struct {
	CPUs      int      `toml:"cpus,omitempty"`
	Memory    string   `toml:"memory,omitempty"`
	Scratch   string   `toml:"scratch,omitempty"`
	Sockets   int      `toml:"sockets,omitempty"`
	Cores     int      `toml:"cores,omitempty"`
	Threads   int      `toml:"threads,omitempty"`
	CPUModels []string `toml:"cpu_models,omitempty"`
}

type quotaTable struct {
	VMs     int    `toml:"vms,omitempty"`
	CPUs    int    `toml:"cpus,omitempty"`
	Memory  string `toml:"memory,omitempty"`
	Scratch string `toml:"scratch,omitempty"`
}

type cellTable struct {
	Broker     string            `toml:"broker,omitempty"`
	Batch      string            `toml:"batch,omitempty"`
	Default    bool              `toml:"default,omitempty"`
	Projects   []string          `toml:"projects,omitempty"`
	Open       *bool             `toml:"open,omitempty"`
	Reason     string            `toml:"reason,omitempty"`
	Packing    string            `toml:"packing,omitempty"`
	KeepWhole  int               `toml:"keep_whole,omitempty"`
	Overcommit float64           `toml:"overcommit,omitempty"`
	Limits     *quotaTable       `toml:"limits,omitempty,inline"`
	PerHost    int               `toml:"per_host,omitempty"`
	Services   bool              `toml:"services,omitempty"`
	Labels     map[string]string `toml:"labels,omitempty,inline"`
}

type projectTable struct {
	Account        string      `toml:"account,omitempty"`
	Quota          *quotaTable `toml:"quota,omitempty,inline"`
	Networks       []string    `toml:"networks,omitempty"`
	Shapes         []string    `toml:"shapes,omitempty"`
	Images         []string    `toml:"images,omitempty"`
	MaxAge         string      `toml:"max_age,omitempty"`
	Purpose        string      `toml:"purpose,omitempty"`
	Pledge         int         `toml:"pledge,omitempty"`
	SecurityGroups bool        `toml:"security_groups,omitempty"`
	SSHFrom        []string    `toml:"ssh_from,omitempty"`
}

// shapeTable is a shape of the fleet. Its own keys win over the properties of an OpenStack flavor.
type shapeTable struct {
	CPUs         int               `toml:"cpus,omitempty"`
	Memory       string            `toml:"memory,omitempty"`
	Scratch      string            `toml:"scratch,omitempty"`
	Disk         string            `toml:"disk,omitempty"`
	Volumes      []string          `toml:"volumes,omitempty"`
	Swap         string            `toml:"swap,omitempty"`
	MemoryPeak   string            `toml:"memory_peak,omitempty"`
	PageSize     string            `toml:"page_size,omitempty"`
	Sockets      int               `toml:"sockets,omitempty"`
	Cores        int               `toml:"cores,omitempty"`
	Threads      int               `toml:"threads,omitempty"`
	MaxSockets   int               `toml:"max_sockets,omitempty"`
	MaxCores     int               `toml:"max_cores,omitempty"`
	MaxThreads   int               `toml:"max_threads,omitempty"`
	Purpose      string            `toml:"purpose,omitempty"`
	CPUModel     string            `toml:"cpu_model,omitempty"`
	Display      bool              `toml:"display,omitempty"`
	ThreadPolicy string            `toml:"thread_policy,omitempty"`
	Emulator     string            `toml:"emulator,omitempty"`
	NUMA         string            `toml:"numa,omitempty"`
	Cache        string            `toml:"cache,omitempty"`
	BandwidthIn  string            `toml:"bandwidth_in,omitempty"`
	BandwidthOut string            `toml:"bandwidth_out,omitempty"`
	Properties   map[string]string `toml:"properties,omitempty,inline"`
}

type scoreTable struct {
	Hardware string  `toml:"hardware"`
	CPUs     int     `toml:"cpus,omitempty"`
	Tuning   string  `toml:"tuning,omitempty"`
	Core     float64 `toml:"core"`
	Unit     string  `toml:"unit"`
	Source   string  `toml:"source"`
}

type networkTable struct {
	Bridge    string   `toml:"bridge,omitempty"`
	VLAN      int      `toml:"vlan,omitempty"`
	VXLAN     int      `toml:"vxlan,omitempty"`
	Addresses []string `toml:"addresses,omitempty"`
	Gateway   string   `toml:"gateway,omitempty"`
	DNS       []string `toml:"dns,omitempty"`
	Domain    string   `toml:"domain,omitempty"`
	Names     []string `toml:"names,omitempty"`
	Isolate   bool     `toml:"isolate,omitempty"`
	Closed    bool     `toml:"closed,omitempty"`
	Hosts     []string `toml:"hosts,omitempty"`
}

type groupTable struct {
	Affinity string `toml:"affinity"`
}

type userTable struct {
	Subjects []string `toml:"subjects,omitempty"`
	Logins   []string `toml:"logins,omitempty"`
	Disabled bool     `toml:"disabled,omitempty"`
}

type grantTable struct {
	User    string `toml:"user"`
	Role    string `toml:"role"`
	Project string `toml:"project,omitempty"`
	Cell    string `toml:"cell,omitempty"`
}

// mappingTable gives a role to whoever an issuer says something of.
type mappingTable struct {
	Issuer  string `toml:"issuer"`
	Claim   string `toml:"claim"`
	Value   string `toml:"value"`
	Role    string `toml:"role"`
	Project string `toml:"project,omitempty"`
	Cell    string `toml:"cell,omitempty"`
}
