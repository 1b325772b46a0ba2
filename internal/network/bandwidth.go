package network

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/network/nwfilter"
)

// A token bucket at a VM's tap limits the traffic to the VM. It queues packets that come too fast, so senders see a
// slower link. The kernel removes it with the tap. The VM's filter (nwfilter) limits the traffic from the VM, and drops
// packets.

// shaperHandle tells our queueing discipline from another one of its kind: "gr" in ASCII.
const shaperHandle = "6772:"

// qdisc is what tc(8) tells of a queueing discipline.
type qdisc struct {
	Kind    string          `json:"kind"`
	Handle  string          `json:"handle"`
	Device  string          `json:"dev"`
	Root    bool            `json:"root"`
	Options json.RawMessage `json:"options"` // each kind has its own
}

// tokenBucket are the options of tbf.
type tokenBucket struct {
	Rate uint64 `json:"rate"` // bytes a second
}

// shape holds a VM to what it may receive. Errors: farm.CodeNotHeld.
func shape(ctx context.Context, vm VM) error {
	tap, err := nwfilter.TapOf(vm.PID, vm.mac())
	if err != nil {
		return notHeld(err)
	}
	_, err = run(ctx, "tc", shaper(tap, vm.Bandwidth.In)...)
	return notHeld(err)
}

// shaper are the words for tc(8). The bucket has what comes in ten milliseconds, and room for two segments that the
// kernel has put together (64 KiB); what waits longer than fifty milliseconds is dropped.
func shaper(tap string, rate farm.Rate) []string {
	burst := max(uint64(rate)/8/100, 2*64*1024)
	return []string{"qdisc", "replace", "dev", tap, "root", "handle", shaperHandle, "tbf", "rate",
		strconv.FormatUint(uint64(rate), 10) + "bit", "burst", strconv.FormatUint(burst, 10), "latency", "50ms"}
}

// reshape holds VMs again to what they may receive where that is not so any more. Without such VMs it runs nothing.
func reshape(ctx context.Context, vms []VM, failed func(VM, error)) {
	vms = slices.DeleteFunc(slices.Clone(vms), func(vm VM) bool { return vm.Bandwidth.In == 0 || !alive(vm.PID) })
	if len(vms) == 0 {
		return
	}
	var there []qdisc
	out, err := run(ctx, "tc", "-json", "qdisc", "show")
	if err == nil {
		err = decode(out, &there)
	}
	if err != nil {
		failed(vms[0], err)
		return
	}
	for _, vm := range vms {
		if tap, err := nwfilter.TapOf(vm.PID, vm.mac()); err == nil && shaped(there, tap, vm.Bandwidth.In) {
			continue
		}
		if err := shape(ctx, vm); err != nil && alive(vm.PID) {
			failed(vm, err)
		}
	}
}

// shaped reports whether a tap has what shaper makes. tc counts in bytes.
func shaped(there []qdisc, tap string, rate farm.Rate) bool {
	return slices.ContainsFunc(there, func(q qdisc) bool {
		var has tokenBucket
		return q.Device == tap && q.Root && q.Kind == "tbf" && q.Handle == shaperHandle &&
			json.Unmarshal(q.Options, &has) == nil && has.Rate == uint64(rate)/8
	})
}

// notHeld is the error of a VM that cannot be held to its bandwidth.
func notHeld(err error) error {
	if err == nil {
		return nil
	}
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotHeld, Err: err,
		Message: "the VM cannot be held to its bandwidth: " + err.Error(),
		Hint:    "install iproute2 on the host, and see that its kernel has the module sch_tbf"}
}
