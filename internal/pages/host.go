package pages

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/chart"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
	"github.com/grange-project/grange/internal/server/action"
)

// hostPage is one host.
type hostPage struct {
	Name, Cell, Kind, Version, Accelerator, CPU string
	State                                       server.HostState
	Tone                                        string
	Reason                                      string
	Drain                                       *drainLine
	Fenced                                      time.Time
	CPUs, Used, Jobs                            int
	Memory, Held                                farm.Bytes
	CPUBar, RAM                                 bar
	Seen                                        time.Time
	Ago                                         string
	Enrolled, CertExpires                       time.Time
	Labels                                      []string
	Images, Networks                            []string
	Warnings                                    []string
	Picture                                     template.HTML
	Nodes                                       []nodeLine
	VMs                                         []vmRow
	Taken                                       int // places that the server did not give
	Poll, Shown                                 string
	Open                                        bool
	MayOpen                                     bool
	Incidents                                   about
	Audited                                     bool
	Findings                                    []findingRow
	JobList                                     string // path of its jobs that have ended
}

// drainLine is a drain that goes on.
type drainLine struct {
	What, Reason, By string
	Since, Deadline  time.Time
	Left             string
}

// nodeLine is the memory of a NUMA node.
type nodeLine struct {
	ID           int
	CPUs         string
	Memory, Free farm.Bytes
	Pages        []string
}

func hostPath(name string) string { return "/hosts/" + url.PathEscape(name) }

func (v *visit) host() error {
	page, err := v.hostPage()
	if err != nil {
		return err
	}
	return v.show("host", page.Name, "farm", page)
}

// hostNow answers with the part of the page that changes by itself.
func (v *visit) hostNow() error {
	page, err := v.hostPage()
	if err != nil {
		return err
	}
	if page.Shown == v.r.URL.Query().Get("seen") {
		v.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return v.part("host", "now", page)
}

func (v *visit) hostPage() (page hostPage, err error) {
	h, err := v.Server.Hosts.Get(v.ctx(), v.who, v.r.PathValue("host"))
	if err != nil {
		return page, err
	}
	list, err := v.Server.VMs.List(v.ctx(), v.who, server.VMFilter{Host: h.ID, Limit: 1000})
	if err != nil {
		return page, err
	}
	now := v.Now()
	page = hostPage{Name: h.Name, Cell: h.Cell, Kind: h.Kind, Version: h.Facts.Version,
		Accelerator: h.Facts.Accelerator, CPU: h.Facts.Topology.CPU.Name, State: h.State, Tone: hostTones[h.State],
		Reason: h.Reason, Fenced: h.Fenced, CPUs: h.CPUs, Used: h.CPUs - h.FreeCPUs, Memory: h.Memory,
		Held: h.Memory - h.FreeMemory, Seen: h.Seen, Enrolled: h.Enrolled, CertExpires: h.Expires, Jobs: h.Jobs,
		Images: h.Facts.Images, Networks: h.Facts.Networks, Warnings: h.Warnings, Taken: len(h.Facts.Taken),
		Open: h.State == server.HostOpen, MayOpen: h.Closed || h.Drain.Active() || !h.Fenced.IsZero(), Ago: "never"}
	page.CPUBar = bar{share(page.Used, page.CPUs)}
	page.RAM = bar{share(int(page.Held>>20), int(page.Memory>>20))}
	if !h.Seen.IsZero() {
		page.Ago = span(now.Sub(h.Seen).Truncate(10 * time.Second))
	}
	page.Audited, page.Findings, page.JobList = h.Facts.Audited, findingRows(h.Host), jobsPath(h.Name)
	for k, value := range h.Labels {
		page.Labels = append(page.Labels, k+"="+value)
	}
	slices.Sort(page.Labels)
	if err := page.setDrain(v, h, now); err != nil {
		return page, err
	}
	for _, n := range h.Facts.Topology.Nodes {
		page.Nodes = append(page.Nodes, nodeOf(n))
	}
	for _, vm := range list.Items {
		page.VMs = append(page.VMs, rowOf(vm, now))
	}
	if page.Incidents, err = incidentsAbout(v, "host", h.Name, h.ID, action.HostTarget(h.Host)); err != nil {
		return page, err
	}
	// the drawing escapes the texts that it shows
	page.Picture = template.HTML(chart.HostBare(factsOf(h, list.Items), nil))
	page.Shown = sumOf(page)
	page.Poll = hostPath(page.Name) + "/now?seen=" + page.Shown
	return page, nil
}

// setDrain shows the drain of the host, or of its cell.
func (p *hostPage) setDrain(v *visit, h server.HostView, now time.Time) error {
	cell, err := v.Server.Cells.Get(v.ctx(), v.who, h.Cell)
	if farm.IsKind(err, farm.Denied) || farm.IsKind(err, farm.NotFound) {
		cell, err = server.CellView{}, nil // its own is all that there is to see
	}
	if d, what := h.DrainIn(cell.Cell); d.Active() {
		p.Drain = &drainLine{What: what, Reason: d.Reason, By: d.By, Since: d.Since, Deadline: d.Deadline}
		if !d.Deadline.IsZero() {
			p.Drain.Left = span(d.Deadline.Sub(now).Truncate(time.Minute))
		}
	}
	return err
}

func nodeOf(n farm.Node) nodeLine {
	line := nodeLine{ID: n.ID, CPUs: n.CPUs.String(), Memory: n.Memory, Free: n.Free}
	for _, p := range n.Pages {
		if p.Total > 0 {
			line.Pages = append(line.Pages, fmt.Sprintf("%d of %s, %d free", p.Total, p.Size, p.Free))
		}
	}
	return line
}

// factsOf are what the drawing of a host needs: VMs are where they were planned to be, or where their host put them.
func factsOf(h server.HostView, vms []server.VMView) farm.HostFacts {
	f := farm.HostFacts{Topology: h.Facts.Topology}
	for _, vm := range vms {
		plan := vm.Plan
		if plan.VCPUs == nil {
			plan = vm.Observed.Plan
		}
		f.Domains = append(f.Domains, domainOf(vm.Project+"/"+vm.Name, vm.State == farm.VMRunning, plan))
	}
	for i, plan := range h.Facts.Taken {
		f.Domains = append(f.Domains, domainOf(fmt.Sprintf("job or worker %d", i+1), true, plan))
	}
	return f
}

func domainOf(name string, running bool, plan farm.Plan) farm.Domain {
	d := farm.Domain{Name: name, Running: running, VCPUs: len(plan.VCPUs), VCPUPins: map[int]farm.CPUSet{}}
	for i, cpus := range plan.VCPUs {
		d.VCPUPins[i] = cpus
	}
	return d
}

// doHost does what a form of the host's page says.
func (v *visit) doHost() error {
	if err := v.parse(); err != nil {
		return err
	}
	name, reason := v.r.PathValue("host"), strings.TrimSpace(v.r.FormValue("reason"))
	if strings.ContainsAny(name, `*?[\:`) { // a pattern would be many hosts
		return &farm.Error{Kind: farm.NotFound, Code: CodeNoPage, Message: "there is no host of that name",
			Hint: "go back to the map of all hosts"}
	}
	var err error
	switch verb := v.r.PathValue("verb"); verb {
	case "drain":
		order := server.DrainOrder{Reason: reason}
		if order.Deadline, err = parseExpiry(v.r.FormValue("deadline")); err == nil {
			_, err = v.Server.Hosts.Drain(v.ctx(), v.who, []string{name}, order)
		}
	case "close":
		_, err = v.Server.Hosts.Close(v.ctx(), v.who, []string{name}, reason)
	case "open":
		_, err = v.Server.Hosts.Open(v.ctx(), v.who, []string{name})
	default:
		return &farm.Error{Kind: farm.NotFound, Code: CodeNoPage, Message: "nothing is called " + verb,
			Hint: "go back to the host's page"}
	}
	if err != nil {
		return err
	}
	return v.to(hostPath(name))
}
