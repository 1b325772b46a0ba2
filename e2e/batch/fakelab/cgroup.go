package fakelab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// groups are one job's control groups, made the way its batch system makes them on a host of either version.
type groups struct {
	dirs []string // by controller: memory, cpuacct, cpuset; one on a host of version 2
	v2   bool
}

const cgroupRoot = "/sys/fs/cgroup"

// makeGroups makes the job's groups below parent (as pbs_jobs.service/jobid), with a memory limit and CPUs where these
// are given.
func makeGroups(parent, job string, memory int64, cpus string) (groups, error) {
	var g groups
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		g.v2 = true
		at := cgroupRoot
		for part := range strings.SplitSeq(parent+"/"+job, "/") {
			os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+memory +cpu +cpuset"), 0)
			at = filepath.Join(at, part)
			if err := os.MkdirAll(at, 0o755); err != nil {
				return g, err
			}
		}
		g.dirs = []string{at}
		err := os.WriteFile(filepath.Join(at, "memory.max"), []byte(strconv.FormatInt(memory, 10)), 0)
		if cpus != "" && err == nil {
			err = os.WriteFile(filepath.Join(at, "cpuset.cpus"), []byte(cpus), 0)
		}
		return g, err
	}
	for _, controller := range []string{"memory", "cpuacct", "cpuset"} {
		root := filepath.Join(cgroupRoot, controller)
		if _, err := os.Stat(root + "/cgroup.procs"); err != nil || controller == "cpuset" && cpus == "" {
			continue
		}
		at := root
		for part := range strings.SplitSeq(parent+"/"+job, "/") {
			above := at
			at = filepath.Join(at, part)
			if err := os.MkdirAll(at, 0o755); err != nil {
				return g, err
			}
			if controller == "cpuset" { // a new one has none, and takes no process
				for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
					if err := inherit(above, at, file); err != nil {
						return g, err
					}
				}
			}
		}
		g.dirs = append(g.dirs, at)
		var err error
		switch controller {
		case "memory":
			err = os.WriteFile(at+"/memory.limit_in_bytes", []byte(strconv.FormatInt(memory, 10)), 0)
		case "cpuset":
			err = os.WriteFile(at+"/cpuset.cpus", []byte(cpus), 0)
		}
		if err != nil {
			return g, err
		}
	}
	if len(g.dirs) == 0 {
		return g, errors.New("no control groups here for memory or CPU time")
	}
	return g, nil
}

func inherit(above, at, file string) error {
	have, err := os.ReadFile(filepath.Join(at, file))
	if err != nil || strings.TrimSpace(string(have)) != "" {
		return err
	}
	value, err := os.ReadFile(filepath.Join(above, file))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(at, file), value, 0)
}

// used is what the job has used in all, QEMU included.
func (g groups) used() (cpu time.Duration, memory int64) {
	for _, dir := range g.dirs {
		if n := readNumber(dir + "/cpuacct.usage"); n > 0 {
			cpu = time.Duration(n)
		}
		memory = max(memory, readNumber(dir+"/memory.max_usage_in_bytes"), readNumber(dir+"/memory.peak"))
		stat, _ := os.ReadFile(dir + "/cpu.stat")
		var us int64
		if n, _ := fmt.Sscanf(string(stat), "usage_usec %d", &us); n == 1 {
			cpu = time.Duration(us) * time.Microsecond
		}
	}
	return cpu, memory
}

// killed reports whether the kernel ended a process of the job for its memory.
func (g groups) killed() bool {
	for _, dir := range g.dirs {
		for _, file := range []string{"/memory.oom_control", "/memory.events"} {
			text, _ := os.ReadFile(dir + file)
			for line := range strings.Lines(string(text)) {
				if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" && f[1] != "0" {
					return true
				}
			}
		}
	}
	return false
}

func readNumber(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// remove kills what is left in the groups, as PBS's cgroup hook and sbatchd do, and removes them. The agent's QEMU of
// the job has had its time.
func (g groups) remove() error {
	var last error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		last = nil
		for _, dir := range g.dirs {
			if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				last = err
				text, _ := os.ReadFile(dir + "/cgroup.procs")
				for pid := range strings.FieldsSeq(string(text)) {
					if n, err := strconv.Atoi(pid); err == nil && time.Until(deadline) < 5*time.Second {
						syscall.Kill(n, syscall.SIGKILL)
					}
				}
			}
		}
		if last == nil {
			return nil
		}
	}
	return last
}
