package hostfacts

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/mounts"
)

const (
	maxKiB   = 1 << 46 // 64 PiB: more than the 52 bits of an x86 physical address
	pageDir  = "sys/kernel/mm/hugepages"
	maxSwaps = 32 // Linux's own limit (MAX_SWAPFILES)
)

// memory reads what the kernel tells of memory, and of the whole host in the same files.
type memory struct{ *reader }

func (r memory) read(h *farm.HostFacts) {
	h.Memory, h.Pages = r.sizes()
	h.Sysctl = r.sysctl()
	h.Counters = r.counters()
	h.Pressure = r.pressure()
	h.Swaps = r.swaps()
}

// sizes reads /proc/meminfo and the pools of huge pages.
func (r memory) sizes() (farm.MemoryFacts, []farm.PagePool) {
	info := map[string]uint64{} // in KiB, or a plain count
	for _, line := range r.lines("proc/meminfo") {
		name, value, ok := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if !ok || len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseUint(fields[0], 10, 64)
		// the address space of some machines is larger
		if err != nil || n > maxKiB && !strings.HasPrefix(name, "Vmalloc") {
			r.Fail("proc/meminfo", "%q is not an amount of memory", hosttree.Cut(line))
			return farm.MemoryFacts{}, nil
		}
		info[name] = n
	}
	bytes := func(name string) farm.Bytes { return farm.Bytes(info[name]) * farm.KiB }
	m := farm.MemoryFacts{Total: bytes("MemTotal"), Free: bytes("MemFree"), Available: bytes("MemAvailable"),
		AnonHuge: bytes("AnonHugePages"), Committed: bytes("Committed_AS"), CommitLimit: bytes("CommitLimit"),
		SwapTotal: bytes("SwapTotal"), SwapFree: bytes("SwapFree"), PageTables: bytes("PageTables"),
		DefaultPage: bytes("Hugepagesize")}
	pools := r.pools()
	// kernels before 2.6.30 know one size and tell it here only
	if size := bytes("Hugepagesize"); len(pools) == 0 && size > 0 {
		pools = []farm.PagePool{{Size: size, Total: int(info["HugePages_Total"]), Free: int(info["HugePages_Free"]),
			Reserved: int(info["HugePages_Rsvd"]), Surplus: int(info["HugePages_Surp"])}}
	}
	return m, pools
}

// pools reads the huge pages of the whole host, in rising order of size.
func (r memory) pools() []farm.PagePool {
	var out []farm.PagePool
	for _, name := range r.Names(pageDir) {
		text, ok := strings.CutPrefix(name, "hugepages-")
		text, ok2 := strings.CutSuffix(text, "kB")
		kib, err := strconv.ParseUint(text, 10, 64)
		if !ok || !ok2 || err != nil || kib == 0 || kib > maxKiB {
			continue
		}
		count := func(file string) int { return r.count(pageDir+"/"+name+"/"+file, maxKiB) }
		out = append(out, farm.PagePool{Size: farm.Bytes(kib) * farm.KiB, Total: count("nr_hugepages"),
			Free: count("free_hugepages"), Reserved: count("resv_hugepages"), Surplus: count("surplus_hugepages"),
			Overcommit: count("nr_overcommit_hugepages")})
	}
	slices.SortFunc(out, func(a, b farm.PagePool) int { return cmp.Compare(a.Size, b.Size) })
	return out
}

// swaps reads /proc/swaps: path, type, size and used in KiB, priority.
func (r memory) swaps() []farm.Swap {
	var out []farm.Swap
	for i, line := range r.lines("proc/swaps") {
		fields := strings.Fields(line)
		if i == 0 || len(fields) < 4 {
			continue
		}
		size, err := strconv.ParseUint(fields[2], 10, 64)
		used, err2 := strconv.ParseUint(fields[3], 10, 64)
		if err != nil || err2 != nil || size > maxKiB || used > size || len(out) == maxSwaps {
			r.Fail("proc/swaps", "%q is not a swap device", hosttree.Cut(line))
			return nil
		}
		out = append(out, farm.Swap{Path: mounts.Unescape(fields[0]), Size: farm.Bytes(size) * farm.KiB,
			Used: farm.Bytes(used) * farm.KiB})
	}
	return out
}

// sysctls are the kernel's settings that matter to VMs. kernel.sched_* come on top.
var sysctls = []string{
	"vm.swappiness", "vm.overcommit_memory", "vm.overcommit_ratio", "vm.zone_reclaim_mode", "vm.nr_hugepages",
	"vm.nr_overcommit_hugepages", "vm.min_free_kbytes", "vm.dirty_ratio", "vm.dirty_background_ratio",
	"vm.compaction_proactiveness",
	"kernel.numa_balancing", "kernel.core_pattern", "kernel.nmi_watchdog", "kernel.watchdog",
	"kernel.randomize_va_space",
}

func (r memory) sysctl() map[string]string {
	out := map[string]string{}
	names := slices.Clone(sysctls)
	for _, name := range r.Names("proc/sys/kernel") {
		if strings.HasPrefix(name, "sched_") {
			names = append(names, "kernel."+name)
		}
	}
	for _, name := range names {
		dir, file, _ := strings.Cut(name, ".")
		if value, ok := r.Text("proc/sys/" + dir + "/" + file); ok {
			out[name] = value
		}
	}
	return out
}

const maxCounters = 4096

// counters reads /proc/vmstat.
func (r memory) counters() map[string]int64 {
	out := map[string]int64{}
	for _, line := range r.lines("proc/vmstat") {
		name, value, _ := strings.Cut(line, " ")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil || len(out) == maxCounters {
			r.Fail("proc/vmstat", "%q is not a counter", hosttree.Cut(line))
			return nil
		}
		out[name] = int64(min(n, math.MaxInt64)) // some counters run below zero for a moment and print as huge
	}
	return out
}

// pressure reads PSI. The file of the CPU has no "full" line on kernels before 5.13.
func (r memory) pressure() map[string]farm.Pressure {
	out := map[string]farm.Pressure{}
	for _, what := range []string{"cpu", "memory", "io"} {
		lines := r.lines("proc/pressure/" + what)
		if len(lines) == 0 {
			continue
		}
		var p farm.Pressure
		for _, line := range lines {
			fields := strings.Fields(line)
			into := map[string][]*float64{"some": {&p.Some10, &p.Some60, &p.Some300},
				"full": {&p.Full10, &p.Full60, &p.Full300}}[fields[0]]
			for i, v := range into {
				if i+1 < len(fields) {
					*v = r.percent("proc/pressure/"+what, fields[i+1])
				}
			}
			if total := r.total("proc/pressure/"+what, fields[len(fields)-1]); fields[0] == "some" {
				p.SomeTotal = total
			} else {
				p.FullTotal = total
			}
		}
		out[what] = p
	}
	return out
}

// total reads the last field of a line of PSI, in microseconds; 0 where there is none.
func (r memory) total(path, field string) time.Duration {
	text, ok := strings.CutPrefix(field, "total=")
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/1000 {
		r.Fail(path, "%q is not a time", hosttree.Cut(field))
		return 0
	}
	return time.Duration(n) * time.Microsecond
}

func (r memory) percent(path, field string) float64 {
	_, text, _ := strings.Cut(field, "=")
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= 100) {
		r.Fail(path, "%q is not a percentage", hosttree.Cut(field))
		return 0
	}
	return v
}
