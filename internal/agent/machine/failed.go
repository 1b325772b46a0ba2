package machine

import (
	"errors"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
)

// What a start that came to nothing means.

// hostsFault are errors that no image and no request can bring about.
var hostsFault = []farm.Code{farm.CodeDiskFull, CodeVMDiskFull, farm.CodeDiskTool, farm.CodeImageStore,
	CodeBadPins, hyper.CodeAway, hyper.CodeRefused, hyper.CodeWillNotEnd, hyper.CodeUnreadable, farm.CodeUIDsTaken}

// BlameFor returns whose fault a failed start can be.
func BlameFor(err error) breaker.Blame {
	e := new(farm.Error)
	switch {
	case !errors.As(err, &e): // the caller left, or it is ours and says nothing of host or image
		return breaker.Nobody
	// what was asked for may be what no hypervisor has, as an unknown model of CPU
	case e.Code == hyper.CodeRefused && e.Kind == farm.Invalid:
		return breaker.Unclear
	case slices.Contains(hostsFault, e.Code):
		return breaker.TheHost
	case e.Code == CodeGuestSilent, e.Code == farm.CodeBadImage:
		return breaker.Unclear
	}
	return breaker.Nobody
}

// FirstLine is an error without the end of a console behind it.
func FirstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// WorthAnotherTry distinguishes what may have been bad luck from what will never work.
func WorthAnotherTry(err error) bool {
	return !farm.IsKind(err, farm.Invalid) && !farm.IsKind(err, farm.Denied) && !farm.IsKind(err, farm.NoCapacity)
}

// Codes of errors of machines, and of a host on which none starts; docs/errors.md explains them.
const (
	CodeBadPins      farm.Code = "bad-pins"      // the kernel does not run a VM where the plan says
	CodeNetworkFS    farm.Code = "network-fs"    // disks of VMs would lie on a network file system
	CodeOldGuest     farm.Code = "old-guest"     // its grange-guest cannot do what its job asks for
	CodeGuestSilent  farm.Code = "guest-silent"  // a VM's guest did not come up
	CodeVMDiskFull   farm.Code = "vm-disk-full"  // the host had no space for what a VM wrote
	CodeBelowMinimum farm.Code = "below-minimum" // the host has less of something than its configuration wants free
	CodeNoVMUID      farm.Code = "no-vm-uid"     // all user IDs of VMs are in use
)

// MaxReason bounds what is told of a failure, in bytes.
const MaxReason = 3000
