package tuning

import (
	"fmt"
	"strconv"

	"github.com/grange-project/grange/internal/farm"
)

// Edit is one change of a VM's definition, as virsh edit makes it.
type Edit struct {
	File string // the VM's XML, from the root, without a leading slash
	// Element is the path of an element below <domain>. A segment may choose among elements of its name by an attribute
	// of its own or of a child: "cputune/vcpupin[vcpu=0]", "devices/disk[target.dev=vda]/driver", or by its number from
	// one: "devices/interface[2]". What is not there is made.
	Element string
	Set     map[string]string // attributes
	Text    string            // what stands between its tags; "" leaves that as it is
	Remove  bool              // the element goes, and all of its name where the path chooses none
}

// set is an edit that gives an element attributes: names and values in turn.
func set(d farm.Domain, element string, attributes ...string) Edit {
	e := Edit{File: d.Path, Element: element, Set: map[string]string{}}
	for i := 0; i+1 < len(attributes); i += 2 {
		e.Set[attributes[i]] = attributes[i+1]
	}
	return e
}

// pin is an edit that gives a vCPU host CPUs.
func pin(d farm.Domain, vcpu int, cpus farm.CPUSet) Edit {
	return set(d, fmt.Sprintf("cputune/vcpupin[vcpu=%d]", vcpu), "cpuset", cpus.String())
}

// showTopology is the edits of <topology>, and their text. Where the processor would hide the VM's threads, the feature
// that shows them comes with it.
func showTopology(t farm.Topology, d farm.Domain, g farm.GuestTopology) ([]Edit, string) {
	text := fmt.Sprintf("<topology sockets='%d' cores='%d' threads='%d'/>", g.Sockets, g.Cores, g.Threads)
	edits := []Edit{set(d, "cpu/topology", "sockets", strconv.Itoa(g.Sockets), "dies", "1", "cores",
		strconv.Itoa(g.Cores), "threads", strconv.Itoa(g.Threads))}
	if g.Threads > 1 && hiddenThreads(t.CPU, d) != "" {
		edits = append(edits, showThreads(d))
		text += " and <feature policy='require' name='topoext'/> into <cpu>"
	}
	return edits, text
}

// showThreads is the edit that shows the guest of an AMD processor its threads.
func showThreads(d farm.Domain) Edit {
	return set(d, "cpu/feature[name="+topoext+"]", "policy", "require")
}
