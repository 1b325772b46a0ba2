package server

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A collection of garbage takes a small server's only core for up to 10 ms at a time, and VMs wait for their places
// meanwhile: it should come seldom. Go's own percentage makes room for as much garbage as is alive: little with few
// hosts, and with ten thousand, whose connections live for weeks, hundreds of megabytes for nothing.
const (
	heapSize     = 256 << 20 // bytes that may be used, alive or not, about
	leastPercent = 30
	mostPercent  = 200 // what is alive may grow until the next look
)

const garbageLook = time.Second

// PaceGarbage keeps this process's heap at heapSize, with bounds, until ctx ends. A GOGC in the environment goes
// before.
func PaceGarbage(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	set := leastPercent // until it is known: what a farm is read from is no garbage for long
	debug.SetGCPercent(set)
	for sleep(ctx, garbageLook) {
		metrics.Read(live)
		if want := garbagePercent(live[0].Value.Uint64()); want != set {
			set = want
			debug.SetGCPercent(set)
		}
	}
}

// garbagePercent is how much of what is alive the garbage may come to, in tens.
func garbagePercent(live uint64) int {
	room := heapSize - min(live, heapSize)
	percent := room * 100 / max(live, 1)
	return int(min(max(percent/10*10, leastPercent), mostPercent))
}
