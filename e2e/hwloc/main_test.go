package main

import "testing"

// TestCompare holds that the judge finds every kind of difference: it is of no use when it finds none.
func TestCompare(t *testing.T) {
	m := machine{CPUs: []int{0, 1}, Cores: [][]int{{0, 1}}}
	m.Packages = append(m.Packages, struct{ CPUs []int }{[]int{1, 0}})
	m.NUMA = append(m.NUMA, struct {
		ID     int `json:"os_index"`
		CPUs   []int
		Memory int `json:"memory_kib"`
	}{0, []int{0, 1}, 7})
	m.Caches = append(m.Caches, struct {
		Type string
		CPUs [][]int `json:"cpusets"`
	}{"L3Cache", [][]int{{0, 1}}})
	node := struct {
		ID     int
		CPUs   []int
		Memory int `json:"mem_kib"`
	}{0, []int{0, 1}, 7}
	same := shown{Online: []int{1, 0}, Packages: [][]int{{0, 1}}, Cores: [][]int{{1, 0}, {}}, L3: [][]int{{0, 1}}}
	same.NUMA = append(same.NUMA, node)
	if d := m.compare(same); len(d) > 0 {
		t.Errorf("equal ones differ: %v", d)
	}
	if d := m.compare(shown{}); len(d) != 5 {
		t.Errorf("nothing differs in %v, want 5 kinds", d)
	}
	same.NUMA[0].Memory = 8
	if d := m.compare(same); len(d) != 1 {
		t.Errorf("another memory: %v", d)
	}
}
