package setup

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/gridengine"
	"github.com/grange-project/grange/internal/farm"
)

// checkParams looks at lists of words in the configuration that decide how a job's processes are found and accounted.
func checkParams(conf map[string]string, add adder) {
	for param := range strings.SplitSeq(strings.ReplaceAll(conf["execd_params"], " ", ","), ",") {
		key, value, _ := strings.Cut(strings.ToUpper(param), "=")
		off := slices.Contains([]string{"FALSE", "0", "NO"}, value)
		switch {
		case key == "ENABLE_ADDGRP_KILL" && off:
			add(batch.Warning, key, "execd_params: "+param, "processes that left a job's session survive it",
				"set ENABLE_ADDGRP_KILL=true")
		case key == "USE_CGROUPS" && !off && value != "":
			add(batch.Warning, key, "execd_params: "+param, "Grid Engine then knows a job by its cpuset alone, "+
				"which QEMU is not in: qdel does not reach the VM, and it is not accounted", "leave USE_CGROUPS out")
		case key == "PDC_INTERVAL" && value == "NEVER":
			add(batch.Broken, key, "execd_params: "+param, "nobody enforces h_vmem for VMs, and nobody accounts them",
				"leave PDC_INTERVAL out")
		case key == "IGNORE_NGROUPS_MAX_LIMIT" && !off && value != "":
			add(batch.Warning, key, "execd_params: "+param, "jobs of users with many groups are not tracked",
				"leave it out")
		case key == "ACCT_RESERVED_USAGE" && !off && value != "":
			add(batch.Warning, key, "execd_params: "+param,
				"accounting says what was asked for, not what VMs used", "leave it out")
		}
	}
	for word := range strings.FieldsSeq(strings.ReplaceAll(conf["reporting_params"], ",", " ")) {
		if strings.EqualFold(word, "accounting=false") {
			add(batch.Warning, "reporting_params", "reporting_params: "+word,
				"Grid Engine writes no accounting file: qacct and the accounts have no job of this cell",
				"qconf -mconf: reporting_params accounting=true")
		}
	}
}

// leastAddresses is the address space with which the wrapper starts; docs/guide/gridengine.md has the reason.
const leastAddresses = 3 * farm.GiB / 2

// checkRoom looks at limits of the queue that are too small for the wrapper, or for as many jobs as the queue has
// slots.
func checkRoom(queue, conf map[string]string, add adder) {
	for _, key := range []string{"s_vmem", "h_vmem"} {
		for _, v := range byHost(queue[key]) {
			n, ok := memory(v)
			if ok && n < leastAddresses && !strings.HasSuffix(conf["shepherd_cmd"], ShepherdLink) {
				add(batch.Broken, key, key+" of the queue is "+v,
					"it limits the address space of the wrapper, which does not start with so little",
					key+" INFINITY, or grange gridengine install --small-jobs")
			}
		}
	}
	slots := 0
	for _, v := range byHost(queue["slots"]) {
		n, _ := strconv.Atoi(v)
		slots = max(slots, n)
	}
	if n := groups(conf["gid_range"]); n > 0 && n < slots {
		add(batch.Warning, "gid_range", fmt.Sprintf("gid_range has %d groups, and a host %d slots", n, slots),
			"each job of a host needs one of its own: Grid Engine starts no more jobs than there are",
			"qconf -mconf: a gid_range of as many as a host has slots in all queues")
	}
	if v := queue["ckpt_list"]; !gridengine.None(v) {
		add(batch.Warning, "ckpt_list", "ckpt_list is "+v,
			"commands of a checkpoint environment run on the host and see the wrapper, not the job", "ckpt_list NONE")
	}
}

// groups returns how many groups "20000-20100,30000" has.
func groups(text string) int {
	all := 0
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.Atoi(first)
		b := a
		if ranged && err == nil {
			b, err = strconv.Atoi(last)
		}
		if err == nil && b >= a {
			all += b - a + 1
		}
	}
	return all
}

// memory reads a limit of memory: a number with K, M or G, in lower case for powers of ten; ok is false for INFINITY.
func memory(text string) (n farm.Bytes, ok bool) {
	units := map[string]farm.Bytes{"K": farm.KiB, "M": farm.MiB, "G": farm.GiB, "k": 1000, "m": 1e6, "g": 1e9}
	unit := farm.Bytes(1)
	for suffix, size := range units {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = rest, size
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	return farm.Bytes(v * float64(unit)), err == nil && v >= 0 && v < 1<<60
}
