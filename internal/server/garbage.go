package server

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A collection of garbage takes a small server's only core for milliseconds at a time, the longer the more is alive, and VMs wait for their places meanwhile. Go's
// own percentage makes room for as much garbage as is alive: seldom enough for few hosts, and for ten thousand, whose connections live for weeks, hundreds of
// megabytes for nothing.
const (
	garbageRoom  = 96 << 20 // bytes beside what is alive, about
	leastPercent = 30
	mostPercent  = 200 // what is alive may grow until the next look
)

const garbageLook = 5 * time.Second

// PaceGarbage keeps room for so much garbage in this process until ctx ends. A GOGC in the environment goes before.
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
	percent := garbageRoom * 100 / max(live, 1)
	return int(min(max(percent/10*10, leastPercent), mostPercent))
}
