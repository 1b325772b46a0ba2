package setup

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// warn notes what jobs on the host have and jobs in VMs have not.
func (all *findings) warn(setting, do, found, why string) {
	all.add(setting, do, found, why)
	(*all)[len(*all)-1].Level = batch.Warning
}

// leastAddresses is the address space with which the wrapper starts, which reserves more than it uses.
const leastAddresses = 3 * farm.GiB / 2

// checkLimits looks at what the starter sets for each job's first process, which is the wrapper, and at the memory that
// the startd gives away.
func (c Config) checkLimits(look Look, all *findings) {
	const key = "STARTER_RLIMIT_AS"
	if v := c[key]; v != "" && v != "0" {
		n, err := strconv.ParseUint(v, 10, 64)
		if found := key + " = " + v; err != nil || farm.Bytes(n) < leastAddresses {
			all.add(key, "leave "+key+" out: CGROUP_MEMORY_LIMIT_POLICY limits the memory that is used", found,
				"it limits the address space of the wrapper, which reserves more than it uses: with little it does "+
					"not start, and in the VM the limit holds for the job's programs")
		}
	}
	if gives := c.memory(); look.Grants > 0 && gives > int64(look.Grants/farm.MiB) {
		grants := int64(look.Grants / farm.MiB)
		do := fmt.Sprintf("MEMORY = %d; or a smaller reserved_memory in agent.toml", grants)
		if detected, err := strconv.ParseInt(c["DETECTED_MEMORY"], 10, 64); err == nil && c["MEMORY"] == "" {
			do = fmt.Sprintf("RESERVED_MEMORY = %d; or a smaller reserved_memory in agent.toml", detected-grants)
		}
		all.warn("MEMORY", do, fmt.Sprintf("the startd has %dM for jobs, and the agent grants VMs %dM", gives, grants),
			"the VM of a job that has the whole machine never fits")
	}
}

// memory returns what the startd gives to jobs, in MiB; 0: an expression, or not known.
func (c Config) memory() int64 {
	number := func(key string) int64 {
		n, _ := strconv.ParseInt(c[key], 10, 64)
		return n
	}
	switch text := strings.ToUpper(c["MEMORY"]); text {
	case "", "$(DETECTED_MEMORY)":
		return number("DETECTED_MEMORY") - number("RESERVED_MEMORY")
	}
	return number("MEMORY")
}

// checkHistory: records of jobs that have ended are read from the history file.
func (c Config) checkHistory(all *findings) {
	if v, set := c["HISTORY"]; set && v == "" {
		all.warn("HISTORY", "HISTORY = $(SPOOL)/history", "HISTORY is empty",
			"the schedd keeps no record of a job that has ended: the accounts have none of its jobs")
	}
}
