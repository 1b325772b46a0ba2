// Command hwloc holds what `grange host show --from TREE --json` says of recorded machines against what hwloc reads
// from the same trees. It runs the program that -grange names, prints a line for each machine and a total, and ends
// with status 1 when anything differs.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/lastline"
)

func main() {
	grange := flag.String("grange", "bin/grange", "the program")
	trees := flag.String("trees", "internal/topology/testdata", "directory of recorded trees with a manifest.json")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	equal, err := run(ctx, *grange, *trees)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hwloc:", err)
	}
	if err != nil || !equal {
		os.Exit(1)
	}
}

// run compares every machine of the manifest. It reports whether all are equal.
func run(ctx context.Context, grange, trees string) (bool, error) {
	text, err := os.ReadFile(filepath.Join(trees, "manifest.json"))
	if err != nil {
		return false, err
	}
	var manifest struct{ Cases []machine }
	if err := json.Unmarshal(text, &manifest); err != nil {
		return false, fmt.Errorf("read %s/manifest.json: %w", trees, err)
	}
	equal := 0
	for _, m := range manifest.Cases {
		differences := []string{}
		got, err := show(ctx, grange, filepath.Join(trees, m.Tarball))
		if err != nil {
			differences = append(differences, err.Error())
		} else {
			differences = m.compare(got)
		}
		verdict := "equal"
		if len(differences) > 0 {
			verdict = strings.Join(differences, "; ")
		} else {
			equal++
		}
		fmt.Printf("%-40s %3d CPUs  %s\n", m.Name, len(m.CPUs), verdict)
	}
	all := len(manifest.Cases)
	if all == 0 {
		return false, fmt.Errorf("%s/manifest.json names no machine", trees)
	}
	return equal == all, lastline.Print(struct {
		Machines int `json:"machines"`
	}{all}, all-equal)
}

// shown is what the program says, as far as hwloc says it too.
type shown struct {
	Online   []int
	Packages [][]int
	Cores    [][]int
	L3       [][]int
	NUMA     []struct {
		ID     int
		CPUs   []int
		Memory int `json:"mem_kib"`
	}
}

func show(ctx context.Context, grange, tree string) (shown, error) {
	var got shown
	cmd := exec.CommandContext(ctx, grange, "host", "show", "--from", tree, "--json")
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return got, fmt.Errorf("%w: %s", err, strings.TrimSpace(problem.String()))
	}
	return got, json.Unmarshal(out, &got)
}

// machine is what hwloc reads of one tree.
type machine struct {
	Name, Tarball string
	CPUs          []int `json:"pu_ids"`
	Packages      []struct{ CPUs []int }
	Cores         [][]int `json:"smt_siblings"`
	NUMA          []struct {
		ID     int `json:"os_index"`
		CPUs   []int
		Memory int `json:"memory_kib"`
	}
	NoCPUs []int `json:"nodes_without_cpus"` // hwloc names those near such a node instead
	Caches []struct {
		Type string
		CPUs [][]int `json:"cpusets"`
	}
}

// compare lists what differs.
func (m machine) compare(got shown) []string {
	var out []string
	differ := func(what string, want, have any) {
		if a, b := fmt.Sprint(want), fmt.Sprint(have); a != b {
			out = append(out, fmt.Sprintf("%s: want %s, got %s", what, a, b))
		}
	}
	var packages, caches [][]int
	for _, p := range m.Packages {
		packages = append(packages, p.CPUs)
	}
	for _, c := range m.Caches {
		if c.Type == "L3Cache" {
			caches = append(caches, c.CPUs...)
		}
	}
	differ("online", sorted([][]int{m.CPUs}), sorted([][]int{got.Online}))
	differ("packages", sorted(packages), sorted(got.Packages))
	differ("cores", sorted(m.Cores), sorted(got.Cores))
	differ("L3", sorted(caches), sorted(got.L3))
	want, have := []string{}, []string{}
	for _, n := range m.NUMA {
		if slices.Contains(m.NoCPUs, n.ID) {
			n.CPUs = nil
		}
		want = append(want, fmt.Sprint(n.ID, sorted([][]int{n.CPUs}), n.Memory))
	}
	for _, n := range got.NUMA {
		have = append(have, fmt.Sprint(n.ID, sorted([][]int{n.CPUs}), n.Memory))
	}
	slices.Sort(want)
	slices.Sort(have)
	differ("nodes", want, have)
	return out
}

// sorted leaves out empty sets, and what hwloc does not order.
func sorted(sets [][]int) [][]int {
	var out [][]int
	for _, s := range sets {
		if len(s) > 0 {
			s = slices.Clone(s)
			slices.Sort(s)
			out = append(out, s)
		}
	}
	slices.SortFunc(out, slices.Compare)
	return out
}
