package main

import (
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/topology/topologytest"
)

//go:embed testdata/*.json.gz
var testdata embed.FS

// trace is what happens on a number of hosts that are all alike. See testdata/README.md.
type trace struct {
	Name   string
	Kind   string // of host
	Hosts  int
	Events []event
}

// event is the arrival or the departure of a VM.
type event struct {
	Event     string `json:"ev"` // "arrive" or "depart"
	ID        int
	VCPUs     int
	MemoryMiB int `json:"mem_mb"`
	Cells     int
	PageKiB   int `json:"pagesize"`
}

func readTrace(name string) (trace, error) {
	f, err := testdata.Open("testdata/" + name + ".json.gz")
	if err != nil {
		return trace{}, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return trace{}, fmt.Errorf("read trace %s: %w", name, err)
	}
	t := trace{Name: name}
	if err := json.NewDecoder(z).Decode(&t); err != nil {
		return trace{}, fmt.Errorf("read trace %s: %w", name, err)
	}
	return t, nil
}

// ordinary is the memory of each node that is not in huge pages.
const ordinary = 4 * farm.GiB

// host is an empty host of the trace's kind.
func (t trace) host() (farm.Topology, error) {
	switch t.Kind {
	case "cern32":
		return withHugePages(topologytest.CERN2630v3()), nil
	case "epyc256":
		return withHugePages(topologytest.EPYC256()), nil
	}
	return farm.Topology{}, fmt.Errorf("trace %s: no host is called %q", t.Name, t.Kind)
}

func withHugePages(host farm.Topology) farm.Topology {
	const size = 2 * farm.MiB
	return topologytest.WithPages(host, size, int((host.Nodes[0].Memory-ordinary)/size))
}

func (e event) request(host farm.Topology) numa.Request {
	return numa.Request{VCPUs: e.VCPUs, Memory: e.memory(), Pages: []farm.Bytes{e.page()}, Allowed: host.Online,
		Cells: e.Cells}
}

func (e event) memory() farm.Bytes { return farm.Bytes(e.MemoryMiB) * farm.MiB }

func (e event) page() farm.Bytes { return farm.Bytes(e.PageKiB) * farm.KiB }
