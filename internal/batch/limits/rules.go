package limits

// Counted is the source of a figure that no manual has.
const Counted = "counted from how the daemon talks to its nodes"

const largeGuide = "Slurm: Large Cluster Administration Guide; High Throughput Computing Administration Guide"

// Always needs the same of every fleet.
func Always(n int64) func(Fleet) int64 { return func(Fleet) int64 { return n } }

// Many is when there are many nodes.
func Many(f Fleet, _ Master) bool { return f.Nodes() > 1000 }

// general are the rules for masters of all systems. A system's own rule of the same ID takes the place of one.
var general = []Rule{
	{ID: "processes", What: "threads of the master", Severity: Fails, Found: Process("Max processes"),
		Needed:  Always(4096),
		Formula: "256 server threads, agents and clients", Source: Counted, Fix: "LimitNPROC=NEEDED in its unit"},
	{ID: "file-max", What: "open files of the whole machine", Severity: Fails, Found: Kernel("fs/file-max"),
		Needed:  func(f Fleet) int64 { return int64(max(32832, 4*f.Nodes()+3*f.Jobs+8192)) },
		Formula: "4 × nodes + 3 × jobs + 8192, at least 32832", Source: largeGuide, Fix: "sysctl fs.file-max=NEEDED"},
	{ID: "somaxconn", What: "connections that wait to be accepted", Severity: Slow, Found: Kernel("net/core/somaxconn"),
		Needed:  func(f Fleet) int64 { return int64(min(max(1024, f.Nodes()), 65535)) },
		Formula: "all nodes at once, 1024 to 65535", Source: largeGuide, Fix: "sysctl net.core.somaxconn=NEEDED"},
	{ID: "syn-backlog", What: "connections that are being made", Severity: Slow,
		Found:   Kernel("net/ipv4/tcp_max_syn_backlog"),
		Needed:  func(f Fleet) int64 { return int64(min(max(2048, f.Nodes()), 65535)) },
		Formula: "all nodes at once, 2048 to 65535", Source: largeGuide,
		Fix: "sysctl net.ipv4.tcp_max_syn_backlog=NEEDED"},
	{ID: "ports", What: "local ports for outgoing connections", Severity: Fails,
		Found:   Kernel("net/ipv4/ip_local_port_range"),
		Needed:  func(f Fleet) int64 { return int64(min(max(28000, 4*f.Nodes()), 64000)) },
		Formula: "4 × nodes (TIME_WAIT holds each for a minute), 28000 to 64000", Source: largeGuide,
		Fix: "sysctl net.ipv4.ip_local_port_range='1024 65535', and net.ipv4.ip_local_reserved_ports for the " +
			"daemons' own"},
	{ID: "conntrack", What: "connections that the firewall follows", Severity: Fails,
		Found:   Kernel("net/netfilter/nf_conntrack_max"),
		When:    func(_ Fleet, m Master) bool { _, ok := m.Kernel["net/netfilter/nf_conntrack_max"]; return ok },
		Needed:  func(f Fleet) int64 { return int64(max(65536, 16*f.Nodes()+4*f.Jobs)) },
		Formula: "16 × nodes + 4 × jobs, at least 65536", Source: Counted,
		Fix: "sysctl net.netfilter.nf_conntrack_max=NEEDED"},
	{ID: "threads-max", What: "threads of the whole machine", Severity: Fails, Found: Kernel("kernel/threads-max"),
		Needed: func(f Fleet) int64 { return int64(16384 + f.Jobs/4) }, Formula: "16384 + jobs / 4", Source: Counted,
		Fix: "sysctl kernel.threads-max=NEEDED"},
}
