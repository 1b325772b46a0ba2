package pages

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
)

// hostsAtOnce is how many hosts the table of the fleet shows.
const hostsAtOnce = 100

// farmPage is the map of all hosts, and the table below it.
type farmPage struct {
	Cells  []cellRow
	States []server.HostState
	Hosts  int
	Filter hostFilter
	Rows   []hostRow
	Chosen int
	Next   string
	First  string
}

// cellRow is what a cell has in all.
type cellRow struct {
	Name, Broker  string
	Hosts, VMs    int
	States        []stateCount
	CPUs, Used    int
	Memory, Held  farm.Bytes
	CPU, RAM      bar
	Reason        string // why it is closed, or drained
	Closed, Drain bool
}

// bar is how much of something is used.
type bar struct{ Percent int }

type stateCount struct {
	State server.HostState
	Tone  string
	Hosts int
}

// hostRow is one host of the table.
type hostRow struct {
	Name, Cell, Kind, Version string
	State                     server.HostState
	Tone                      string
	CPUs, Used, VMs           int
	Memory, Held              farm.Bytes
	CPU, RAM                  bar
	Warnings                  int
	Seen                      time.Time
	Ago                       string
	Why                       string // it is not open
}

// hostFilter is which hosts are asked for.
type hostFilter struct{ Text, Cell, State, After string }

// hostTones are the classes of states of hosts.
var hostTones = map[server.HostState]string{server.HostOpen: "good", server.HostClosed: "off",
	server.HostDraining: "warn", server.HostSilent: "bad", server.HostFenced: "dim"}

// hostStates are in the order in which the map's data numbers them.
var hostStates = []server.HostState{server.HostOpen, server.HostClosed, server.HostDraining, server.HostSilent,
	server.HostFenced}

func (f hostFilter) words() []string { return strings.Fields(strings.ToLower(f.Text)) }

// chooses reports whether a host is one that the filter asks for: every word is somewhere in what it is called.
func (f hostFilter) chooses(h server.MappedHost, words []string) bool {
	if f.Cell != "" && h.Cell != f.Cell || f.State != "" && string(h.State) != f.State {
		return false
	}
	for _, w := range words {
		if !strings.Contains(strings.ToLower(h.Name), w) && !strings.Contains(strings.ToLower(h.Cell), w) &&
			!strings.Contains(strings.ToLower(h.Kind), w) && !strings.HasPrefix(string(h.State), w) {
			return false
		}
	}
	return true
}

// passed reports whether a host is before the table, or its last one was; that one need not be there any more.
func (f hostFilter) passed(cell, name string) bool {
	lastCell, lastName, ok := strings.Cut(f.After, "/")
	return ok && cmp.Or(cmp.Compare(cell, lastCell), cmp.Compare(name, lastName)) <= 0
}

func (v *visit) farm() error {
	hosts, err := v.Server.Hosts.Map(v.ctx(), v.who)
	if err != nil {
		return err
	}
	cells, err := v.Server.Cells.List(v.ctx(), v.who)
	if err != nil {
		return err
	}
	q := v.r.URL.Query()
	page := farmPage{States: hostStates, Hosts: len(hosts), Cells: cellRows(cells, hosts),
		Filter: hostFilter{Text: q.Get("q"), Cell: q.Get("cell"), State: q.Get("state"), After: q.Get("after")}}
	page.choose(hosts, v.r.URL, v.Now())
	return v.show("farm", "Farm", "farm", page)
}

// choose fills the table.
func (p *farmPage) choose(hosts []server.MappedHost, u *url.URL, now time.Time) {
	words, last := p.Filter.words(), ""
	for _, h := range hosts {
		if !p.Filter.chooses(h, words) {
			continue
		}
		p.Chosen++
		if p.Filter.passed(h.Cell, h.Name) {
			continue
		}
		switch {
		case len(p.Rows) < hostsAtOnce:
			p.Rows, last = append(p.Rows, hostRowOf(h, now)), h.Cell+"/"+h.Name
		case p.Next == "":
			p.Next = listBehind(u, last)
		}
	}
	if p.Filter.After != "" {
		p.First = listBehind(u, "")
	}
}

func hostRowOf(h server.MappedHost, now time.Time) hostRow {
	row := hostRow{Name: h.Name, Cell: h.Cell, Kind: h.Kind, State: h.State, Tone: hostTones[h.State], CPUs: h.CPUs,
		Used: h.UsedCPUs(), VMs: h.Host.Used.VMs, Memory: h.Memory, Held: h.UsedMemory(), Warnings: h.Warnings,
		Seen: h.Seen, Why: cmp.Or(h.Drain.Reason, h.Reason)}
	row.CPU, row.RAM = bar{share(row.Used, row.CPUs)}, bar{share(int(row.Held>>20), int(row.Memory>>20))}
	row.Ago = "never"
	if !h.Seen.IsZero() {
		row.Ago = span(now.Sub(h.Seen))
	}
	return row
}

func cellRows(cells []server.CellView, hosts []server.MappedHost) []cellRow {
	rows := make([]cellRow, 0, len(cells))
	counts := map[string]map[server.HostState]int{}
	at := map[string]int{}
	for _, c := range cells {
		at[c.Name], counts[c.Name] = len(rows), map[server.HostState]int{}
		rows = append(rows, cellRow{Name: c.Name, Broker: c.Broker, VMs: c.VMs, Closed: c.Closed,
			Drain: c.Drain.Active(), Reason: cmp.Or(c.Drain.Reason, c.Reason)})
	}
	for _, h := range hosts {
		i, ok := at[h.Cell]
		if !ok {
			continue
		}
		r := &rows[i]
		r.Hosts++
		r.CPUs += h.CPUs
		r.Used += h.UsedCPUs()
		r.Memory += h.Memory
		r.Held += h.UsedMemory()
		counts[h.Cell][h.State]++
	}
	for i := range rows {
		r := &rows[i]
		r.CPU, r.RAM = bar{share(r.Used, r.CPUs)}, bar{share(int(r.Held>>20), int(r.Memory>>20))}
		for _, s := range hostStates {
			if n := counts[r.Name][s]; n > 0 {
				r.States = append(r.States, stateCount{s, hostTones[s], n})
			}
		}
	}
	slices.SortFunc(rows, func(a, b cellRow) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// farmHosts answers with what the map draws.
func (v *visit) farmHosts() error {
	hosts, err := v.Server.Hosts.Map(v.ctx(), v.who)
	if err != nil {
		return err
	}
	e := v.maps.entry(hosts, v.Now())
	h := v.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("ETag", e.tag)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "private, no-cache")
	if v.r.Header.Get("If-None-Match") == e.tag {
		v.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	text := e.plain
	if strings.Contains(v.r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		text = e.packed
	}
	h.Set("Content-Length", fmt.Sprint(len(text)))
	_, err = v.w.Write(text)
	if err != nil {
		v.Log.Debug("a map was not taken", "error", err)
	}
	return nil
}
