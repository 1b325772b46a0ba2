package meter

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/metrics"
	"github.com/grange-project/grange/internal/procstat"
)

// What a VM has to do to alarm.
const (
	waitAlarm = 0.3 // part of its CPUs' time in I/O wait: what CERN's Tier-0 saw of VMs that swapped
	swapAlarm = 10  // pages a second that come back from swap
)

// most bounds the series of single VMs, whatever the host has.
const most = 512

// states are those that there is always a figure of: a series that comes and goes is no line.
var states = []string{"waiting", "starting", "running", machine.StateUnresponsive}

// vmFigures are of one VM.
type vmFigures struct {
	VM
	process *processFigures // nil: it has none, or that has gone
}

func (h Host) vms() (metrics.Reading, error) {
	counts, binds := map[[2]string]int{}, map[string]int{"fuse": 0, "virtiofs": 0, "sftp": 0}
	for _, kind := range []string{Job, Worker, Cloud} {
		for _, state := range states {
			counts[[2]string{kind, state}] = 0
		}
	}
	connected := 0
	var all []vmFigures
	for _, v := range h.VMs() {
		counts[[2]string{v.View.Purpose, v.View.State}]++
		connected += len(v.View.Services)
		for _, b := range v.View.Binds {
			binds[b.Gateway]++
		}
		f := vmFigures{VM: v}
		if v.PID != 0 && len(all) < most {
			f.process = readProcess(h.Kernel, v.PID, v.Started)
		}
		all = append(all, f)
	}
	perVM := h.PerVM()
	return func(put metrics.Put) {
		for key, n := range counts {
			put(vmsByState, float64(n), key[0], key[1])
		}
		for gateway, n := range binds {
			put(gateways, float64(n), gateway)
		}
		put(services, float64(connected))
		putAlarms(put, all)
		if perVM {
			for _, v := range all[:min(len(all), most)] {
				v.put(put)
			}
		}
	}, nil
}

func putAlarms(put metrics.Put, all []vmFigures) {
	var reporting, waits, swaps int
	for _, v := range all {
		if !v.Reports {
			continue
		}
		reporting++
		if v.Load.Waiting >= waitAlarm {
			waits++
		}
		if v.Load.SwappedIn >= swapAlarm {
			swaps++
		}
	}
	put(vmsReporting, float64(reporting))
	put(vmsAlarming, float64(waits), "io-wait")
	put(vmsAlarming, float64(swaps), "swapping")
}

func (v vmFigures) put(put metrics.Put) {
	if p := v.process; p != nil {
		put(vmCPU, p.guest, v.View.Name, "guest")
		put(vmCPU, p.user, v.View.Name, "user")
		put(vmCPU, p.system, v.View.Name, "system")
		put(vmResident, p.resident, v.View.Name)
		put(vmSwap, p.swapped, v.View.Name)
	}
	if v.Reports {
		put(vmWait, v.Load.Waiting, v.View.Name)
		put(vmSwapPages, float64(v.Load.SwapIn), v.View.Name, "in")
		put(vmSwapPages, float64(v.Load.SwapOut), v.View.Name, "out")
	}
}

// processFigures are of a VM's QEMU: seconds and bytes.
type processFigures struct{ guest, user, system, resident, swapped float64 }

// Fields of /proc/PID/stat.
const (
	userTime   = 14
	systemTime = 15
	resident   = 24 // pages
	guestTime  = 43 // which is part of userTime
)

// readProcess reads what the kernel says of a process; nil where there is none that started then.
func readProcess(kernel fs.FS, pid int, started uint64) *processFigures {
	text, err := fs.ReadFile(kernel, fmt.Sprintf("proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	s := procstat.Parse(text)
	if at, err := s.Started(); err != nil || at != started && started != 0 {
		return nil
	}
	number := func(field int) float64 {
		n, _ := strconv.ParseUint(s.Field(field), 10, 64)
		return float64(n)
	}
	p := &processFigures{guest: number(guestTime) / ticks, system: number(systemTime) / ticks,
		resident: number(resident) * float64(os.Getpagesize())}
	p.user = max(0, number(userTime)/ticks-p.guest)
	status, _ := fs.ReadFile(kernel, fmt.Sprintf("proc/%d/status", pid))
	for line := range bytes.Lines(status) {
		if fields := strings.Fields(string(line)); len(fields) > 1 && fields[0] == "VmSwap:" {
			kib, _ := strconv.ParseUint(fields[1], 10, 54)
			p.swapped = float64(kib << 10)
		}
	}
	return p
}
