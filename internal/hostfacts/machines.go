package hostfacts

import (
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
)

// Machines is every VM that runs on a host, from three sides.
type Machines struct {
	Processes []farm.Process
	// VMs that run, as libvirt or a recorded command line says, whose threads are not to be seen: they have none here
	Unseen  []farm.Process
	Domains []farm.Domain        // those of the host, and what a live host hides
	Plans   map[string]farm.Plan // of VMs of ours, by UUID
	Unread  []string             // what could not be read, and why
}

// ReadMachines reads the processes, domains and plans of a host's VMs; domains are those that Read found.
func ReadMachines(fsys fs.FS, domains []farm.Domain, live bool) (Machines, error) {
	procs, bare, err := processes(fsys)
	if err != nil {
		return Machines{}, err
	}
	m := Machines{Processes: procs, Domains: domains, Plans: map[string]farm.Plan{}}
	if live {
		if _, err := readSome(fsys, "proc/1/cmdline", maxCmdline); err != nil {
			m.Unread = append(m.Unread, fmt.Sprintf("processes of others: %v; seeing them takes root", err))
		}
		m.Domains = append(slices.Clone(domains), hiddenDomains(fsys, domains, procs)...)
	}
	if !live {
		m.Unseen = bare // on a live host they have just ended
	}
	for _, d := range m.Domains {
		if d.Path == "" || !d.Running {
			continue
		}
		r, err := readRecord(fsys, d)
		if err != nil {
			m.Unread = append(m.Unread, fmt.Sprintf("VM %s: %v", d.Name, err))
		}
		if live && errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		}
		if d.Ours && err == nil {
			m.Plans[d.UUID] = r.plan
		}
		m.dropPretenders(d, r.pid)
		p := processOf(m.Processes, d)
		if p == nil {
			m.unseen(d, r.starting)
			continue
		}
		p.Starting = r.starting
		numberVCPUs(p, r.vcpus)
	}
	return m, nil
}

// dropPretenders leaves out processes that say they run a VM which libvirt runs in another one: any account can start
// QEMU with any name and UUID. pid is what libvirt says; in a namespace of its own its numbers may be others than ours.
func (m *Machines) dropPretenders(d farm.Domain, pid int) {
	says := func(p farm.Process) bool { return p.UUID != "" && strings.EqualFold(p.UUID, d.UUID) }
	if !slices.ContainsFunc(m.Processes, func(p farm.Process) bool { return p.PID == pid && says(p) }) {
		return
	}
	m.Processes = slices.DeleteFunc(slices.Clone(m.Processes), func(p farm.Process) bool {
		if p.PID == pid || !says(p) {
			return false
		}
		m.Unread = append(m.Unread, fmt.Sprintf("process %d says that it is VM %s, which is process %d", p.PID,
			d.Name, pid))
		return true
	})
}

// unseen adds a VM that runs, says libvirt, without threads that are to be seen.
func (m *Machines) unseen(d farm.Domain, starting bool) {
	p := processOf(m.Unseen, d)
	if p == nil {
		m.Unseen = append(m.Unseen, farm.Process{Name: d.Name, UUID: d.UUID, Ours: d.Ours})
		p = &m.Unseen[len(m.Unseen)-1]
	}
	p.CPUs, p.Starting = min(d.VCPUs, farm.MaxCPUs), starting
}

// hiddenDomains finds the domains of processes that no known domain names, where each process itself sees them: a
// libvirt in a mount namespace of its own keeps its files away from the host's.
func hiddenDomains(fsys fs.FS, known []farm.Domain, procs []farm.Process) []farm.Domain {
	seen := map[string]bool{"": true}
	for _, d := range known {
		seen[d.UUID] = true
	}
	var out []farm.Domain
	for _, p := range procs {
		file := fmt.Sprintf("proc/%d/root/run/libvirt/qemu/%s.xml", p.PID, p.Name)
		if seen[p.UUID] || strings.Contains(p.Name, "/") || !fs.ValidPath(file) {
			continue
		}
		if !ofRoot(fsys, file) {
			continue // an account's, in namespaces of its own
		}
		text, err := readSome(fsys, file, hosttree.MaxLarge)
		if err != nil {
			continue
		}
		// Whoever started the process chose what it sees: only the domain that it runs counts.
		if d, err := parseDomain(text); err == nil && d.UUID == p.UUID {
			d.Path = file
			seen[d.UUID], out = true, append(out, d)
		}
	}
	return out
}

// ofRoot reports whether a file of a live host is root's, who in a user namespace is somebody else.
func ofRoot(fsys fs.FS, name string) bool {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || s.Uid == 0
}

// record is what libvirt keeps of a VM beside what farm.Domain has.
type record struct {
	plan     farm.Plan
	vcpus    map[int]int // number of the vCPU, by the ID of its thread
	starting bool
	pid      int // of its process; 0: not known
}

func readRecord(fsys fs.FS, d farm.Domain) (record, error) {
	text, err := readSome(fsys, d.Path, hosttree.MaxLarge)
	if err != nil {
		return record{}, err
	}
	if err := checkXML(text); err != nil {
		return record{}, err
	}
	type metadata struct {
		VM string `xml:"https://grange.dev/xmlns/vm/1 vm"`
	}
	var x struct {
		State  string   `xml:"state,attr"`
		PID    int      `xml:"pid,attr"`
		Reason string   `xml:"reason,attr"`
		Own    metadata `xml:"metadata"` // of a plain domain
		Below  metadata `xml:"domain>metadata"`
		VCPUs  []struct {
			ID  int `xml:"id,attr"`
			PID int `xml:"pid,attr"`
		} `xml:"vcpus>vcpu"`
	}
	if err := xml.Unmarshal(text, &x); err != nil {
		return record{}, fmt.Errorf("read domain XML: %w", err)
	}
	r := record{vcpus: map[int]int{}, starting: x.State == "paused" && x.Reason == "starting up", pid: x.PID}
	for _, v := range x.VCPUs {
		if v.ID >= 0 && v.ID < farm.MaxCPUs {
			r.vcpus[v.PID] = v.ID
		}
	}
	if d.Ours {
		r.plan, err = parsePlan(x.Own.VM + x.Below.VM)
	}
	return r, err
}

// parsePlan reads the plan in our metadata. See internal/hyper/libvirt for its form, and internal/agent for the record
// in it.
func parsePlan(text string) (farm.Plan, error) {
	data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return farm.Plan{}, fmt.Errorf("decode metadata: %w", err)
	}
	var record struct{ Plan farm.Plan }
	if err := json.Unmarshal(data, &record); err != nil {
		return farm.Plan{}, fmt.Errorf("decode record: %w", err)
	}
	if n := len(record.Plan.VCPUs); n == 0 || n > farm.MaxCPUs {
		return farm.Plan{}, fmt.Errorf("a record with %d planned vCPUs", n)
	}
	return record.Plan, nil
}

// processOf is the process of a VM; nil when there is none to be seen. Where one side has no UUID, names decide.
func processOf(procs []farm.Process, d farm.Domain) *farm.Process {
	i := slices.IndexFunc(procs, func(p farm.Process) bool {
		if p.UUID == "" || d.UUID == "" {
			return p.Name != "" && p.Name == d.Name
		}
		return strings.EqualFold(p.UUID, d.UUID)
	})
	if i < 0 {
		return nil
	}
	return &procs[i]
}

// numberVCPUs numbers the vCPU threads of a QEMU that does not name them, as those before 2015 did not: libvirt asked
// it.
func numberVCPUs(p *farm.Process, vcpus map[int]int) {
	if len(p.VCPUs()) > 0 {
		return
	}
	for t := range p.Threads {
		if n, ok := vcpus[p.Threads[t].ID]; ok {
			p.Threads[t].VCPU = n
		}
	}
}
