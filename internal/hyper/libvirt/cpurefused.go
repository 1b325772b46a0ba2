package libvirt

import (
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

func notInName(r rune) bool { return r == ',' || r == ' ' }

// cpuRefused is the error where libvirt refused a machine for its CPU model: what it wants is not in the host's
// processor, or no libvirt knows it. nil for other refusals. libvirt compares before it starts QEMU, and tells by words
// alone what lacks.
func cpuRefused(message string) *farm.Error {
	for _, lacking := range []string{"does not provide required features: ",
		"doesn't match specification: missing features: "} {
		if _, features, ok := strings.Cut(message, lacking); ok {
			return &farm.Error{Kind: farm.Invalid, Code: hyper.CodeCPUModel,
				Message: "this host's CPU lacks what the VM's CPU model has: " +
					strings.Join(strings.FieldsFunc(features, notInName), ", "),
				Hint: "take host-passthrough, host-model, or a model that `virsh domcapabilities --virttype kvm` " +
					"says is usable"}
		}
	}
	unknown := func(words string) bool { return strings.Contains(message, words) }
	if slices.ContainsFunc([]string{"Unknown CPU model", "not compatible with host CPU", "incompatible with host CPU"},
		unknown) {
		return &farm.Error{Kind: farm.Invalid, Code: hyper.CodeCPUModel,
			Message: "libvirt has no such CPU model for this host: " + message,
			Hint: "`virsh cpu-models x86_64` lists the names; `virsh domcapabilities --virttype kvm` which of them " +
				"are usable"}
	}
	return nil
}
