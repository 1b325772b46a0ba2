package cloud

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/network"
	"github.com/grange-project/grange/internal/topology"
	"github.com/grange-project/grange/internal/vmimage"
	"github.com/grange-project/grange/internal/wire"
)

// ReadFacts reads what this host says of itself. What cannot be read is left out: a host that says less is placed less
// on, and the others need not know why.
func (h *Host) ReadFacts() fleet.Facts {
	unlisted := map[string]bool{}
	for _, v := range h.All() {
		if _, gone := v.newest(); gone {
			unlisted[v.ID] = true
		}
	}
	for _, id := range h.incomingIDs() {
		unlisted[id] = true
	}
	threads, reserve, taken := h.ledger.Taken(unlisted)
	facts := farm.Facts{Version: h.Version, Capability: fleet.Capability, Instance: h.instance,
		Boot:        machine.BootID(),
		Accelerator: h.Accelerator(), Topology: threads,
		Reserve: farm.HostReserve{CPUs: reserve.CPUs, Memory: reserve.Memory}, Taken: taken,
		Short: h.Machines.TakesNothing(),
		Kind:  topology.Kind(threads), ImageUse: h.Images.Use()}
	var err error
	facts.BatchNode, err = h.config().Batch.NodeName()
	h.noNode.Log(h.log, "this host's name for the server", err)
	facts.Networks, err = network.Bridges()
	h.noBridges.Log(h.log, "bridges for the server", err)
	facts.Networks = append(facts.Networks, h.config().Network.Carried()...)
	if h.flows.followed(h.log) {
		facts.Networks = append(facts.Networks, farm.FollowsFlows)
	}
	slices.SortFunc(facts.Taken, func(x, y farm.Plan) int { // maps have no order, and the same facts are to be equal
		return strings.Compare(fmt.Sprint(x), fmt.Sprint(y))
	})
	if h.FileSystems != nil {
		facts.FileSystems = h.FileSystems()
	}
	named, notNamed := h.images.List()
	for _, i := range named {
		facts.Images = append(facts.Images, i.Name)
	}
	all, err := vmimage.All(h.images)
	h.noImages.Log(h.log, "images for the server", errors.Join(notNamed, err))
	for _, i := range all {
		facts.Images = append(facts.Images, i.Digest)
	}
	slices.Sort(facts.Images)
	facts.Images = slices.Compact(facts.Images)
	if space, err := h.ledger.DiskSpace(ledger.CloudFiles); err == nil {
		facts.ScratchFree = space.Free / scratchStep * scratchStep
	}
	facts.Bandwidth, facts.Booked = network.Carries(h.config().Network), h.ledger.Booked(unlisted)
	facts.Findings, facts.Audited = h.Usage.Tuned()
	return wire.Facts(facts, time.Time{})
}

// scratchStep is what free space is rounded down to, so that not every block that a VM writes is news.
const scratchStep = farm.GiB
