// Package libvirttest decides, for every test that runs its own libvirtd, what the test's machines run on and what that
// libvirtd sees.
package libvirttest

import (
	"cmp"
	"os"

	"github.com/grange-project/grange/internal/hyper/libvirt"
)

// Accelerator is $GRANGE_TEST_ACCELERATOR, or software emulation, which works everywhere.
func Accelerator() libvirt.Accelerator {
	return libvirt.Accelerator(cmp.Or(os.Getenv("GRANGE_TEST_ACCELERATOR"), string(libvirt.TCG)))
}

// Up are the arguments of scripts/private-libvirtd that start a libvirtd in dir. Where machines are emulated it sees no
// /dev/kvm: with one that works in part, libvirt may probe QEMU again at each request, and every test takes minutes.
func Up(dir string) []string {
	if Accelerator() == libvirt.TCG {
		return []string{"up", "--no-kvm", dir}
	}
	return []string{"up", dir}
}
