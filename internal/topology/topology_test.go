package topology_test

import (
	"archive/tar"
	"compress/bzip2"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
)

var trees = flag.String("trees", "testdata", "directory of recorded trees with a manifest.json")

// fact is what hwloc reads of one tree.
type fact struct {
	Name     string
	Tarball  string
	RootDir  string `json:"root_dir"`
	Model    string
	Reality  string // derived: written from hwloc's XML, without a CPU model
	PUs      []int  `json:"pu_ids"`
	Packages []struct {
		CPUs []int
	}
	Siblings [][]int `json:"smt_siblings"`
	NUMA     []struct {
		ID   int `json:"os_index"`
		CPUs []int
		KiB  int `json:"memory_kib"`

		Pages []struct {
			KiB   int `json:"size_kib"`
			Count int
		}
	}
	NoCPUs []int `json:"nodes_without_cpus"`
	Caches []struct {
		Type    string
		CPUSets [][]int
	}
}

func facts(t testing.TB) []fact {
	t.Helper()
	var doc struct{ Cases []fact }
	b, err := os.ReadFile(filepath.Join(*trees, "manifest.json"))
	if err == nil {
		err = json.Unmarshal(b, &doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc.Cases
}

// tree unpacks an archive below its root directory. Links stay links.
func tree(t testing.TB, f fact) fstest.MapFS {
	t.Helper()
	file, err := os.Open(filepath.Join(*trees, f.Tarball))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out := fstest.MapFS{}
	for r := tar.NewReader(bzip2.NewReader(file)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(h.Name, f.RootDir+"/")
		if !ok || name == "" {
			continue
		}
		switch h.Typeflag {
		case tar.TypeSymlink:
			out[name] = &fstest.MapFile{Data: []byte(h.Linkname), Mode: fs.ModeSymlink | 0o777}
		case tar.TypeReg:
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = &fstest.MapFile{Data: data, Mode: 0o444}
		}
	}
}

func TestReadRecordedTrees(t *testing.T) {
	for _, f := range facts(t) {
		t.Run(f.Name, func(t *testing.T) {
			got, err := topology.Read(tree(t, f))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, "online CPUs", farm.NewCPUSet(f.PUs...).String(), got.Online.String())
			if f.Reality != "derived" {
				compare(t, "CPU model", f.Model, got.CPU.Name)
			}
			var want, have [][]int
			for _, p := range f.Packages {
				want = append(want, p.CPUs)
			}
			for _, s := range got.Sockets {
				have = append(have, s.CPUs.List())
			}
			compare(t, "sockets", sorted(want), sorted(have))
			have = nil
			for _, c := range got.Cores {
				have = append(have, c.Threads.List())
			}
			compare(t, "cores", sorted(f.Siblings), sorted(have))
			want, have = nil, nil
			for _, c := range f.Caches {
				if c.Type == "L3Cache" {
					want = append(want, c.CPUSets...)
				}
			}
			for _, s := range got.L3 {
				have = append(have, s.List())
			}
			compare(t, "L3", sorted(want), sorted(have))
			compareNodes(t, f, got)
			checkWhole(t, got)
		})
	}
}

// compareNodes leaves out the CPUs of nodes that have none: hwloc names those near them instead.
func compareNodes(t *testing.T, f fact, got farm.Topology) {
	t.Helper()
	var want, have []string
	for _, n := range f.NUMA {
		cpus := farm.NewCPUSet(n.CPUs...)
		if slices.Contains(f.NoCPUs, n.ID) {
			cpus = farm.CPUSet{}
		}
		line := fmt.Sprintf("node %d: CPUs %v, %v", n.ID, cpus, farm.Bytes(n.KiB)*farm.KiB)
		for _, p := range n.Pages[min(1, len(n.Pages)):] { // after the ordinary ones
			line += fmt.Sprintf(", %d of %v", p.Count, farm.Bytes(p.KiB)*farm.KiB)
		}
		want = append(want, line)
	}
	for _, n := range got.Nodes {
		line := fmt.Sprintf("node %d: CPUs %v, %v", n.ID, n.CPUs, n.Memory)
		for _, p := range n.Pages {
			line += fmt.Sprintf(", %d of %v", p.Total, p.Size)
		}
		have = append(have, line)
	}
	slices.Sort(want)
	slices.Sort(have)
	compare(t, "nodes", want, have)
}

// checkWhole holds what every Topology promises.
func checkWhole(t *testing.T, got farm.Topology) {
	t.Helper()
	var inCores, inSockets []int
	for _, c := range got.Cores {
		inCores = append(inCores, c.Threads.List()...)
		if !slices.ContainsFunc(got.Nodes, func(n farm.Node) bool { return n.ID == c.Node }) {
			t.Errorf("core %v is in node %d, which is not there", c.Threads, c.Node)
		}
	}
	for _, s := range got.Sockets {
		inSockets = append(inSockets, s.CPUs.List()...)
	}
	for what, ids := range map[string][]int{"cores": inCores, "sockets": inSockets} {
		if len(ids) != got.Online.Len() || !farm.NewCPUSet(ids...).Equal(got.Online) {
			t.Errorf("%s hold CPUs %v, online are %v", what, ids, got.Online)
		}
	}
	for _, n := range got.Nodes {
		if n.Free > n.Memory || n.CPUs.Minus(got.Online).Len() > 0 {
			t.Errorf("node %d has more than there is", n.ID)
		}
	}
	if got.Distance != nil && len(got.Distance) != len(got.Nodes) {
		t.Errorf("%d rows of distances for %d nodes", len(got.Distance), len(got.Nodes))
	}
}

func compare(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func sorted(sets [][]int) [][]int {
	out := [][]int{}
	for _, s := range sets {
		s = slices.Clone(s)
		slices.Sort(s)
		out = append(out, s)
	}
	slices.SortFunc(out, slices.Compare)
	return out
}

func TestReadLive(t *testing.T) {
	got, err := topology.Read(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	checkWhole(t, got)
	if got.Nodes[0].Memory == 0 {
		t.Error("this machine has no memory")
	}
}
