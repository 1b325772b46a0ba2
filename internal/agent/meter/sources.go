package meter

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
	"github.com/grange-project/grange/internal/metrics"
	"github.com/grange-project/grange/internal/numa"
)

// Each source reads, and hands back what puts the figures.

func is(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

func (h Host) agent() (metrics.Reading, error) {
	ready := h.Known()
	word, _, _ := strings.Cut(h.Accelerator(), " ") // "tcg" with its reason
	up, wanted := h.Link()
	return func(put metrics.Put) {
		put(agentInfo, 1, h.Version, cmp.Or(strings.TrimRight(word, ",:;"), "unknown"))
		put(agentReady, is(ready))
		if wanted {
			put(linkUp, is(up))
		}
	}, nil
}

func (h Host) minimum() (metrics.Reading, error) {
	takes, byKind := h.TakesVMs(), map[string]int{"image": 0, "user": 0, "host": 0}
	for _, b := range h.BackOffs() {
		byKind[b.Kind]++
	}
	return func(put metrics.Put) {
		put(takesVMs, is(takes))
		for kind, n := range byKind {
			put(backOffs, float64(n), kind)
		}
	}, nil
}

func (h Host) daemon() (metrics.Reading, error) {
	d := h.Daemon()
	return func(put metrics.Put) {
		put(daemonUp, is(d.Away == ""))
		put(daemonStuck, float64(len(d.Stuck)))
		if d.Answer > 0 {
			put(daemonAnswer, d.Answer.Seconds())
		}
	}, nil
}

func (h Host) ledger() (metrics.Reading, error) {
	room, waits := h.Room()
	t := h.Topology()
	return func(put metrics.Put) {
		put(waiting, float64(waits))
		put(cpus, float64(t.Online.Len()), "online")
		put(cpus, float64(room.Reserve.CPUs.And(t.Online).Len()), "reserved")
		put(cpus, float64(room.Free.Len()), "free")
		for _, n := range t.Nodes {
			putNode(put, n, room.Nodes[n.ID])
		}
	}, nil
}

func putNode(put metrics.Put, n farm.Node, free numa.NodeRoom) {
	id, plain := strconv.Itoa(n.ID), n.Memory
	for _, p := range n.Pages {
		size := strconv.FormatUint(uint64(p.Size), 10)
		put(nodePages, float64(p.Total), id, size, "total")
		put(nodePages, float64(free.Pages[p.Size]), id, size, "free")
		plain -= min(plain, farm.Bytes(p.Total)*p.Size)
	}
	put(nodeMemory, float64(plain), id, "total")
	put(nodeMemory, float64(free.Memory), id, "free")
}

func (h Host) disks() (metrics.Reading, error) {
	space, err := h.Disks()
	return func(put metrics.Put) {
		put(disks, float64(space.Pool), "total")
		put(disks, float64(space.Free), "free")
		put(disks, float64(space.Short-space.Kept), "short")
	}, err
}

// images counts those that can be read. One that is broken does not hide the others.
func (h Host) images() (metrics.Reading, error) {
	all, err := h.Images()
	if len(all) == 0 && err != nil {
		return nil, err
	}
	byKind, sizes := map[string]int{}, map[string]farm.Bytes{}
	for _, i := range all {
		byKind[string(i.Kind)]++
		sizes[i.Digest] = i.Size
	}
	return func(put metrics.Put) {
		for kind, n := range byKind {
			put(images, float64(n), kind)
		}
		var sum farm.Bytes
		for _, size := range sizes {
			sum += size
		}
		put(imageBytes, float64(sum))
	}, nil
}

// ticks are how many parts of a second the kernel counts CPU time in, for programs: 100 on x86-64.
const ticks = 100

func (h Host) kernel() (metrics.Reading, error) {
	f, err := hostfacts.ReadLoad(h.Kernel)
	return func(put metrics.Put) {
		for mode, n := range map[string]int64{"user": max(0, f.CPUTime.User-f.CPUTime.Guest), "nice": f.CPUTime.Nice,
			"system": f.CPUTime.System, "guest": f.CPUTime.Guest, "idle": f.CPUTime.Idle, "iowait": f.CPUTime.IOWait,
			"steal": f.CPUTime.Steal} {
			put(cpuSeconds, float64(n)/ticks, mode)
		}
		for state, n := range map[string]farm.Bytes{"total": f.Memory.Total, "free": f.Memory.Free,
			"available": f.Memory.Available} {
			put(memory, float64(n), state)
		}
		put(swap, float64(f.Memory.SwapTotal), "total")
		put(swap, float64(f.Memory.SwapTotal-min(f.Memory.SwapTotal, f.Memory.SwapFree)), "used")
		put(swapPages, float64(f.Counters["pswpin"]), "in")
		put(swapPages, float64(f.Counters["pswpout"]), "out")
		for resource, p := range f.Pressure {
			put(pressure, p.SomeTotal.Seconds(), resource, "some")
			put(pressure, p.FullTotal.Seconds(), resource, "full")
		}
		if f.KSM.Known {
			put(ksmState, float64(f.KSM.Run))
			put(ksmPages, float64(f.KSM.Shared), "shared")
			put(ksmPages, float64(f.KSM.Sharing), "sharing")
			put(ksmPages, float64(f.KSM.Unshared), "unshared")
		}
	}, err
}
